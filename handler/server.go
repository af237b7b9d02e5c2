package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/console"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/triggers"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// Timeouts of the HTTP server.
const (
	readHeaderTimeout = 30 * time.Second
	// idleTimeout is longer than the host keeps idle connections, so the host closes them first. If the
	// server closed a connection, it could lose a request that the host has just sent.
	idleTimeout = 10 * time.Minute
	// listenRetryTime is the time during which the server retries a port that is in use, behind the
	// host. The host gives a restarted handler the port of its predecessor.
	listenRetryTime = 5 * time.Second
	listenInterval  = 100 * time.Millisecond
)

// A Server serves an app over HTTP and runs its task hub. Create one with [New].
type Server struct {
	cfg      Config
	logger   *slog.Logger
	echo     *echo.Echo
	invoker  invoker
	triggers []Trigger
	state    *taskhub.Readiness
	front    *web.Front
	hub      *taskhub.Hub  // nil if the configuration is not valid
	draining chan struct{} // closed when Run starts to stop

	api     *management.API
	console *console.Console
	notify  func(context.Context) // publishes to Event Grid until its context ends
}

var _ http.Handler = (*Server)(nil)

// New returns a Server for app. It does no I/O and always succeeds: if app or cfg is not valid, the
// Server answers every request with status 503 and the reason.
func New(app App, cfg Config) *Server {
	cfg = cfg.WithDefaults().withMetrics(app.Metrics).withoutSecrets()
	cfg.Worker.Logger = cfg.hubLog(cfg.Worker.Logger)
	exposure := cfg.checkExposure()
	if exposure != nil {
		cfg.metrics = nil // other machines must not read them
	}
	s := &Server{cfg: cfg, logger: cfg.Logger, triggers: app.Triggers, state: taskhub.NewReadiness(), draining: make(chan struct{})}
	s.front = web.New(web.Config{
		Address: cfg.Address, BehindHost: cfg.BehindHost, RoutePrefix: cfg.RoutePrefix, SiteHostname: cfg.SiteHostname,
		UseForwardedHost: cfg.UseForwardedHost, LocalOnly: cfg.isLocalOnly(), MaxBody: cfg.MaxRequestBody, MaxBodies: cfg.MaxRequestBodies,
	})
	s.api = management.New(management.Config{
		TaskHub: cfg.Storage.TaskHub, Connection: cfg.ConnectionName, Access: management.Access{Key: cfg.Key, ReadKey: cfg.ReadKey}, BehindHost: cfg.BehindHost,
		AppLease: !cfg.Storage.AppLease.Disabled, Metrics: cfg.metrics, Configuration: func() management.Configuration { return s.cfg.report() },
	}, s.front, s.state, s.draining, s.logger)
	s.console = console.New(console.Config{TaskHub: cfg.Storage.TaskHub, API: s.api, TraceURL: cfg.TraceURL}, s.front, s.state, s.draining, s.logger)
	s.echo = s.newEcho()
	s.invoker = invoker{cfg: &s.cfg, logger: s.logger, echo: s.echo}
	s.cfg.Problem = errors.Join(s.cfg.Problem, exposure)
	api := s.echo.Group(web.GroupPath(s.cfg.RoutePrefix))
	s.api.AddTo(s.echo)
	if cfg.servesConsole() {
		s.console.AddTo(s.echo)
	}
	if s.cfg.Problem == nil {
		s.cfg.Problem = s.open(app, api)
	}
	s.cfg = s.cfg.withoutSecrets()
	if s.cfg.Problem != nil {
		s.state.SetUnavailable(configReason(s.cfg.Problem))
	}
	return s
}

// open creates the hub's client and worker and adds the routes that use them. It returns a panic of the
// app's code as an error, and also a panic about duplicate function names. If the process crashed
// instead, the host would restart it a few times and then shut down.
func (s *Server) open(app App, api *echo.Group) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the app cannot be created: %v", p)
		}
	}()
	registry := durable.NewRegistry(app.Registrations...)
	store, err := s.openProvider()
	if err != nil {
		return err
	}
	hubClient := taskhub.Client{Hub: store, Log: s.cfg.hubLog(s.logger), Unreadable: &s.api.Unreadable}
	code := registry // that the client explains instances with
	if len(app.Registrations) == 0 {
		code = nil // a client without a registry uses the history alone
	}
	client := durable.NewClient(hubClient, code, s.cfg.Overridable, s.cfg.Worker.Version, s.cfg.Worker.Tracing)
	if app.Routes != nil {
		app.Routes(api, client)
	}
	if err := s.invoker.add(app.Triggers, client); err != nil {
		return err
	}
	s.notify = startNotifications(&s.cfg)
	if s.cfg.servesConsole() {
		s.countForConsole()
	}
	worker := durable.NewWorker(store, registry, withIdentity(s.cfg.Worker, s.logger))
	hub := management.Hub{Client: client, Registry: registry, Hub: hubClient, Worker: worker, Scaling: s.cfg.scaling}
	s.api.Open(hub)
	s.console.Open(hub)
	s.hub = &taskhub.Hub{
		Name:           s.cfg.Storage.TaskHub,
		Client:         hubClient,
		Worker:         worker,
		State:          s.state,
		Logger:         s.logger,
		Notice:         s.cfg.storageNotice(),
		IsPartitionLog: s.cfg.StorageType == PartitionLog,
	}
	s.hub.File, _ = store.(*taskhub.File)
	if s.cfg.Provider == nil {
		s.hub.Closer, _ = store.(io.Closer)
	}
	return nil
}

