package embedded

import (
	"errors"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A failed instance is rewound, and then once more: it waits for the timer that has not
// fired, and for no other, also when it goes on and after the hub was opened again.
func TestRewind_RestoresEachTimerOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start("a")
	due := history.Ticks(time.Now().Add(time.Hour))
	r.finish(r.next(),
		&history.TimerCreated{Header: history.Header{EventID: 0}, FireAt: time.Now()},
		&history.TimerCreated{Header: history.Header{EventID: 1}, FireAt: due})
	r.finish(r.next(), &history.ExecutionCompleted{Header: history.Header{EventID: 2}, Status: history.Failed})
	r.forgets()
	check := func(when string) {
		t.Helper()
		r.mu.Lock()
		defer r.mu.Unlock()
		inst := r.instances["a"]
		if inst == nil || len(inst.timers) != 1 || !inst.timers[0].due.Equal(due) {
			t.Fatalf("%s: the instance is %+v, want that it waits for one timer, due at %v", when, inst, due)
		}
	}
	r.must(r.Rewind(t.Context(), "a", "it was mended"))
	check("rewound")
	r.must(r.Rewind(t.Context(), "a", "it was mended"))
	check("rewound again before it goes on")
	r.finish(r.next())
	if err := r.Rewind(t.Context(), "a", "it was mended"); !errors.Is(err, provider.ErrInstanceChanged) {
		t.Errorf("Rewind of an instance that goes on: %v, want %v", err, provider.ErrInstanceChanged)
	}
	check("not rewound while it goes on")
	r.stop()
	r.must(r.Close())
	r = openRig(t, r.path)
	check("opened again")
	r.must(r.Purge(t.Context(), "a", nil))
	r.forgets()
}
