package provider_test

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestEntityDue_ReadsTheTimeInTheNameOfASignal(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, target, want string }{
		{"op@2026-11-21T12:00:00.0000000Z", "@counter@a", "2026-11-21T12:00:00Z"},
		{"op@2026-11-21T12:00:00.0000000", "@counter@a", "2026-11-21T12:00:00Z"},
		{"op@2026-11-21T12:00:00", "@counter@a", "2026-11-21T12:00:00Z"},
		{"op@2026-11-21T14:00:00+02:00", "@counter@a", "2026-11-21T12:00:00Z"},
		{"op", "@counter@a", ""},
		{"op@2026-11-21T12:00:00.0000000Z", "an orchestration", ""},
		{"op@soon", "@counter@a", ""},
	} {
		m := provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: tt.target}, Event: &history.EventRaised{Name: tt.name},
		}
		due, ok := provider.EntityDueTime(m)
		got := ""
		if ok {
			got = due.UTC().Format(time.RFC3339)
		}
		if got != tt.want || !provider.DueTime(m).Equal(due) {
			t.Errorf("%s for %s is due %q, want %q", tt.name, tt.target, got, tt.want)
		}
	}
}
