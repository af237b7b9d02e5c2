package management

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// API is the management HTTP API: the API of the .NET extension
// (WebJobs.Extensions.DurableTask/HttpApiHandler.cs), and additional routes about the state of the app.
type API struct {
	cfg      Config
	front    *web.Front
	state    *taskhub.Readiness
	draining <-chan struct{}
	logger   *slog.Logger
	Access   Access
	Routes   []Route

	// The fields below are nil if the configuration is not valid.
	instances *durable.Client
	// withoutCode is a client that does not replay code.
	withoutCode *durable.Client
	registry    *durable.Registry
	worker      *durable.Worker
	waiting     func() []durable.BlockedFunction
	hub         *taskhub.Client
	load        *loadMonitor
	checkup     *checkup

	Unreadable taskhub.UnreadableLog
}

// A Config configures a management API.
type Config struct {
	TaskHub, Connection string
	Access              Access
	BehindHost          bool
	AppLease            bool                 // one of several apps works on the hub at a time
	Configuration       func() Configuration // returns the answer to GET configuration
	Metrics             http.Handler         // serves the metrics of a standalone app; may be nil
}

// New returns an API without a hub. Until [API.Open] is called, it answers only routes that need no
// hub. draining is closed when the server starts to shut down.
func New(cfg Config, f *web.Front, state *taskhub.Readiness, draining <-chan struct{}, logger *slog.Logger) *API {
	return &API{cfg: cfg, front: f, state: state, draining: draining, logger: logger, Access: cfg.Access, Routes: Routes()}
}

// A Hub is a task hub with its client and worker.
type Hub struct {
	Client   *durable.Client
	Registry *durable.Registry
	Hub      taskhub.Client
	Worker   *durable.Worker
	Scaling  func() (maxActivities, maxOrchestrators int, polling time.Duration)
}

// Open sets the hub of the API.
func (m *API) Open(h Hub) {
	m.instances, m.registry, m.hub, m.worker, m.waiting = h.Client, h.Registry, &h.Hub, h.Worker, h.Worker.Blocked
	m.withoutCode = durable.NewClient(h.Hub, nil)
	m.checkup = &checkup{check: h.Hub.Check}
	m.load = &loadMonitor{hub: h.Hub, cfg: h.Scaling, now: time.Now}
}

// AddTo adds the routes below the app's route prefix. A standalone app also has them at the path of the
// extension, and has health checks.
func (m *API) AddTo(e *echo.Echo) {
	for _, base := range m.front.ManagementBases() {
		e.Any(base, m.handle)
		e.Any(base+"/*", m.handle)
	}
	if !m.cfg.BehindHost {
		e.GET(LivePath, func(c echo.Context) error { return appAPI{m}.live(c, nil) })
		e.GET(ReadyPath, func(c echo.Context) error { return appAPI{m}.ready(c, nil) })
		if m.cfg.Metrics != nil {
			e.GET(MetricsPath, appAPI{m}.metrics)
		}
	}
}

// handle answers a request. Like the extension, it answers 404 without a body to an unknown path
// (HttpApiHandler.cs, HandleRequestAsync). A caller without the key always gets 401.
func (m *API) handle(c echo.Context) error {
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
	web.LimitAnswer(c)
	q := web.ParseQuery(c.Request().URL.RawQuery)
	if err := checkTexts(path, q); err != nil {
		return err
	}
	if err := m.checkHub(q); err != nil {
		return err
	}
	return route.operation(m, path)(c, q)
}

// checkTexts returns an error if a value in the URL is not valid UTF-8. [web.BodyText] checks bodies.
func checkTexts(path pathValues, q web.Query) error {
	for name, value := range path {
		if !utf8.ValidString(value) {
			return web.BadRequest("The path's %s must be valid UTF-8.", name)
		}
	}
	for name, values := range q {
		if !utf8.ValidString(name + strings.Join(values, "")) {
			return web.BadRequest("The query parameter %q must be valid UTF-8.", name)
		}
	}
	return nil
}

// An operation answers one request.
type operation func(c echo.Context, q web.Query) error

