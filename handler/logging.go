package handler

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// NewLogger returns a logger that writes to w one line of text a record, those
// of level and above. Keys, signatures and passwords are masked.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return secrets.Logger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
}

// NewJSONLogger is NewLogger for JSON: an object a line, with the keys time, level
// and msg, event in records for which .NET has an event, and those of the record.
func NewJSONLogger(w io.Writer, level slog.Level) *slog.Logger {
	return secrets.Logger(slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
}

// newProcessLogger returns the logger of a program: on out, and behind the host
// on errs from warnings on. The host logs a line of standard output as
// information, one of standard error as an error, and as a warning if "warn" is
// in it, as in level=WARN
// (azure-functions-host: Workers/ProcessManagement/WorkerProcess.cs).
func newProcessLogger(cfg *Config, out, errs io.Writer) *slog.Logger {
	newLogger := NewLogger
	if cfg.LogJSON {
		newLogger = NewJSONLogger
	}
	logger := newLogger(out, cfg.LogLevel)
	if !cfg.BehindHost {
		return logger
	}
	return slog.New(&splitHandler{logger.Handler(), newLogger(errs, cfg.LogLevel).Handler()})
}

// A splitHandler gives warnings and errors to another handler than the rest.
type splitHandler struct{ info, warn slog.Handler }

func (h *splitHandler) of(level slog.Level) slog.Handler {
	if level >= slog.LevelWarn {
		return h.warn
	}
	return h.info
}

// Enabled implements [slog.Handler].
func (h *splitHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.of(level).Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *splitHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.of(r.Level).Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *splitHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &splitHandler{h.info.WithAttrs(attrs), h.warn.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h *splitHandler) WithGroup(name string) slog.Handler {
	return &splitHandler{h.info.WithGroup(name), h.warn.WithGroup(name)}
}

// parseLogFormat reads DURABLE_LOG_FORMAT: text, which empty means, or json.
func parseLogFormat(name string) (asJSON bool, err error) {
	switch strings.ToLower(name) {
	case "", "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, fmt.Errorf("environment variable DURABLE_LOG_FORMAT is %q; want text or json", name)
}

// parseLogLevel reads DURABLE_LOG_LEVEL: one of slog's names or .NET's, in any
// case. Empty means information.
func parseLogLevel(name string) (slog.Level, error) {
	switch strings.ToLower(name) {
	case "", "info", "information":
		return slog.LevelInfo, nil
	case "debug", "trace":
		return slog.LevelDebug, nil
	case "warn", "warning":
		return slog.LevelWarn, nil
	case "error", "critical":
		return slog.LevelError, nil
	}
	return slog.LevelInfo, fmt.Errorf("environment variable DURABLE_LOG_LEVEL is %q; want debug, info, warn or error", name)
}
