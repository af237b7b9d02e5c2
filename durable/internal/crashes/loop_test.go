package crashes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// behavior says how simulated work acts. It ends, crashes the process before its end, or
// leaves a goroutine that crashes the process after its end.
type behavior int

const (
	good behavior = iota
	crashesBefore
	crashesAfter
	crashesAnywhere // before or after its end, or between the end and the recording of it
)

type simulatedWork struct {
	name string
	behavior
	instance string
}

// process simulates a process that runs the work in random order, each work at most twice. It
// stops when all work has ended or is set aside, or at a crash. It returns the name of the work
// that crashed.
func process(chance *rand.Rand, counts Counts, all map[simulatedWork]bool) (crashed string) {
	var order []simulatedWork
	for w := range all {
		order = append(order, w)
	}
	slices.SortFunc(order, func(a, b simulatedWork) int { return strings.Compare(a.name, b.name) })
	chance.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	for _, w := range slices.Concat(order, order) {
		if counts.setAside(w.name); !all[w] || counts.IsSetAside(w.name) {
			continue
		}
		does := w.behavior
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

// Every app stops crashing after a bounded number of crashes: at most Limit for each work that
// is set aside, and functionLimit for each function. Good work ends, unless its function also
// has work whose crashes follow its end. Resumed work runs again and is set aside again within
// the same bound.
func TestCounts_EndEveryCrashLoop(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		chance := rand.New(rand.NewPCG(seed, 1))
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		counts, all := Counts{}, map[simulatedWork]bool{}
		functions, crashing := 1+chance.IntN(3), map[string]bool{}
		for i := range chance.IntN(20) {
			name := fmt.Sprintf("f%d", chance.IntN(functions))
			w := simulatedWork{behavior: behavior(chance.IntN(4)), instance: fmt.Sprint(i % 7)}
			w.name = WorkName("activity", name, "e", i, w.instance)
			all[w] = true
			if w.behavior != good {
				crashing[functionOf(w.name)] = true
			}
		}
		live := func() (n int) {
			for crashed := process(chance, counts, all); crashed != ""; crashed = process(chance, counts, all) {
				counts.crashed(crashed, now)
				now = now.Add(time.Duration(chance.Int64N(int64(crashWindow) / 40)))
				n++
			}
			most := functionLimit * functions
			for w := range all {
				if counts[w.name].Crashes >= Limit {
					most += Limit
				}
			}
			if n > most {
				t.Fatalf("seed %d: %d crashes; want at most %d: %v", seed, n, most, counts)
			}
			return n
		}
		live()
		for w := range all {
			if !counts.IsSetAside(w.name) || !crashing[functionOf(w.name)] {
				t.Fatalf("seed %d: %v was not run: %v", seed, w, counts)
			}
		}
		for w := range all {
			before := len(all)
			counts.resume(w.instance)
			if counts.IsSetAside(w.name) {
				t.Fatalf("seed %d: %v is still set aside after Resume: %v", seed, w, counts)
			}
			if n := live(); n == 0 && len(all) == before {
				t.Fatalf("seed %d: the resumed work did nothing", seed)
			}
			break
		}
	}
}

// Work that crashes repeatedly by itself does not block its function, however much of it there
// is. Neither do crashes that are far apart.
func TestCounts_OnlyUnexplainedCrashesSetAFunctionAside(t *testing.T) {
	t.Parallel()
	now, fine := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), WorkName("activity", "A", "e", 1000, "fine")
	counts := Counts{}
	for i := range 2 * functionLimit {
		for range Limit {
			counts.crashed(WorkName("activity", "A", "e", i, "b"), now)
		}
		counts.setAside(WorkName("activity", "A", "e", i, "b"))
	}
	if counts.IsSetAside(fine) {
		t.Errorf("the function is set aside because of work that is set aside itself: %v", counts)
	}
	for i := range 2 * functionLimit {
		w := WorkName("activity", "A", "e", i, "c")
		counts.crashed(w, now)
		counts.done(w)
		now = now.Add(crashWindow + time.Second)
	}
	if counts.IsSetAside(fine) {
		t.Errorf("the function is set aside because of crashes that are far apart: %v", counts)
	}
	for i := range functionLimit {
		if w := WorkName("activity", "A", "f", i, "d"); counts.IsSetAside(w) {
			t.Errorf("the function is set aside after %d crashes: %v", i, counts)
		} else {
			counts.crashed(w, now)
			counts.done(w)
		}
	}
	if !counts.IsSetAside(fine) || counts.IsSetAside(WorkName("activity", "B", "e", 1, "fine")) || counts.IsSetAside(WorkName("entity", "A", "", 0, "@a@k")) {
		t.Errorf("the function is not set aside, or another one is: %v", counts)
	}
}
