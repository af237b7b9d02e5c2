package settings

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
)

// An EffectiveSetting is the value of a setting and its source.
type EffectiveSetting struct {
	Name   string `json:"name"`
	Value  any    `json:"value"`
	Source string `json:"source"`
}

// Effective returns the settings that have an effect. Sources says where those come from
// that are not defaults; nil means that the program set them all. Secrets are masked.
func Effective[C any](rows []Row[C], cfg *C, sources map[string]string) []EffectiveSetting {
	var out []EffectiveSetting
	for i := range rows {
		row := &rows[i]
		if row.Inert != "" || row.Get == nil {
			continue
		}
		source := "default"
		switch given, ok := sources[row.FullPath()]; {
		case sources == nil:
			source = "the program"
		case ok:
			source = given
		}
		out = append(out, EffectiveSetting{row.FullPath(), shown(row.Get(cfg)), source})
	}
	return out
}

// shown returns a value as it stands in host.json, with secrets masked.
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
