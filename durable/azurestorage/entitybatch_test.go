package azurestorage

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// Workers take an entity from each other, and some of their batches do not count. Of each
// batch of the last runs, however long ago it was, the sentinel says whether it counted.
func TestEntityBatches_TellWhichCounted(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		column, mark, runs := "", "", 0
		counted := map[string]bool{}
		for n := range 500 {
			if mark == "" {
				runs++
				mark = fmt.Sprintf("%08d", runs) // digits only, as a mark can be
			}
			after := parseBatches(column).next(mark)
			counted[after.name()] = r.IntN(50) > 0 || runs == runsKnown
			if counted[after.name()] {
				column = after.String()
			} else {
				mark = ""
			}
			if r.IntN(100) == 0 && runs < runsKnown { // another worker takes the entity
				mark = ""
			}
			if n%50 > 0 {
				continue
			}
			for name, want := range counted {
				if got := parseBatches(column).counted(name); got != want {
					t.Fatalf("seed %d: batch %q counted: %v, want %v; the sentinel says %q", seed, name, got, want, column)
				}
			}
		}
	}
}

// Batches that earlier versions named are known, and those of runs that are forgotten are
// taken for ones that counted.
func TestEntityBatches_TellOfOlderOnes(t *testing.T) {
	t.Parallel()
	long := entityBatches{}
	for n := range 2 * runsKnown {
		long = long.next(fmt.Sprint("run", n))
	}
	for _, tt := range []struct {
		column, name string
		want         bool
	}{
		{"", "1 a", false},
		{"7 aaaaaaaa 12345678", "7 aaaaaaaa", true},
		{"7 aaaaaaaa 12345678", "6 12345678", true},
		{"7 aaaaaaaa 12345678", "7 12345678", false},
		{"7 aaaaaaaa 12345678", "8 bbbbbbbb", false},
		{long.String(), "1 run0", true},
		{long.String(), "40 another", false},
		{"a:1", "no number", true},
	} {
		if got := parseBatches(tt.column).counted(tt.name); got != tt.want {
			t.Errorf("%q says that %q counted: %v, want %v", tt.column, tt.name, got, tt.want)
		}
	}
}

// The lock of a claimed message may end while the history is being written. Whoever
// receives the message then finds that its batch does not count, and deletes it.
func TestShow_FailsForWhatOthersMayHaveDeleted(t *testing.T) {
	claimed := func(lost bool, left time.Duration) []sentMessage {
		return []sentMessage{{
			queue: &store.Queue{Name: "q"}, Sent: store.Sent{ID: "m"}, shown: "shown",
			claimed: &delivery{lost: lost, until: time.Now().Add(left)},
		}}
	}
	h := &TaskHub{}
	for name, c := range map[string]struct {
		sent []sentMessage
		want string
	}{
		"a message that is hidden":         {claimed(false, time.Minute), ""},
		"one whose lock was lost":          {claimed(true, time.Minute), "message m was visible in queue q before the entity's batch counted"},
		"one whose lock was not renewed":   {claimed(false, -time.Second), "message m was visible in queue q before the entity's batch counted"},
		"one that is of no entity's batch": {[]sentMessage{{claimed: &delivery{lost: true}}}, ""},
	} {
		err := h.show(t.Context(), c.sent)
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if d := c.sent[0].claimed; err == nil && c.sent[0].shown != "" && d.msg.Text != "shown" {
			t.Errorf("%s: its text is %q", name, d.msg.Text)
		}
	}
}
