package management

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// shortestPoll bounds how often the storage is asked on a caller's behalf.
const shortestPoll = 50 * time.Millisecond

// start answers POST orchestrators/{name}[/{id}]. With timeout and
// pollingInterval it waits for the instance to end.
func (m *API) start(name string, id durable.InstanceID) operation {
	return func(c echo.Context, q web.Query) error {
		ctx := c.Request().Context()
		input, err := web.ReadBody(c)
		if err != nil {
			return err
		}
		patience, err := patienceOf(q)
		if err != nil {
			return err
		}
		var opts []durable.StartOption
		if version := q.Text("version"); version != "" {
			opts = append(opts, durable.Version(version)) // else defaultVersion
		}
		if id != "" {
			opts = append(opts, id)
		}
		started, err := m.instances.StartByName(ctx, name, input, opts...)
		if unfit, ok := errors.AsType[*durable.InstanceIDError](err); ok {
			return web.BadArgument("%s", unfit.Reason)
		}
		if long, ok := errors.AsType[*durable.TooLongError](err); ok {
			return web.BadArgument("%v", long)
		}
		if err != nil {
			return err
		}
		LinksOf(c).warning = m.warnOfStart(name, q.Text("version"))
		return m.answerStarted(c, q, started, patience)
	}
}

// patience says how long a caller waits for the instance that is started, and
// how often to look whether it has ended. It is nil for one who does not.
type patience struct{ timeout, interval time.Duration }

func patienceOf(q web.Query) (*patience, error) {
	timeout, waits := q.Seconds("timeout")
	interval, both := q.Seconds("pollingInterval")
	switch {
	case !waits || !both:
		return nil, nil
	case interval > timeout:
		return nil, web.BadArgument("Total timeout %v should be bigger than retry timeout %v", timeout.Seconds(), interval.Seconds())
	}
	return &patience{timeout, interval}, nil
}

// answerStarted answers a request that started an instance.
func (m *API) answerStarted(c echo.Context, q web.Query, id durable.InstanceID, p *patience) error {
	if p != nil {
		return m.waitOrCheckStatus(c, q, id, p.timeout, p.interval)
	}
	return CheckStatus(c, id)
}

// waitOrCheckStatus waits for an instance to end and answers with its output
// or, if it ended in another way, its status. If it has not ended in time, or
// the server is stopping, it answers with the check-status payload
// (HttpApiHandler.cs, WaitForCompletionOrCreateCheckStatusResponseAsync).
func (m *API) waitOrCheckStatus(c echo.Context, q web.Query, id durable.InstanceID, timeout, interval time.Duration) error {
	ctx := c.Request().Context()
	for deadline := time.Now().Add(timeout); ; {
		state, err := m.instances.Status(ctx, id, provider.Fetch{Output: true})
		switch {
		case err != nil:
			return err
		case state.Status == history.Completed:
			return web.WriteJSON(c, http.StatusOK, PayloadJSON(state.Output))
		case state.Status.IsTerminal():
			return m.status(id)(c, q)
		}
		left := time.Until(deadline)
		if left <= 0 || !m.pause(ctx, min(max(interval, shortestPoll), left)) {
			return CheckStatus(c, id)
		}
	}
}

// pause waits for d; false means that the caller is gone or the server is
// stopping.
func (m *API) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-m.draining:
	}
	return false
}
