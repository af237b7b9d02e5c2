package console

import (
	"crypto/rand"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// A Config configures a console.
type Config struct {
	TaskHub  string
	API      *management.API // its keys also apply to the console
	TraceURL string          // URL of a trace, with {traceId} and {spanId}; "" for none
}

// A Console serves the web console of a task hub. Create one with [New].
type Console struct {
	cfg      Config
	front    *web.Front
	state    *taskhub.Readiness
	draining <-chan struct{}
	logger   *slog.Logger
	sessions sessions
	ended    endedSessions
	base     string // path of the console, without a trailing slash
	hub      management.Hub
	reading  chan struct{} // one element for each history in memory
	began    time.Time
	rates    rates
	usage    usageLog
}

// New returns a Console without a hub. Until [Console.Open] is called, its pages show only why the hub
// is unavailable. draining is closed when the server starts to shut down.
func New(cfg Config, f *web.Front, state *taskhub.Readiness, draining <-chan struct{}, logger *slog.Logger) *Console {
	formKey := make([]byte, 32)
	_, _ = rand.Read(formKey) // always succeeds
	return &Console{
		cfg: cfg, front: f, state: state, draining: draining, logger: logger, sessions: sessions{cfg.API.Access, formKey},
		base: f.ManagementBases()[0] + web.ConsolePath, began: time.Now(),
		reading: make(chan struct{}, maxHistories),
	}
}

// Open sets the hub of the console.
func (c *Console) Open(h management.Hub) { c.hub = h }

// Count counts an orchestration that started or ended in this process, for the overview.
func (c *Console) Count(e durable.LifecycleEvent) { c.rates.add(e.Status, time.Now()) }

// Path returns the path of the console.
func (c *Console) Path() string { return c.base }

// AddTo adds the console to e.
func (c *Console) AddTo(e *echo.Echo) {
	e.Any(c.base, c.handle)
	e.Any(c.base+"/*", c.handle)
}

// A route is a page, a part of a page, or the target of a form.
type route struct {
	method string
	path   string // relative to the console; "" is the overview
	serve  func(v *visit) error

	forAll bool          // needs no session
	always bool          // needs no hub
	live   time.Duration // of a part that is sent as events: the interval between two checks; otherwise 0
}

// allRoutes lists the routes of all files in this package.
var allRoutes = slices.Concat(loginRoutes, staticRoutes, overviewRoutes, instancesRoutes, instanceRoutes, entitiesRoutes, hubRoutes)

// find returns the route of a request, or nil.
func (c *Console) find(r *http.Request) *route {
	path := strings.Trim(r.URL.Path[len(c.base):], "/")
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	i := slices.IndexFunc(allRoutes, func(r route) bool { return r.method == method && r.path == path })
	if i < 0 {
		return nil
	}
	return &allRoutes[i]
}

// policy allows pages to load only the console's own files, and forbids other sites to frame them.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// handle answers one request.
func (c *Console) handle(e echo.Context) error {
	h := e.Response().Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, forms would send no origin
	h.Set("Cache-Control", "no-store")
	r := c.find(e.Request())
	v := &visit{Context: e, console: c, hub: c.hub}
	v.signIn()
	if r != nil && r.live > 0 && v.wantsEvents() {
		return v.stream(r)
	}
	web.LimitAnswer(e)
	if err := v.answer(r); err != nil {
		return v.fail(err)
	}
	return nil
}

// errNoPage is the answer for an unknown path.
var errNoPage = web.AnswerWith(http.StatusNotFound, web.ErrorBody{Message: "There is no such page."})

var errSignedOut = web.AnswerWith(http.StatusUnauthorized, web.ErrorBody{Message: "Your session has ended. Load the page again."})
