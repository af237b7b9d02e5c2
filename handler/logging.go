package handler

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"go.opentelemetry.io/otel/trace"
)

// NewLogger returns a logger that writes text to w, one line per record, for records of level or above.
// It masks keys, signatures and passwords.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return secrets.Logger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
}

// NewJSONLogger is like [NewLogger], but writes one JSON object per line. Each has the keys time, level
// and msg and the attributes of the record. The key event holds the name of the corresponding .NET
// event, if there is one.
func NewJSONLogger(w io.Writer, level slog.Level) *slog.Logger {
	return secrets.Logger(slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
}

// newProcessLogger returns the logger of a program. It writes to out. Behind the host it writes
// warnings and errors to errs instead. The host logs standard output as information, and standard error
// as errors. It logs a line of standard error as a warning if it contains "warn", as in level=WARN. See
// [errorLines].
func newProcessLogger(cfg *Config, out, errs io.Writer) *slog.Logger {
	newLogger, escape := NewLogger, escapeWarnText
	if cfg.LogJSON {
		newLogger, escape = NewJSONLogger, escapeWarnJSON
	}
	logger := newLogger(out, cfg.LogLevel)
	if !cfg.BehindHost {
		return logger
	}
	return slog.New(&splitHandler{logger.Handler(), newLogger(errs, cfg.LogLevel).Handler(), newLogger(errorLines{errs, escape}, cfg.LogLevel).Handler()})
}

// A splitHandler passes records to the handler of their level.
type splitHandler struct{ info, warn, err slog.Handler }

func (h *splitHandler) of(level slog.Level) slog.Handler {
	switch {
	case level >= slog.LevelError:
		return h.err
	case level >= slog.LevelWarn:
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
	return &splitHandler{h.info.WithAttrs(attrs), h.warn.WithAttrs(attrs), h.err.WithAttrs(attrs)}
}

// WithGroup implements [slog.Handler].
func (h *splitHandler) WithGroup(name string) slog.Handler {
	return &splitHandler{h.info.WithGroup(name), h.warn.WithGroup(name), h.err.WithGroup(name)}
}

// An activityHandler adds the hub, the instance, the name and the trace of the running activity to records
// with an activity's context. It does not change records about another instance, and does not repeat a key
// of the record.
type activityHandler struct {
	slog.Handler
	taskHub string
	keys    []string // of the logger's attributes
	inGroup bool     // attributes of records are in a group
}

// instanceKey is the key of the instance ID in log records.
const instanceKey = "instanceId"

// Handle implements [slog.Handler].
func (h *activityHandler) Handle(ctx context.Context, r slog.Record) error {
	info, ok := durable.ActivityInfoFrom(ctx)
	if !ok || h.inGroup {
		return h.Handler.Handle(ctx, r)
	}
	keys := slices.Clip(h.keys)
	r.Attrs(func(a slog.Attr) bool {
		keys = append(keys, a.Key)
		return true
	})
	if slices.Contains(keys, instanceKey) {
		return h.Handler.Handle(ctx, r)
	}
	fields := []slog.Attr{
		slog.String("taskHub", h.taskHub), slog.String(instanceKey, string(info.InstanceID)), slog.String("name", info.Name), slog.Int("taskEventId", info.TaskID),
	}
	if c := trace.SpanContextFromContext(ctx); c.IsValid() {
		fields = append(fields, slog.String("traceId", c.TraceID().String()))
	}
	r = r.Clone()
	for _, a := range fields {
		if !slices.Contains(keys, a.Key) {
			r.AddAttrs(a)
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (h *activityHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	keys := slices.Clip(h.keys)
	for _, a := range attrs {
		keys = append(keys, a.Key)
	}
	return &activityHandler{h.Handler.WithAttrs(attrs), h.taskHub, keys, h.inGroup}
}

// WithGroup implements [slog.Handler].
func (h *activityHandler) WithGroup(name string) slog.Handler {
	return &activityHandler{h.Handler.WithGroup(name), h.taskHub, h.keys, true}
}

// A levelHandler discards records below least.
type levelHandler struct {
	to    slog.Handler
	least slog.Level
}

// Enabled implements [slog.Handler].
func (h *levelHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.least && h.to.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h *levelHandler) Handle(ctx context.Context, r slog.Record) error { return h.to.Handle(ctx, r) }

// WithAttrs implements [slog.Handler].
func (h *levelHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &levelHandler{h.to.WithAttrs(attrs), h.least}
}

// WithGroup implements [slog.Handler].
func (h *levelHandler) WithGroup(name string) slog.Handler {
	return &levelHandler{h.to.WithGroup(name), h.least}
}

// parseLogFormat parses DURABLE_LOG_FORMAT: text (the default) or json.
func parseLogFormat(name string) (asJSON bool, err error) {
	switch strings.ToLower(name) {
	case "", "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, fmt.Errorf("environment variable DURABLE_LOG_FORMAT is %q; want text or json", name)
}

// parseLogLevel parses DURABLE_LOG_LEVEL: a level name of slog or .NET, in any case. The default is
// information.
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