// route returns the route of a request and the values in its path, or nil.
func (m *API) route(c echo.Context) (*Route, pathValues) {
	base, _ := c.Get(web.BaseKey).(string)
	r := c.Request()
	segments, ok := web.SegmentsBelow(r.URL, base)
	if !ok {
		return nil, nil
	}
	for i := range m.Routes {
		if m.Routes[i].Method != r.Method {
			continue
		}
		if path, ok := m.Routes[i].Match(segments); ok {
			if name := m.Routes[i].chosen; name != "" && m.cfg.BehindHost {
				path[name] = web.RestoreSlashes(r, path[name])
			}
			return &m.Routes[i], path
		}
	}
	return nil, nil
}

// allowed reports whether the sender of a request may use its route.
func (m *API) allowed(c echo.Context, route *Route, path pathValues) (bool, error) {
	switch {
	case route != nil && route.Public, m.Access.full(c.Request()):
		return true, nil
	case m.Access.of(c.Request()) == Read:
		return false, web.AnswerWith(http.StatusForbidden, web.ErrorBody{Message: "The key is for reading only."})
	case route == nil || !route.Open:
		return false, nil
	}
	at, ok := m.Access.issued(c.Request(), path.instance())
	if !ok {
		return false, nil
	}
	return m.isSameInstance(c, path.instance(), at)
}

// stateKey is the context key of the instance's state, if the check of its code has read it.
const stateKey = "durablefunctions.state"

// isSameInstance reports whether the instance with the ID is the one that existed at the given time, and was
// not started later. It also returns true if no such instance exists.
func (m *API) isSameInstance(c echo.Context, id durable.InstanceID, at time.Time) (bool, error) {
	var fetch durable.Fetch
	reads := c.Request().Method == http.MethodGet
	if reads {
		fetch = fetchOf(web.ParseQuery(c.Request().URL.RawQuery))
	}
	state, err := m.instances.Status(c.Request().Context(), id, fetch)
	switch {
	case errors.Is(err, durable.ErrInstanceNotFound):
		return true, nil
	case err != nil:
		return false, err
	case reads:
		c.Set(stateKey, state)
	}
	return !state.FirstCreatedAt.After(at), nil
}

func notFoundEmpty(c echo.Context) error { return c.NoContent(http.StatusNotFound) }

// checkHub returns an error if a request names another hub. The extension can reach any hub; an app
// here has only one.
func (m *API) checkHub(q web.Query) error {
	if hub := q.Text("taskHub"); hub != "" && !strings.EqualFold(hub, m.cfg.TaskHub) {
		return web.BadRequest("This app serves task hub %q; the request is for task hub %q.", m.cfg.TaskHub, hub)
	}
	if name := q.Text("connection"); name != "" && !settings.SameConnection(name, m.cfg.Connection) {
		return web.BadRequest("This app serves the task hub of connection %q; the request is for connection %q.", m.cfg.Connection, name)
	}
	return nil
}

// HeaderUnreadable is the header with the number of instances that an answer omits because their stored
// data cannot be read. It is set only if there are any.
const HeaderUnreadable = "x-durable-unreadable"

func setUnreadable(c echo.Context, n int) {
	if n > 0 {
		c.Response().Header().Set(HeaderUnreadable, strconv.Itoa(n))
	}
}

const (
	// StartupTimeout limits how long a request waits while the app starts.
	StartupTimeout = 10 * time.Second
)

// Gate answers GET / at once in every state. The host takes an answer as the sign that the handler is
// up, and later measures the latency with the same request (azure-functions-host:
// Workers/Http/DefaultHttpWorkerService.cs). Gate also lets health checks pass. While the app cannot
// serve, it answers other requests with status 503, with the reason for callers with the key.
func (m *API) Gate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		if r.URL.Path == "/" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return m.alive(c)
		}
		if m.needsNoHub(c) {
			return next(c)
		}
		if err := m.state.Await(r.Context(), StartupTimeout); err != nil {
			return m.forCaller(r, err)
		}
		return next(c)
	}
}

// needsNoHub reports whether a request can be answered without a hub.
func (m *API) needsNoHub(c echo.Context) bool {
	switch c.Request().URL.Path {
	case LivePath, ReadyPath:
		return !m.cfg.BehindHost
	case MetricsPath:
		return m.cfg.Metrics != nil
	}
	switch {
	case !web.IsManagement(c):
		return false
	case strings.HasPrefix(c.Path(), m.front.ManagementBases()[0]+web.ConsolePath):
		return true // its pages show the reason
	}
	route, _ := m.route(c)
	return route != nil && route.Always
}

