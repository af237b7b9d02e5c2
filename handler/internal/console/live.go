package console

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// streamTime is how long events are sent over one connection. The platform's limit of a
// request is 230 s; the page connects again by itself.
const streamTime = 200 * time.Second

// wantsEvents reports whether a page asks for a part as events.
func (v *visit) wantsEvents() bool {
	return strings.Contains(v.Request().Header.Get(echo.HeaderAccept), "text/event-stream")
}

// stream sends a part as events: now, and whenever it has changed. The stream ends
// at once if it is not on a connection of its own, which alone has deadlines, but below a host
// that wraps answers: the page then asks again and again.
func (v *visit) stream(r *route) error {
	w := http.NewResponseController(v.Response().Writer)
	if v.right == management.NoRight {
		return v.NoContent(http.StatusUnauthorized)
	}
	end := time.Now().Add(streamTime)
	whole := w.SetWriteDeadline(end.Add(web.AnswerTime)) != nil
	h := v.Response().Header()
	h.Set(echo.HeaderContentType, "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // asks proxies to pass events on at once
	v.events = new(bytes.Buffer)
	tick := time.NewTicker(r.live)
	defer tick.Stop()
	last := ""
	for time.Now().Before(end) {
		v.events.Reset()
		if err := v.answer(r); err != nil {
			v.events.Reset()
			if err := v.fail(err); err != nil {
				return err
			}
		}
		event := ":\n\n" // keeps the connection, and finds out whether it is there
		if now := v.events.String(); now != last {
			event, last = "data: "+strings.ReplaceAll(strings.TrimSpace(now), "\n", "\ndata: ")+"\n\n", now
		}
		if _, err := v.Response().Write([]byte(event)); err != nil {
			return nil
		}
		if err := w.Flush(); err != nil || whole {
			return nil
		}
		select {
		case <-tick.C:
		case <-v.console.draining:
			return nil
		case <-v.Request().Context().Done():
			return nil
		}
	}
	return nil
}