// countForConsole makes the console count the orchestrations that the worker runs.
func (s *Server) countForConsole() {
	others := s.cfg.Worker.Lifecycle
	s.cfg.Worker.Lifecycle = func(e durable.LifecycleEvent) {
		s.console.Count(e)
		if others != nil {
			others(e)
		}
	}
}

// newEcho returns an Echo instance with all middleware and no routes.
func (s *Server) newEcho() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.Logger.SetOutput(io.Discard)
	e.HTTPErrorHandler = web.AnswerErrors(s.logger)
	e.Pre(web.RecoverPanics(s.logger), web.Unlimited, s.front.CanonicalPath)
	e.Use(web.Identify, joinTrace, s.front.RefusePages, s.api.Gate, s.front.LimitBody, s.api.LinksFor)
	e.RouteNotFound("/*", s.invoker.notFound)
	return e
}

// configReason formats a configuration problem for callers and the log.
func configReason(problem error) string {
	return "The app's configuration is wrong: " + strings.ReplaceAll(problem.Error(), "\n", "; ") +
		". Correct it and restart the app."
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.echo.ServeHTTP(w, r) }

// Run serves until ctx ends or, behind the Functions host, until the parent process dies. Then it stops
// accepting requests, waits for running requests and functions, releases the hub's partitions, and
// returns nil. It returns an error if it cannot listen, if the worker or the close of the hub fails, or
// if the shutdown exceeds [Config.ShutdownTimeout].
func (s *Server) Run(ctx context.Context) error {
	listener, err := s.listen(ctx)
	if err != nil {
		return err
	}
	return s.serve(ctx, listener)
}

// contactAddress returns an address at which other processes on this machine reach a listener.
func contactAddress(listens net.Addr) string {
	if tcp, ok := listens.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port))
	}
	return listens.String()
}

// serve serves on listener until asked ends.
func (s *Server) serve(asked context.Context, listener net.Listener) error {
	parent := os.Getppid() // read before the server is visible, so that a later change means that the parent died
	ctx, stop := context.WithCancelCause(asked)
	defer stop(nil)
	requests, cutRequests := context.WithCancel(context.WithoutCancel(ctx))
	defer cutRequests()
	server := &http.Server{
		Handler:           s,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    web.MaxHeader,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return requests },
	}
	s.logStart(listener.Addr().String())
	s.hub.SetContact("http://" + contactAddress(listener.Addr()) + web.GroupPath(s.cfg.RoutePrefix) + web.ManagementPath)

	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			stop(fmt.Errorf("serve %s: %w", listener.Addr(), err))
		}
	})
	var hubErr error
	running.Go(func() { hubErr = s.work(ctx) })
	if s.cfg.BehindHost && parent > 1 {
		running.Go(func() {
			if err := watchParent(ctx, parentInterval, parent, os.Getppid); err != nil {
				stop(err)
			}
		})
	}

	<-ctx.Done()
	cause := context.Cause(ctx)
	limit := s.cfg.ShutdownTimeout
	if errors.Is(cause, errParentDied) {
		limit /= 2
	}
	s.logger.Info("stopping", "reason", cause.Error(), "within", limit.String())
	close(s.draining)
	finished := make(chan struct{})
	var closeErr error
	// This goroutine outlives serve if the shutdown times out. The process then exits.
	go func() {
		defer close(finished)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit/2)
		defer cancel()
		if err := server.Shutdown(patience); err != nil {
			cutRequests()
			_ = server.Close() // its only error is that Shutdown has closed the listener already
		}
		running.Wait()
		closeErr = s.hub.Close()
	}()
	select {
	case <-finished:
	case <-time.After(limit):
		return fmt.Errorf("shutdown timed out after %v: work is still running; its messages and leases will expire", limit)
	}
	if asked.Err() == nil && !errors.Is(cause, errParentDied) {
		return cause
	}
	return errors.Join(hubErr, closeErr)
}

// work runs the hub. If the configuration is not valid, it logs the reason regularly instead.
func (s *Server) work(ctx context.Context) error {
	if s.hub != nil {
		telling, stop := context.WithCancel(context.WithoutCancel(ctx))
		var notifications sync.WaitGroup
		notifications.Go(func() { s.notify(telling) })
		err := s.hub.Run(ctx)
		stop() // after the last status changes are published
		notifications.Wait()
		return err
	}
	(&taskhub.Hub{Name: s.cfg.Storage.TaskHub, State: s.state, Logger: s.logger}).ReportUnavailableUntil(ctx, configReason(s.cfg.Problem))
	return nil
}

