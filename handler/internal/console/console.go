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
	API      *management.API // whose keys are the console's, too
	TraceURL string          // of a trace, with {traceId} and {spanId}; "" if there is none
}

// A Console serves the console of a hub. Make one with [New].
type Console struct {
	cfg      Config
	front    *web.Front
	state    *taskhub.Readiness
	draining <-chan struct{}
	logger   *slog.Logger
	sessions sessions
	ended    endedSessions
	base     string // path of the console, without a slash at the end
	hub      management.Hub
	reading  chan struct{} // holds one for each history that is in memory
	began    time.Time
	rates    rates
	usage    usageLog
}

// New returns a Console without a hub, which says only why there is none. Draining is closed
// when the server starts to shut down.
func New(cfg Config, f *web.Front, state *taskhub.Readiness, draining <-chan struct{}, logger *slog.Logger) *Console {
	unguessed := make([]byte, 32)
	_, _ = rand.Read(unguessed) // it never fails
	return &Console{
		cfg: cfg, front: f, state: state, draining: draining, logger: logger, sessions: sessions{cfg.API.Access, unguessed},
		base: f.ManagementBases()[0] + web.ConsolePath, began: time.Now(),
		reading: make(chan struct{}, histories),
	}
}

// Open sets the console's hub.
func (c *Console) Open(h management.Hub) { c.hub = h }

// Count counts an orchestration that began or ended in this process, for the overview.
func (c *Console) Count(e durable.LifecycleEvent) { c.rates.add(e.Status, time.Now()) }

// Path returns the path of the console.
func (c *Console) Path() string { return c.base }

// AddTo adds the console to a server.
func (c *Console) AddTo(e *echo.Echo) {
	e.Any(c.base, c.handle)
	e.Any(c.base+"/*", c.handle)
}

// A route is a page, a part of one, or what a form is sent to.
type route struct {
	method string
	path   string // below the console; "" is the overview
	serve  func(v *visit) error

	forAll bool          // needs no session
	always bool          // needs no hub
	live   time.Duration // of a part: how often it is looked at while it is sent as events; 0: it is not
}

// allRoutes are the routes of the files in this package.
var allRoutes = slices.Concat(loginRoutes, staticRoutes, overviewRoutes, instancesRoutes, instanceRoutes, entitiesRoutes, hubRoutes)

// find returns the route of a request, nil if there is none.
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

// policy lets a page load nothing but the console's own files, and nobody frame it.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// handle answers one request.
func (c *Console) handle(e echo.Context) error {
	h := e.Response().Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer a form has no origin
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

// errNoPage says that there is nothing at a path.
var errNoPage = web.AnswerWith(http.StatusNotFound, web.ErrorBody{Message: "There is no such page."})

var errSignedOut = web.AnswerWith(http.StatusUnauthorized, web.ErrorBody{Message: "You are not signed in any more. Load the page again."})