// forCaller returns err or, for a caller without the key, an error without the reason.
func (m *API) forCaller(r *http.Request, err error) error {
	if m.Access.full(r) {
		return err
	}
	return &taskhub.UnavailableError{Reason: "The app cannot serve now. A request with the key gets the reason."}
}

// alive answers GET /.
func (m *API) alive(c echo.Context) error {
	body := struct {
		Status string `json:"status"`
		Reason string `json:"reason,omitempty"`
	}{Status: "ready"}
	if err := m.state.Check(); err != nil {
		body.Status, body.Reason = "unavailable", m.forCaller(c.Request(), err).Error()
	}
	return web.WriteJSON(c, http.StatusOK, body)
}

// warnOfStart returns a warning if this app does not have the started orchestrator, otherwise "". An
// app without orchestrators gets no warning: it may start orchestrators of other apps.
func (m *API) warnOfStart(name, version string) string {
	known := m.knownOrchestrators()
	if m.registry.HasOrchestrator(name, durable.Version(version)) || len(known) == 0 {
		return ""
	}
	return fmt.Sprintf("This app has no orchestrator named %s; it has %s. The instance fails if no other worker of the task hub has one.",
		quoteName(name, version), strings.Join(known, ", "))
}

func (m *API) knownOrchestrators() []string {
	if m.registry == nil {
		return nil
	}
	return m.registry.Orchestrators()
}

// waitsFor returns a note about a function that the instance waits for and this app does not run, or
// "". blocked is the result of blockedBy.
func (m *API) waitsFor(state *durable.InstanceState, blocked map[string]*durable.BlockedFunction) string {
	if reason, _ := held(state, blocked); reason != "" {
		return reason
	}
	if state.Status.IsTerminal() || history.IsEntity(state.Instance.InstanceID) || len(m.knownOrchestrators()) == 0 {
		return ""
	}
	if !m.registry.HasOrchestrator(state.Name, durable.Version(state.Version)) {
		return fmt.Sprintf("This app has no orchestrator named %s.", quoteName(state.Name, state.Version))
	}
	return ""
}

// blockedBy returns the first function that each held instance waits for, by instance ID. This app's
// worker does not have or does not run the function. The result is computed once for all instances of a
// request, because it includes all held instances.
func (m *API) blockedBy() map[string]*durable.BlockedFunction {
	blocked := make(map[string]*durable.BlockedFunction)
	for _, f := range m.allWaiting() {
		for _, id := range f.Instances {
			if blocked[id] == nil {
				blocked[id] = &f
			}
		}
	}
	return blocked
}

// held returns the function in blocked that an instance waits for, and the reason in words. Without such
// a function the reason is "".
func held(state *durable.InstanceState, blocked map[string]*durable.BlockedFunction) (reason string, by *durable.BlockedFunction) {
	if by = blocked[state.Instance.InstanceID]; by == nil || state.Status.IsTerminal() {
		return "", nil
	}
	return heldText(*by), by
}

// stalled returns the function of an instance that does not yield, or nil.
func (m *API) stalled(id durable.InstanceID) *durable.BlockedFunction {
	for _, f := range m.allWaiting() {
		if (f.Runs || f.Stalled) && slices.Contains(f.Instances, string(id)) {
			return &f
		}
	}
	return nil
}

func (m *API) allWaiting() []durable.BlockedFunction {
	if m.waiting == nil {
		return nil
	}
	return m.waiting()
}

// LinksFor adds links to each request.
func (m *API) LinksFor(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		base, ok := c.Get(web.BaseKey).(string)
		if !ok {
			base = m.front.ManagementBases()[0]
		}
		c.Set(linksKey, &links{origin: m.front.Origin(c.Request()), base: base, query: m.hubQuery(), code: m.codeFor(c.Request()), management: m})
		return next(c)
	}
}

// hubQuery returns the query parameters that all management URLs have.
func (m *API) hubQuery() string {
	return "taskHub=" + url.QueryEscape(m.cfg.TaskHub) + "&connection=" + url.QueryEscape(m.cfg.Connection)
}

