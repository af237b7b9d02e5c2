package handler

import (
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/labstack/echo/v4"
)

// instances is what the management API needs of a *durable.Client.
type instances interface {
	StartByName(ctx context.Context, name string, input json.RawMessage, opts ...durable.StartOption) (durable.InstanceID, error)
	Status(ctx context.Context, id durable.InstanceID, fetch provider.Fetch) (*provider.InstanceState, error)
	List(ctx context.Context, q provider.Query) (*provider.Page, error)
	History(ctx context.Context, id durable.InstanceID) ([]history.Event, error)
	RaiseEvent(ctx context.Context, id durable.InstanceID, name string, payload json.RawMessage) error
	Terminate(ctx context.Context, id durable.InstanceID, reason string, opts ...durable.TerminateOption) error
	Suspend(ctx context.Context, id durable.InstanceID, reason string) error
	Resume(ctx context.Context, id durable.InstanceID, reason string) error
	Rewind(ctx context.Context, id durable.InstanceID, reason string) error
	Restart(ctx context.Context, id durable.InstanceID, opts ...durable.StartOption) (durable.InstanceID, error)
	Purge(ctx context.Context, id durable.InstanceID, opts ...durable.PurgeOption) (durable.PurgeResult, error)
	PurgeMany(ctx context.Context, filter durable.PurgeFilter, opts ...durable.PurgeOption) (durable.PurgeResult, error)
}

var _ instances = (*durable.Client)(nil)

// management is the instance-management HTTP API of the .NET extension
// (WebJobs.Extensions.DurableTask/HttpApiHandler.cs), as far as the operations
// exist. All others are answered like unknown ones.
type management struct {
	instances  instances
	taskHub    string
	connection string
	draining   <-chan struct{}
}

// addManagement adds the routes of the management API: below the app's route
// prefix and, standalone, at the extension's own path too.
func (s *Server) addManagement(api *echo.Group, instances instances) {
	m := &management{instances: instances, taskHub: s.cfg.Storage.TaskHub, connection: s.cfg.ConnectionName, draining: s.draining}
	for _, path := range []string{managementPath, managementPath + "/*"} {
		api.Any(path, m.handle)
	}
	if !s.cfg.BehindHost {
		for _, path := range []string{webhookPath, webhookPath + "/*"} {
			s.echo.Any(path, m.handle)
		}
	}
}

// handle matches a path as the extension does: orchestrators before instances,
// and whatever is not an operation on either, by path or by method, has status
// 404 without a body (HttpApiHandler.cs, HandleRequestAsync).
func (m *management) handle(c echo.Context) error {
	base, _ := c.Get(baseKey).(string)
	r := c.Request()
	segments, ok := segmentsBelow(r.URL, base)
	if !ok || len(segments) == 0 {
		return notFoundEmpty(c)
	}
	operation := m.operation(r.Method, segments)
	if operation == nil {
		return notFoundEmpty(c)
	}
	q := parseQuery(r.URL.RawQuery)
	if err := m.checkHub(q); err != nil {
		return err
	}
	return operation(c, q)
}

// An operation answers one request.
type operation func(c echo.Context, q query) error

// operation returns what a request asks for, nil if there is no such thing.
func (m *management) operation(method string, segments []string) operation {
	get, post, remove := method == http.MethodGet, method == http.MethodPost, method == http.MethodDelete
	kind, rest := strings.ToLower(segments[0]), segments[1:]
	switch {
	case kind == "orchestrators" && post && len(rest) == 1:
		return m.start(rest[0], "")
	case kind == "orchestrators" && post && len(rest) == 2:
		return m.start(rest[0], durable.InstanceID(rest[1]))
	case kind != "instances":
		return nil
	case get && len(rest) == 0:
		return m.list
	case get && len(rest) == 1:
		return m.status(durable.InstanceID(rest[0]))
	case remove && len(rest) == 0:
		return m.purgeMany
	case remove && len(rest) == 1:
		return m.purge(durable.InstanceID(rest[0]))
	case post && len(rest) == 2:
		return m.control(durable.InstanceID(rest[0]), rest[1])
	case post && len(rest) == 3 && strings.EqualFold(rest[1], "raiseEvent"):
		return m.raiseEvent(durable.InstanceID(rest[0]), rest[2])
	}
	return nil
}

func notFoundEmpty(c echo.Context) error { return c.NoContent(http.StatusNotFound) }

// checkHub refuses requests for another hub than the app's. The extension can
// reach any hub; here the caller is told instead of being answered from the
// wrong one.
func (m *management) checkHub(q query) error {
	if hub := q.text("taskHub"); hub != "" && !strings.EqualFold(hub, m.taskHub) {
		return badRequest("This app serves task hub %q; the request is for task hub %q.", m.taskHub, hub)
	}
	if name := q.text("connection"); name != "" && !sameConnection(name, m.connection) {
		return badRequest("This app serves the task hub of connection %q; the request is for connection %q.", m.connection, name)
	}
	return nil
}

// sameConnection reports whether two connection names stand for one setting:
// "Storage" is short for "AzureWebJobsStorage".
func sameConnection(a, b string) bool {
	short := func(name string) string { return strings.TrimPrefix(strings.ToLower(name), "azurewebjobs") }
	return short(a) == short(b)
}

// raiseEvent answers POST instances/{id}/raiseEvent/{name}. An empty body
// counts as null, which the extension refuses, since its own JavaScript client
// sends that for an event without data.
func (m *management) raiseEvent(id durable.InstanceID, name string) operation {
	return func(c echo.Context, _ query) error {
		ctx := c.Request().Context()
		payload, err := eventPayload(c.Request())
		if err == nil {
			if err = m.instances.RaiseEvent(ctx, id, name, payload); err != nil {
				return err
			}
			return c.NoContent(http.StatusAccepted)
		}
		// The extension looks at the instance before it looks at the body.
		state, statusErr := m.instances.Status(ctx, id, provider.Fetch{})
		switch {
		case statusErr != nil:
			return statusErr
		case state.Status.IsTerminal():
			return durable.ErrInstanceEnded
		}
		return err
	}
}

func eventPayload(r *http.Request) (json.RawMessage, error) {
	media, _, err := mime.ParseMediaType(r.Header.Get(echo.HeaderContentType))
	if err != nil || media != echo.MIMEApplicationJSON {
		return nil, badRequest("Only application/json request content is supported")
	}
	payload, err := readJSON(r.Body)
	if err == nil && payload == nil {
		payload = json.RawMessage("null")
	}
	return payload, err
}

// readJSON returns a request body, which must be JSON, as it is but for blanks
// around it; nil if it is empty.
func readJSON(body io.Reader) (json.RawMessage, error) {
	text, err := io.ReadAll(body)
	if err != nil {
		return nil, err
	}
	text = []byte(strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff")))
	if len(text) == 0 {
		return nil, nil
	}
	var any json.RawMessage
	if err := json.Unmarshal(text, &any); err != nil {
		return nil, invalidJSON(err)
	}
	return any, nil
}