// listen opens the port. Behind the host it retries a port that is in use for up to listenRetryTime.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	var listening net.ListenConfig
	for began := time.Now(); ; {
		listener, err := listening.Listen(ctx, "tcp", s.cfg.Address)
		if err == nil {
			return listener, nil
		}
		if !s.cfg.BehindHost {
			return nil, fmt.Errorf("%w: %s", err, listenAdvice(err, s.cfg.Address))
		}
		if time.Since(began) > listenRetryTime || !taskhub.Pause(ctx, listenInterval) {
			return nil, err
		}
	}
}

// listenAdvice returns what to do about err, an error of listening on address.
func listenAdvice(err error, address string) string {
	if errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EACCES) {
		return "set PORT to a port that is free"
	}
	return fmt.Sprintf("set DURABLE_ADDRESS to an address of this machine, such as 127.0.0.1 or 0.0.0.0; %s is not one", address)
}

// logStart logs the address, the configuration and its notices.
func (s *Server) logStart(address string) {
	s.logger.Info("listening", "address", "http://"+address, "mode", s.cfg.mode(), "routePrefix", s.cfg.RoutePrefix,
		"appRoot", s.cfg.Root, "taskHub", s.cfg.Storage.TaskHub, "connection", s.cfg.ConnectionName)
	s.logConfiguration()
	for _, notice := range s.cfg.Notices {
		s.logger.Warn(notice)
	}
	if missing := s.triggersWithoutFunctionJSON(); len(missing) > 0 {
		s.logger.Warn("The host never calls these functions, because they have no function.json below "+s.cfg.Root+
			". To write the files, run this program with the arguments -write-functions "+s.cfg.Root+", then start the host again.", "functions", missing)
	}
}

// triggersWithoutFunctionJSON returns the names of the triggers that have no function.json.
func (s *Server) triggersWithoutFunctionJSON() (missing []string) {
	if !s.cfg.BehindHost {
		return nil
	}
	for _, t := range s.triggers {
		if _, err := os.Stat(filepath.Join(s.cfg.Root, t.Name(), triggers.FileName)); errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, t.Name())
		}
	}
	return missing
}

// logConfiguration logs all settings that differ from their defaults in one record. At the debug level
// it logs every setting with its source.
func (s *Server) logConfiguration() {
	attrs := []slog.Attr{slog.String("event", "ExtensionConfiguration")}
	defaults := Config{Root: s.cfg.Root, RoutePrefix: DefaultRoutePrefix}.effective()
	for i, e := range s.cfg.effective() {
		if e.Value != defaults[i].Value {
			attrs = append(attrs, slog.Any(e.Name, e.Value))
		}
		s.logger.Debug("setting", "name", e.Name, "value", e.Value, "source", e.Source)
	}
	s.logger.LogAttrs(context.Background(), slog.LevelInfo, "effective configuration, where it differs from the defaults", attrs...)
}

// openProvider opens the store of the hub. It does no I/O.
func (s *Server) openProvider() (provider.Provider, error) {
	switch {
	case s.cfg.Provider != nil:
		return s.cfg.Provider, nil
	case s.cfg.StorageType == Embedded:
		cfg := s.cfg.embeddedConfig()
		cfg.Logger = s.cfg.hubLog(cfg.Logger)
		return taskhub.NewFile(s.cfg.hubFile(), cfg), nil
	case s.cfg.StorageType == PartitionLog:
		cfg := s.cfg.partitionLogConfig()
		cfg.Build = cmp.Or(cfg.Build, programVersion(debug.ReadBuildInfo()))
		return partitionlog.Open(s.cfg.Connection, cfg)
	}
	return azurestorage.Open(s.cfg.Connection, s.cfg.Storage)
}

// parentInterval is the time between two checks of the parent process.
const parentInterval = 500 * time.Millisecond

// errParentDied is the reason for a stop after the Functions host has died.
var errParentDied = errors.New("the parent process, the Functions host, has died")

// watchParent returns errParentDied once parent returns a process ID other than first, or nil when ctx
// ends.
//
// The Functions host kills its handlers when it stops. If the host itself is killed on Linux or macOS,
// its handlers survive, keep their port and continue to work on the task hub. On Windows they belong to
// a job object and end with the host (azure-functions-host:
// Workers/ProcessManagement/EmptyProcessRegistry.cs, JobObjectRegistry.cs).
//
// PR_SET_PDEATHSIG of Linux is no alternative. It sends the signal when the thread ends that started
// the process, and the host starts processes on short-lived threads of a pool.
//
// watchParent cannot detect anything if process 1 is the parent from the start. Process 1 is then the
// host of a container, which ends with it, or the real parent has died already.
func watchParent(ctx context.Context, every time.Duration, first int, parent func() int) error {
	for taskhub.Pause(ctx, every) {
		if parent() != first {
			return errParentDied
		}
	}
	return nil
}