// codeFor returns a function that returns the query parameters of management URLs that authorize a request.
// If the app has a key, they contain a code for the instance that now has the ID. Behind the host they pass
// on the caller's key, because the host sees the app as one function, so that key is valid for these URLs,
// too. The code then has a parameter of its own. They never contain a key of the app.
func (m *API) codeFor(r *http.Request) func(durable.InstanceID) string {
	access, given := m.Access, ""
	// The host prefers the header (azure-functions-host: AuthenticationLevelHandler.cs, GetAuthorizationKeyInfoAsync).
	for _, key := range []string{r.Header.Get(headerKey), web.ParseQuery(r.URL.RawQuery).Text("code")} {
		if given == "" && (access.open() || access.RightOf(key) == NoRight) {
			given = key
		}
	}
	return func(id durable.InstanceID) string {
		switch passed := "code=" + url.QueryEscape(given); {
		case access.open() && given == "":
			return ""
		case access.open():
			return passed
		case m.cfg.BehindHost && given != "":
			return passed + "&sig=" + access.Code(id, time.Now())
		}
		return "code=" + access.Code(id, time.Now())
	}
}

// Scale returns the load of the hub. It measures at most once per second.
func (m *API) Scale(ctx context.Context) (*ScalePayload, error) { return m.load.look(ctx) }

// Configuration returns all settings and their sources, with secrets masked.
func (m *API) Configuration() Configuration { return m.cfg.Configuration() }

// Health returns the state of the app. It checks the storage, at most once per [CheckInterval].
func (m *API) Health(ctx context.Context) HealthPayload {
	if reason := m.unready(ctx); reason != "" {
		return HealthPayload{Status: statusUnavailable, Reasons: []string{reason}}
	}
	payload := HealthPayload{Status: statusReady, Undecodable: appAPI{m}.undecodable()}
	blocked, all := appAPI{m}.blocked()
	payload.BlockedPartitions = blocked
	if all {
		payload.Status, payload.Reasons = statusUnavailable, []string{fmt.Sprintf("this app can serve none of its partitions of task hub %q", m.cfg.TaskHub)}
	}
	for _, f := range m.allWaiting() {
		payload.Waiting = append(payload.Waiting, f.String())
		payload.stackOf(f)
	}
	return payload
}

// unready returns the reason why the app cannot serve, or "".
func (m *API) unready(ctx context.Context) string {
	select {
	case <-m.draining:
		return "The app is stopping."
	default:
	}
	if err := m.state.Check(); err != nil {
		return err.Error()
	}
	if m.checkup == nil {
		return ""
	}
	if err := m.checkup.now(ctx); err != nil {
		return fmt.Sprintf("the storage of task hub %q cannot be used: %s", m.cfg.TaskHub, secrets.Line(err))
	}
	return ""
}

// Why returns the reasons why an instance is waiting, including what this app's worker knows. It does
// not replay code that does not yield.
func (m *API) Why(ctx context.Context, id durable.InstanceID) (*durable.Diagnosis, error) {
	client, stalled := m.instances, m.stalled(id)
	if stalled != nil {
		client = m.withoutCode
	}
	w, err := client.Why(ctx, id)
	if err != nil {
		return nil, err
	}
	if stalled != nil && !w.State.Status.IsTerminal() {
		w.Reasons = slices.DeleteFunc(w.Reasons, func(r durable.Reason) bool {
			return r.Kind == durable.ReasonReady || r.Kind == durable.ReasonNotStarted
		})
		r := durable.Reason{Kind: durable.ReasonHeldBack, TaskID: -1, Name: stalled.Name, Since: stalled.Since, Stack: stalled.Stack}
		if r.Detail, _ = held(w.State, m.blockedBy()); stalled.Runs {
			r.Kind, r.Detail = durable.ReasonStalled, notYielding(*stalled)
		}
		w.Reasons = append(w.Reasons, r)
		return w, nil
	}
	if running, works := m.worker.Running(id, w.State.Instance.ExecutionID); works {
		markRunning(w.Reasons, running)
	}
	if reason, by := held(w.State, m.blockedBy()); reason != "" {
		addHeld(w, reason, *by)
	}
	return w, nil
}
