package handler

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// An effectiveSetting is what a setting is, and why.
type effectiveSetting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// effective returns what all settings of rows that have an effect are. Sources says where
// those come from that are not defaults; nil means from the program. Secrets are masked.
func effective[C any](rows []settingRowOf[C], cfg *C, sources map[string]string) []effectiveSetting {
	var out []effectiveSetting
	for i := range rows {
		row := &rows[i]
		if row.inert != "" || row.get == nil {
			continue
		}
		source := "default"
		switch given, ok := sources[row.fullPath()]; {
		case sources == nil:
			source = "the program"
		case ok:
			source = given
		}
		out = append(out, effectiveSetting{row.fullPath(), shown(row.get(cfg)), source})
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
