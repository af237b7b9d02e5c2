package inuse_test

import (
	"context"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/inuse"
	"github.com/google/go-cmp/cmp"
)

func TestWatch_CollectsTheCountsOfItsContext(t *testing.T) {
	var w inuse.Watch
	slots := 2
	inuse.Register(context.Background(), func() inuse.Counts { return inuse.Counts{"of nobody's business": 1} })
	inuse.Register(inuse.With(t.Context(), &w), func() inuse.Counts { return inuse.Counts{"slots": slots, "sessions": 0, "messages": -1} })
	if diff := cmp.Diff([]string{"-1 messages", "2 slots"}, w.All()); diff != "" {
		t.Error(diff)
	}
	slots = 0
	if diff := cmp.Diff([]string{"-1 messages"}, w.All()); diff != "" {
		t.Error(diff)
	}
}
