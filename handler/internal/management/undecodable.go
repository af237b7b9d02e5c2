package management

import (
	"fmt"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// undecodablePayload tells of messages that this process's worker cannot decode.
type undecodablePayload struct {
	Count    int                  `json:"count"`
	Messages []undecodableMessage `json:"messages"`
}

type undecodableMessage struct {
	Queue     string    `json:"queue"`
	MessageID string    `json:"messageId"`
	Reason    string    `json:"reason"`
	Since     time.Time `json:"since"`
	SetAside  bool      `json:"setAside"`
}

// maxUndecodableShown is how many of them health shows one by one.
const maxUndecodableShown = 20

// undecodable returns what health tells, nil if all can be decoded.
func (m *API) undecodable() *undecodablePayload {
	if m.hub == nil {
		return nil
	}
	all := m.hub.Undecodable()
	if len(all) == 0 {
		return nil
	}
	payload := &undecodablePayload{Count: len(all)}
	for _, u := range all[:min(len(all), maxUndecodableShown)] {
		payload.Messages = append(payload.Messages, undecodableMessage{u.Queue, u.ID, secrets.Mask(u.Cause), u.Since.UTC(), u.SetAside})
	}
	return payload
}

// A retriedPayload is the answer to POST undecodable/retry.
type retriedPayload struct {
	Messages int `json:"messagesPutBack"`
}

// retryUndecodable answers POST undecodable/retry.
func (m *API) retryUndecodable(c echo.Context, _ web.Query) error {
	n, err := m.hub.RetryUndecodable(c.Request().Context())
	if err != nil {
		return fmt.Errorf("put back the messages that were set aside, after %d of them: %w", n, err)
	}
	return web.WriteJSON(c, http.StatusOK, retriedPayload{n})
}
