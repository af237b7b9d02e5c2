package handler

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// NewLogger returns a logger that writes to w one line of text a record, those
// of level and above. Give it standard output: the Functions host takes every
// line on standard error for an error
// (azure-functions-host: Workers/ProcessManagement/WorkerProcess.cs). Keys, signatures
// and passwords are masked.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return secrets.Logger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level})))
}

// NewJSONLogger is NewLogger for JSON: an object a line, with the keys time, level
// and msg, event in records for which .NET has an event, and those of the record.
func NewJSONLogger(w io.Writer, level slog.Level) *slog.Logger {
	return secrets.Logger(slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})))
}

// parseLogFormat reads DURABLE_LOG_FORMAT: text, which empty means, or json.
func parseLogFormat(name string) (asJSON bool, err error) {
	switch strings.ToLower(name) {
	case "", "text":
		return false, nil
	case "json":
		return true, nil
	}
	return false, fmt.Errorf("environment variable DURABLE_LOG_FORMAT is %q, must be text or json", name)
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
	return slog.LevelInfo, fmt.Errorf("environment variable DURABLE_LOG_LEVEL is %q, must be debug, info, warn or error", name)
}
