package handler

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// An effectiveSetting is what a setting is, and why.
type effectiveSetting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// effective returns what all settings that have an effect are. Secrets are
// masked.
func (c Config) effective() []effectiveSetting {
	c = c.WithDefaults()
	c.Worker, c.Storage = c.Worker.WithDefaults(), c.Storage.WithDefaults()
	var out []effectiveSetting
	for _, row := range settingRows() {
		if row.inert != "" || row.get == nil {
			continue
		}
		source := "default"
		switch given, ok := c.sources[row.fullPath()]; {
		case c.sources == nil:
			source = "the program"
		case ok:
			source = given
		}
		out = append(out, effectiveSetting{row.fullPath(), shown(row.get(&c)), source})
	}
	return out
}

// shown returns a value as host.json would have it, without secrets.
func shown(value any) any {
	switch v := value.(type) {
	case time.Duration:
		return shortTimeSpan(v)
	case fmt.Stringer:
		return secrets.Mask(v.String())
	case string:
		return secrets.Mask(v)
	}
	return value
}

// logConfiguration logs what all settings are, in one record, and where each
// comes from in records of their own at the debug level.
func (s *Server) logConfiguration() {
	effective := s.cfg.effective()
	attrs := []slog.Attr{slog.String("event", "ExtensionConfiguration")}
	for _, e := range effective {
		attrs = append(attrs, slog.Any(e.Name, e.Value))
	}
	s.logger.LogAttrs(context.Background(), slog.LevelInfo, "effective configuration", attrs...)
	for _, e := range effective {
		s.logger.Debug("setting", "name", e.Name, "value", e.Value, "source", e.Source)
	}
}
