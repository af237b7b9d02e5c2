package handler

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/labstack/echo/v4"
)

// instances is what the management API needs of a *durable.Client.
type instances interface {
	StartByName(ctx context.Context, name string, input json.RawMessage, opts ...durable.StartOption) (durable.InstanceID, error)
	Status(ctx context.Context, id durable.InstanceID, fetch provider.Fetch) (*provider.InstanceState, error)
	List(ctx context.Context, q provider.Query) (*provider.Page, error)
	History(ctx context.Context, id durable.InstanceID) ([]history.Event, error)
	Tracking(ctx context.Context, id durable.InstanceID, q provider.TrackingQuery) (*provider.TrackingPage, error)
	RaiseEvent(ctx context.Context, id durable.InstanceID, name string, payload json.RawMessage) error
	Terminate(ctx context.Context, id durable.InstanceID, reason string, opts ...durable.TerminateOption) error
	Suspend(ctx context.Context, id durable.InstanceID, reason string) error
	Resume(ctx context.Context, id durable.InstanceID, reason string) error
	Rewind(ctx context.Context, id durable.InstanceID, reason string) error
	Restart(ctx context.Context, id durable.InstanceID, opts ...durable.StartOption) (durable.InstanceID, error)
	Purge(ctx context.Context, id durable.InstanceID, opts ...durable.PurgeOption) (durable.PurgeResult, error)
	ListEntities(ctx context.Context, q durable.EntityQuery) (*durable.EntityPage, error)
	Entity(ctx context.Context, e durable.AnyEntity) (*durable.EntityState, error)
	SignalEntity(ctx context.Context, e durable.AnyEntity, operation string, input json.RawMessage, opts ...durable.SignalOption) error
	PurgeMany(ctx context.Context, filter durable.PurgeFilter, opts ...durable.PurgeOption) (durable.PurgeResult, error)
}

var _ instances = (*durable.Client)(nil)

// management is the management HTTP API of the .NET extension
// (WebJobs.Extensions.DurableTask/HttpApiHandler.cs), and what there is besides
// to see how the app is.
type management struct {
	instances  instances // nil if the configuration is wrong
	registry   *durable.Registry
	waiting    func() []durable.WaitingFunction // nil if the configuration is wrong
	primary    provider.Primary
	keeper     provider.UndecodableKeeper // nil if the configuration is wrong
	load       *loadMonitor
	checkup    *checkup
	server     *Server
	access     access
	taskHub    string
	connection string
	draining   <-chan struct{}
	routes     []managementRoute
	unreadable taskhub.UnreadableLog
}

func (s *Server) newManagement() *management {
	return &management{
		server: s, access: access{s.cfg.Key}, taskHub: s.cfg.Storage.TaskHub, connection: s.cfg.ConnectionName,
		draining: s.draining, routes: managementRoutes(),
	}
}

// addManagement adds the routes of the management API: below the app's route
// prefix and, standalone, at the extension's own path too.
func (s *Server) addManagement(api *echo.Group) {
	for _, path := range []string{managementPath, managementPath + "/*"} {
		api.Any(path, s.management.handle)
	}
	if !s.cfg.BehindHost {
		for _, path := range []string{webhookPath, webhookPath + "/*"} {
			s.echo.Any(path, s.management.handle)
		}
	}
}

// handle matches a path as the extension does; whatever is not an operation, by
// path or by method, has status 404 without a body (HttpApiHandler.cs,
// HandleRequestAsync). Who must have a key and does not gets 401 for all.
func (m *management) handle(c echo.Context) error {
	route, path := m.route(c)
	allowed, err := m.allowed(c, route, path)
	switch {
	case err != nil:
		return err
	case !allowed:
		return c.NoContent(http.StatusUnauthorized)
	case route == nil:
		return notFoundEmpty(c)
	}
	limitAnswer(c)
	q := parseQuery(c.Request().URL.RawQuery)
	if err := checkTexts(path, q); err != nil {
		return err
	}
	if err := m.checkHub(q); err != nil {
		return err
	}
	return route.operation(m, path)(c, q)
}

