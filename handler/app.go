package handler

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/memlimit"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/labstack/echo/v4"
)

// An App is a program's functions, triggers and routes.
type App struct {
	// Functions are the app's orchestrators and activities.
	Functions []*durable.Function

	// Triggers are functions that a clock, a message, a blob or the like starts. Each
	// needs a function.json, which -write-functions writes.
	Triggers []Trigger

	// Routes adds the app's own HTTP routes to api, the group of the route
	// prefix, "/api" by default. It may be nil. The routes below /durabletask
	// there are the management API's. A route may return an error of package
	// durable; it gets the status that fits. A panic in one is answered with
	// status 500.
	Routes func(api *echo.Group, c *durable.Client)
}

// Exit codes of [Main]. The Functions host restarts a handler that exits with
// anything but 0, at most twice.
const (
	exitOK       = 0 // stopped as asked, with nothing left running
	exitFailed   = 1 // could not serve, or did not get everything to an end in time
	exitNoConfig = 2 // the port to listen on is invalid
	exitUsage    = 2 // the program's arguments are invalid
)

// Main runs app until SIGTERM or SIGINT, or until its parent, the Functions host, dies, and
// then exits. A second signal ends the process at once. It never returns.
//
// The program's arguments may be a command instead: -write-functions writes the
// function.json of each trigger, -init a new app; --help lists them.
func Main(app App) {
	code, done := mainCommand(app)
	if !done {
		code = run(app)
	}
	os.Exit(code)
}

func run(app App) int {
	// When the host is killed, the pipe behind standard output breaks. Without
	// this the next line of the log would end the process before it has released
	// its partitions. The channel is never read.
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
	slog.SetDefault(cfg.Logger)
	limitMemory(cfg.Logger, os.Getenv("GOMEMLIMIT"), os.DirFS("/"))
	defer startTelemetry(ctx, &cfg)()
	if err := New(app, cfg).Run(ctx); err != nil {
		cfg.Logger.Error("stopped", "error", secrets.Line(err))
		return exitFailed
	}
	cfg.Logger.Info("stopped")
	return exitOK
}

// limitMemory sets the memory limit of the Go runtime below the container's limit, unless the
// variable GOMEMLIMIT has set it.
func limitMemory(log *slog.Logger, variable string, root fs.FS) {
	if variable != "" {
		return
	}
	if limit := memlimit.ForGo(root); limit > 0 {
		debug.SetMemoryLimit(limit)
		log.Info("the memory limit of Go is 90 % of the container's limit; GOMEMLIMIT overrides it", "bytes", limit)
	}
}
