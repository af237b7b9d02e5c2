package crashes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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
	crashesAnywhere // before it, after it, or between it and the note of it
)

type simulatedWork struct {
	name string
	behaviour
	instance string
}

// process takes up what is there in any order, until all has ended or is held, or it
// crashes at something, which it returns. What is held is taken up once more.
func process(chance *rand.Rand, counts Counts, all map[simulatedWork]bool) (crashed string) {
	var order []simulatedWork
	for w := range all {
		order = append(order, w)
	}
	slices.SortFunc(order, func(a, b simulatedWork) int { return strings.Compare(a.name, b.name) })
	chance.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, w := range slices.Concat(order, order) {
		if counts.setAside(w.name); !all[w] || counts.Holds(w.name) {
			continue
		}
		does := w.behaviour
		if does == crashesAnywhere && chance.IntN(2) == 0 {
			does = crashesBefore
		}
		if does == crashesBefore {
			return w.name
		}
		delete(all, w)
		if does == crashesAnywhere && chance.IntN(2) == 0 {
			return w.name
		}
		if counts.done(w.name); does != good {
			return w.name
		}
	}
	return ""
}

// Whatever its work does, an app comes to run for good after few crashes: at most Limit
// for each work that is set aside then and functionLimit for each function. What is good gets to its end, and
// waits for nothing unless its function has others whose crashes follow their ends.
// What is held runs when it is resumed, and is held again after as few.
func TestCounts_EndEveryLoopOfCrashes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		chance := rand.New(rand.NewPCG(seed, 1))
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		counts, all := Counts{}, map[simulatedWork]bool{}
		functions, crashing := 1+chance.IntN(3), map[string]bool{}
		for i := range chance.IntN(20) {
			name := fmt.Sprintf("f%d", chance.IntN(functions))
			w := simulatedWork{behaviour: behaviour(chance.IntN(4)), instance: fmt.Sprint(i % 7)}
			w.name = Work("activity", name, "e", i, w.instance)
			all[w] = true
			if w.behaviour != good {
				crashing[functionOf(w.name)] = true
			}
		}
		live := func() (n int) {
			for crashed := process(chance, counts, all); crashed != ""; crashed = process(chance, counts, all) {
				counts.crashed(crashed, now)
				now = now.Add(time.Duration(chance.Int64N(int64(inARow) / 40)))
				n++
			}
			most := functionLimit * functions
			for w := range all {
				if counts[w.name].Crashes >= Limit {
					most += Limit
				}
			}
			if n > most {
				t.Fatalf("seed %d: %d crashes, want at most %d: %v", seed, n, most, counts)
			}
			return n
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
		counts.setAside(Work("activity", "A", "e", i, "b"))
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
