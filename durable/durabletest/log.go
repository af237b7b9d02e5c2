package durabletest

import (
	"log/slog"
	"strings"
)

// newLogger returns a logger that writes to the test's log. The attribute elapsed, the hub's time since
// its creation, replaces the time.
func newLogger(h *Hub) *slog.Logger {
	return slog.New(slog.NewTextHandler(testLog{h.t}, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Duration("elapsed", h.Elapsed())
			}
			return a
		},
	}))
}

// testLog writes each line to a test's log.
type testLog struct{ t TB }

func (l testLog) Write(line []byte) (int, error) {
	l.t.Helper()
	l.t.Logf("%s", strings.TrimSuffix(string(line), "\n"))
	return len(line), nil
}
