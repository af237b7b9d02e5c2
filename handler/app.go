package handler

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/memlimit"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/labstack/echo/v4"
	"go.opentelemetry.io/otel/metric"
)

// An App is a durable app: its functions, triggers and routes.
type App struct {
	// Registrations are the app's orchestrators, activities, entities and named errors.
	Registrations []*durable.Registration

	// Triggers are the functions that the host starts for other events, such as a timer or a queue
	// message. The host needs a function.json for each; write them with -write-functions.
	Triggers []Trigger

	// Routes adds the app's own HTTP routes to api, the group for the route prefix ("/api" by default).
	// It may be nil. Paths below /durabletask in the group are reserved for the management API. If a
	// route returns an error of package durable, the server answers with the matching status. If a
	// route panics, it answers with status 500.
	Routes func(api *echo.Group, c *durable.Client)

	// Metrics collects the metrics of a standalone app and serves them to Prometheus at /metrics. The metrics
	// then go to no other receiver. The usual value is prometheus.New() of package handler/prometheus. It may
	// be nil. An app behind the Functions host ignores it.
	Metrics MetricsPage

	// Telemetry starts the export of spans, metrics and log records, and returns their receiver. [Main] calls
	// it once. It logs problems of the export to errs, whose records are not exported. The result is valid
	// even if there is an error. The usual value is otlp.Export of package handler/otlp. Nil exports nothing.
	Telemetry func(ctx context.Context, errs *slog.Logger) (Telemetry, error)
}

// A MetricsPage collects metrics and serves their current values over HTTP.
type MetricsPage interface {
	metric.MeterProvider
	http.Handler
}

// Exit codes of [Main]. If the handler exits with a code other than 0, the Functions host restarts it,
// at most twice.
const (
	exitOK       = 0 // stopped on request, all work completed
	exitFailed   = 1 // cannot listen, or shutdown timed out
	exitNoConfig = 2 // the configured port is not valid
	exitUsage    = 2 // the program's arguments are not valid
)

// Main runs app and then exits the process. It never returns. It stops on SIGTERM or SIGINT, or when
// its parent process, the Functions host, dies. A second signal ends the process at once.
//
// If the program's first argument is a command, Main runs the command instead. For example,
// -write-functions writes the function.json of each trigger. The argument --help lists all commands.
func Main(app App) {
	code, done := mainCommand(app)
	if !done {
		code = run(app)
	}
	os.Exit(code)
}

func run(app App) int {
	// If the host is killed, the pipe behind standard output breaks. Without this line, the next write
	// to the log would then raise SIGPIPE and end the process before it releases its partitions.
	// Nothing reads the channel.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	cfg, err := Load()
	if err != nil {
		fmt.Fprintln(os.Stderr, secrets.Line(err))
		return exitNoConfig
	}
	cfg.Worker.CrashFile = cfg.crashFile()
	cfg.Logger = newProcessLogger(&cfg, os.Stdout, os.Stderr)
	defer startTelemetry(ctx, &cfg, app.Telemetry)()
	cfg.Logger = slog.New(&activityHandler{Handler: cfg.Logger.Handler(), taskHub: cfg.Storage.TaskHub})
	slog.SetDefault(cfg.Logger)
	limitMemory(cfg.Logger, os.Getenv("GOMEMLIMIT"), os.DirFS("/"))
	if err := New(app, cfg).Run(ctx); err != nil {
		cfg.Logger.Error("stopped", "error", secrets.Line(err))
		return exitFailed
	}
	cfg.Logger.Info("stopped")
	return exitOK
}

// limitMemory sets the Go runtime's memory limit below the container's limit. It does nothing if
// variable, the value of the environment variable GOMEMLIMIT, is not empty.
func limitMemory(log *slog.Logger, variable string, root fs.FS) {
	if variable != "" {
		return
	}
	if limit := memlimit.ForGo(root); limit > 0 {
		debug.SetMemoryLimit(limit)
		log.Info("the memory limit of Go is 90 % of the container's limit; GOMEMLIMIT overrides it", "bytes", limit)
	}
}
