package inbound

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/google/go-cmp/cmp"
)

func TestUndecodable_TruncatesACauseBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("é", maxUndecodableCause), "x" + strings.Repeat("é", maxUndecodableCause)} {
		var u Undecodable
		u.record("q", "1", errors.New(text))
		got := u.All()[0].Cause
		if !utf8.ValidString(got) || len(got) > maxUndecodableCause+len("…") || !strings.HasPrefix(text, strings.TrimSuffix(got, "…")) {
			t.Errorf("the cause of %.4q… is %q, want a prefix of whole characters", text, got)
		}
	}
}

// The new owner of a queue counts its messages.
func TestUndecodable_CountsTheMessagesOfQueuesThatTheWorkerReads(t *testing.T) {
	t.Parallel()
	u := Undecodable{Aside: func(queue string) *store.Queue { return &store.Queue{Name: queue + "-poison"} }}
	for _, m := range [][2]string{{"read", "1"}, {"read", "2"}, {"read", "3"}, {"released", "4"}, {"released", "5"}} {
		u.record(m[0], m[1], errors.New("not JSON"))
	}
	u.moved("read", "3")
	u.moved("released", "5")
	want := map[string]int{"read": 2, "empty": 0, "read-poison": 1, "released-poison": 1}
	if diff := cmp.Diff(want, u.Counts([]*store.Queue{{Name: "read"}, {Name: "empty"}})); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