// checkTexts refuses what a request says in its URL unless it is valid UTF-8, whatever it
// stands for. Of bodies bodyText does.
func checkTexts(path pathValues, q query) error {
	for name, value := range path {
		if !utf8.ValidString(value) {
			return badRequest("The path's %s must be valid UTF-8.", name)
		}
	}
	for name, values := range q {
		if !utf8.ValidString(name + strings.Join(values, "")) {
			return badRequest("The query parameter %q must be valid UTF-8.", name)
		}
	}
	return nil
}

// An operation answers one request.
type operation func(c echo.Context, q query) error

// route returns what a request asks for, nil if there is no such thing.
func (m *management) route(c echo.Context) (*managementRoute, pathValues) {
	base, _ := c.Get(baseKey).(string)
	r := c.Request()
	segments, ok := segmentsBelow(r.URL, base)
	if !ok {
		return nil, nil
	}
	for i := range m.routes {
		if m.routes[i].method != r.Method {
			continue
		}
		if path, ok := m.routes[i].match(segments); ok {
			if name := m.routes[i].chosen; name != "" && m.server.cfg.BehindHost {
				path[name] = mendSlashes(r, path[name])
			}
			return &m.routes[i], path
		}
	}
	return nil, nil
}

// allowed reports whether whoever sent a request may have it answered.
func (m *management) allowed(c echo.Context, route *managementRoute, path pathValues) (bool, error) {
	switch {
	case route != nil && route.public, m.access.full(c.Request()):
		return true, nil
	case route == nil || !route.open:
		return false, nil
	}
	at, ok := m.access.handedOut(c.Request(), path.instance())
	if !ok {
		return false, nil
	}
	return m.isSame(c, path.instance(), at)
}

// stateKey is where a request for a status finds what was read to see whether it may
// have it.
const stateKey = "durablefunctions.state"

// isSame reports whether an ID is that of the instance still that had it at a time, as
// far as is known: a client has not started it anew since. What there is no instance of
// is no secret.
func (m *management) isSame(c echo.Context, id durable.InstanceID, at time.Time) (bool, error) {
	var fetch provider.Fetch
	reads := c.Request().Method == http.MethodGet
	if reads {
		fetch = statusFetch(parseQuery(c.Request().URL.RawQuery))
	}
	state, err := m.instances.Status(c.Request().Context(), id, fetch)
	switch {
	case errors.Is(err, provider.ErrInstanceNotFound):
		return true, nil
	case err != nil:
		return false, err
	case reads:
		c.Set(stateKey, state)
	}
	return !state.FirstCreatedAt.After(at), nil
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
		if len(name) > maxName {
			return badRequest("The name of an event must not exceed %d bytes.", maxName)
		}
		payload, err := eventPayload(c)
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

func eventPayload(c echo.Context) (json.RawMessage, error) {
	media, _, err := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if err != nil || media != echo.MIMEApplicationJSON {
		return nil, badRequest("Only application/json request content is supported")
	}
	payload, err := readBody(c)
	if err == nil && payload == nil {
		payload = json.RawMessage("null")
	}
	return payload, err
}

// parseJSON returns text, which must be JSON, as it is but for blanks around it;
// nil if it is empty. Invalid makes an answer of what is wrong with it.
func parseJSON(text []byte, invalid func(error) error) (json.RawMessage, error) {
	text = bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\ufeff")))
	if len(text) == 0 {
		return nil, nil
	}
	if !json.Valid(text) {
		var any json.RawMessage
		return nil, invalid(json.Unmarshal(text, &any)) // it says why
	}
	if tooDeep(text) {
		return nil, badRequest("The JSON is nested more than %d deep.", maxJSONDepth)
	}
	return text, nil
}

// headerUnreadable tells how many instances an answer leaves out since what is stored
// of them cannot be read. It is not there if there are none.
const headerUnreadable = "x-durable-unreadable"

func setUnreadable(c echo.Context, n int) {
	if n > 0 {
		c.Response().Header().Set(headerUnreadable, strconv.Itoa(n))
	}
}
