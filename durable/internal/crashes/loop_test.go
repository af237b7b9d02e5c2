package crashes

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// A simulated app has work that does as its code is: it gets to its end, it crashes the
// process before, or a goroutine of it crashes the process after.
type behaviour int

const (
	good behaviour = iota
	crashesBefore
	crashesAfter
)

type simulatedWork struct {
	name string
	behaviour
	instance string
}

// process takes up what is there in any order, until all has ended or is held, or it
// crashes at something, which it returns.
func process(chance *rand.Rand, counts Counts, all map[simulatedWork]bool) (crashed string) {
	var order []simulatedWork
	for w := range all {
		order = append(order, w)
	}
	chance.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, w := range order {
		switch {
		case counts.Holds(w.name):
			continue
		case w.behaviour == crashesBefore:
			return w.name
		}
		delete(all, w)
		counts.done(w.name)
		if w.behaviour == crashesAfter {
			return w.name
		}
	}
	return ""
}

// Whatever its work does, an app comes to run for good after few crashes: at most Limit
// for each work and functionLimit for each function. What is good gets to its end, and
// waits for nothing unless its function has others whose crashes follow their ends.
// What is held runs when it is resumed, and is held again after as few.
func TestCounts_EndEveryLoopOfCrashes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		chance := rand.New(rand.NewPCG(seed, 1))
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		counts, all := Counts{}, map[simulatedWork]bool{}
		functions, crashing := 1+chance.IntN(3), map[string]bool{}
		worst := map[bool]int{}
		for i := range chance.IntN(20) {
			name := fmt.Sprintf("f%d", chance.IntN(functions))
			w := simulatedWork{behaviour: behaviour(chance.IntN(3)), instance: fmt.Sprint(i % 7)}
			w.name = Work("activity", name, "e", i, w.instance)
			all[w] = true
			worst[w.behaviour == crashesBefore]++
			if w.behaviour != good {
				crashing[functionOf(w.name)] = true
			}
		}
		live := func() (n int) {
			for most := Limit*worst[true] + functionLimit*functions; ; n++ {
				crashed := process(chance, counts, all)
				if crashed == "" {
					return n
				}
				if n >= most {
					t.Fatalf("seed %d: crash %d at %s with %v", seed, n+1, crashed, counts)
				}
				counts.crashed(crashed, now)
				now = now.Add(time.Duration(chance.Int64N(int64(inARow) / 40)))
			}
		}
		live()
		for w := range all {
			if !counts.Holds(w.name) || !crashing[functionOf(w.name)] {
				t.Fatalf("seed %d: %v does not run, and the counts are %v", seed, w, counts)
			}
		}
		for w := range all {
			before := len(all)
			counts.resume(w.instance)
			if counts.Holds(w.name) {
				t.Fatalf("seed %d: %v is held though it was resumed: %v", seed, w, counts)
			}
			if n := live(); n == 0 && len(all) == before {
				t.Fatalf("seed %d: what was resumed did nothing", seed)
			}
			break
		}
	}
}

// Work that is bad by itself holds nothing else of its function back, however much of it
// there is, and neither do crashes that are far apart.
func TestCounts_AFunctionIsHeldForWhatItsWorkDoesNotExplain(t *testing.T) {
	t.Parallel()
	now, fine := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Work("activity", "A", "e", 1000, "fine")
	counts := Counts{}
	for i := range 2 * functionLimit {
		for range Limit {
			counts.crashed(Work("activity", "A", "e", i, "b"), now)
		}
	}
	if counts.Holds(fine) {
		t.Errorf("held for work that is set aside by itself: %v", counts)
	}
	for i := range 2 * functionLimit {
		w := Work("activity", "A", "e", i, "c")
		counts.crashed(w, now)
		counts.done(w)
		now = now.Add(inARow + time.Second)
	}
	if counts.Holds(fine) {
		t.Errorf("held for crashes that are far apart: %v", counts)
	}
	for i := range functionLimit {
		if w := Work("activity", "A", "f", i, "d"); counts.Holds(w) {
			t.Errorf("held after %d crashes: %v", i, counts)
		} else {
			counts.crashed(w, now)
			counts.done(w)
		}
	}
	if !counts.Holds(fine) || counts.Holds(Work("activity", "B", "e", 1, "fine")) || counts.Holds(Work("entity", "A", "", 0, "@a@k")) {
		t.Errorf("the function is not held, or another is: %v", counts)
	}
}
