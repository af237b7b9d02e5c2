package embedded_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var (
	tortureRounds = flag.Int("torture.rounds", 0, "the least number of times that a process is killed; default 30, or 8 in a short run")
	tortureSeed   = flag.Uint64("torture.seed", 1, "seed of what it does; 0 takes one from the time")
)

// A process that makes random operations on a hub is killed repeatedly without warning. Afterwards
// everything acknowledged must exist, exactly once.
func TestHub_KeepsAcknowledgedWritesWhenItsProcessIsKilled(t *testing.T) {
	t.Parallel()
	seed := *tortureSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-torture.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "hub.db")
	v := newVictim()
	rounds := *tortureRounds
	if rounds == 0 {
		rounds = testshare.Amount(30, 8)
	}
	for round := 0; round < rounds || len(v.missing()) > 0 && round < 100; round++ {
		c := startChild(t, "torture", fmt.Sprintf("%d %v %s", seed+uint64(round), round%3 == 2, path))
		if got := c.line(t); got != "open" {
			t.Fatalf("round %d: unexpected output of the child: %q", round, got)
		}
		killed := time.AfterFunc(time.Duration(r.IntN(150))*time.Millisecond, func() { _ = c.Process.Kill() }) // real time: the process dies at a random time
		for c.out.Scan() {
			v.note(t, c.out.Text())
		}
		killed.Stop()
		c.kill()
		if c.err.Len() > 0 {
			t.Fatalf("round %d: %s", round, c.err.String())
		}
		left := filepath.Join(t.TempDir(), "hub.db")
		for _, suffix := range []string{"", ".journal-0", ".journal-1", ".owner"} {
			if _, err := os.Stat(path + suffix); err == nil {
				copyFile(t, path+suffix, left+suffix)
			}
		}
		v.verify(t, left)
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	t.Logf("acknowledged: %v", v.counts)
	if missing := v.missing(); len(missing) > 0 {
		t.Errorf("no operation %q was acknowledged", missing)
	}
}

// A victim records the acknowledged operations of a hub's processes.
type victim struct {
	counts   map[string]int
	started  map[string]bool
	sent     map[string][]string // tokens by instance
	commits  map[string]commitNote
	finished map[taskKey]bool
}

type commitNote struct {
	execution string
	length    int
	digest    string
}

type taskKey struct {
	instance, execution string
	id                  int
}

// missing returns the kinds of operations without an acknowledgment.
func (v *victim) missing() []string {
	return slices.DeleteFunc([]string{"S", "E", "C", "A"}, func(op string) bool { return v.counts[op] > 0 })
}

func newVictim() *victim {
	return &victim{
		counts: make(map[string]int), started: make(map[string]bool), sent: make(map[string][]string),
		commits: make(map[string]commitNote), finished: make(map[taskKey]bool),
	}
}

// note records one line of the child's output.
func (v *victim) note(t *testing.T, line string) {
	t.Helper()
	f := strings.Fields(line)
	v.counts[f[0]]++
	var n int
	if len(f) > 3 {
		if _, err := fmt.Sscan(f[3], &n); err != nil {
			t.Fatalf("unexpected output of the child: %q", line)
		}
	}
	switch f[0] {
	case "S":
		v.started[f[1]] = true
	case "E":
		v.sent[f[1]] = append(v.sent[f[1]], f[2])
	case "C":
		v.commits[f[1]] = commitNote{f[2], n, f[4]}
	case "A":
		v.finished[taskKey{f[1], f[2], n}] = true
	default:
		t.Fatalf("unexpected output of the child: %q", line)
	}
}

// found is the content of a hub for one instance.
type found struct {
	state   *provider.InstanceState
	past    []history.Event
	pending []provider.TaskMessage
	session provider.Session // session of the first messages
}

// verify opens the files of a killed process and compares them with the acknowledged operations.
func (v *victim) verify(t *testing.T, path string) {
	t.Helper()
	hub, err := embedded.Open(path, impatient)
	if err != nil {
		t.Fatalf("open the files of the killed process: %v", err)
	}
	stop := run(t, hub)
	all := make(map[string]*found)
	for id := range v.started {
		s, err := hub.Instance(t.Context(), id, provider.Fetch{})
		if err != nil {
			t.Errorf("instance %s was started: %v", id, err)
			continue
		}
		past, err := hub.History(t.Context(), id)
		if err != nil {
			t.Errorf("history of %s: %v", id, err)
		}
		all[id] = &found{state: s, past: past}
	}
	activities := make(map[taskKey]int)
	// Timers are due within 10 ms, but a busy machine may deliver them later.
	faults := v.faults(all, activities)
	for deadline := time.Now().Add(patience.Limit()); len(faults) > 0 && time.Now().Before(deadline); {
		if takeAll(t, hub, all, activities) > 0 {
			faults = v.faults(all, activities)
		}
	}
	if len(faults) > 0 {
		t.Errorf("%d faults:\n%s", len(faults), strings.Join(faults[:min(20, len(faults))], "\n"))
	}
	// Work in flight is not released: the copy is not needed any more.
	go stop()
	if err := hub.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// faults compares the content of a hub with the acknowledged operations.
func (v *victim) faults(all map[string]*found, activities map[taskKey]int) faults {
	var list faults
	raised := make(map[string][]string) // by instance, by target
	for id, f := range all {
		for _, e := range f.past {
			if e, ok := e.(*history.EventSent); ok {
				raised[e.InstanceID] = append(raised[e.InstanceID], e.Name)
			}
		}
		v.checkCommit(&list, id, f)
		checkWork(&list, f, activities)
	}
	for id, f := range all {
		v.checkEvents(&list, id, f, raised[id])
	}
	for k := range v.finished {
		if activities[k] > 0 {
			list.add("activity %v was completed and is handed out again", k)
		}
	}
	return list
}

// faults lists the defects of a hub.
type faults []string

func (l *faults) add(format string, args ...any) { *l = append(*l, fmt.Sprintf(format, args...)) }

// takeAll fetches all pending work and keeps it locked. It returns the amount. Later messages for a
// fetched instance, such as fired timers, are delivered to its session.
func takeAll(t *testing.T, hub *embedded.Hub, all map[string]*found, activities map[taskKey]int) (taken int) {
	t.Helper()
	for _, f := range all {
		if f.session == nil {
			continue
		}
		more, err := f.session.Next(t.Context(), 0)
		if err != nil {
			t.Errorf("more messages of %s: %v", f.state.Instance.InstanceID, err)
		}
		f.pending = append(f.pending, more...)
		taken += len(more)
	}
	for ; ; taken++ {
		ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond) // real time: the caller tries again
		item, err := hub.NextOrchestration(ctx)
		cancel()
		if err != nil {
			break
		}
		if f := all[item.Instance.InstanceID]; f != nil { // else its start was not acknowledged
			f.pending, f.session = append(f.pending, item.Messages...), item.Session
		}
	}
	for ; ; taken++ {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // real time: the caller tries again
		a, err := hub.NextActivity(ctx)
		cancel()
		if err != nil {
			return taken
		}
		activities[taskKey{a.Instance.InstanceID, a.Instance.ExecutionID, a.Task.EventID}]++
	}
}

// checkCommit verifies that the history contains the last acknowledged commit. It may contain one
// more that was in flight.
func (v *victim) checkCommit(list *faults, id string, f *found) {
	c, ok := v.commits[id]
	if !ok || f.state.Instance.ExecutionID != c.execution { // it may have continued as new since
		return
	}
	if len(f.past) < c.length {
		list.add("history of %s has %d events, but %d were committed", id, len(f.past), c.length)
		return
	}
	if got := fmt.Sprintf("%x", digest(f.past[:c.length])); got != c.digest {
		list.add("the first %d events of %s are not those that were committed", c.length, id)
	}
	if ends := strings.Count(kinds(f.past), "ExecutionStarted"); ends != 1 {
		list.add("history of %s has %d starts", id, ends)
	}
}

func kinds(past []history.Event) string {
	var b strings.Builder
	for _, e := range past {
		b.WriteString(e.Type().String() + " ")
	}
	return b.String()
}

// checkEvents verifies that each event sent to an instance, by a client or another instance, is
// either in its history or pending, exactly once.
func (v *victim) checkEvents(list *faults, id string, f *found, raised []string) {
	count := make(map[string]int)
	for _, e := range f.past {
		if e, ok := e.(*history.EventRaised); ok {
			count[e.Name]++
		}
	}
	for _, m := range f.pending {
		if e, ok := m.Event.(*history.EventRaised); ok {
			count[e.Name]++
		}
	}
	for token, n := range count {
		if n != 1 {
			list.add("event %s of %s occurs %d times", token, id, n)
		}
	}
	if f.state.Status.IsTerminal() {
		return // pending events of an ended instance do not matter
	}
	for _, token := range v.sent[id] {
		if count[token] == 0 {
			list.add("event %s of %s is lost", token, id)
		}
	}
	for _, token := range raised {
		if count[token] == 0 {
			list.add("event %s that an instance sent to %s is lost", token, id)
		}
	}
}

// checkWork verifies that each activity and timer of a history is either pending or has one result,
// which is pending or in the history.
func checkWork(list *faults, f *found, activities map[taskKey]int) {
	if f.state.Status.IsTerminal() {
		return
	}
	results := make(map[int]int)
	count := func(e history.Event) {
		switch e := e.(type) {
		case *history.TaskCompleted:
			results[e.TaskScheduledID]++
		case *history.TimerFired:
			results[e.TimerID]++
		}
	}
	for _, e := range f.past {
		count(e)
	}
	for _, m := range f.pending {
		count(m.Event)
	}
	for _, e := range f.past {
		id := e.Head().EventID
		n := results[id]
		switch e.(type) {
		case *history.TaskScheduled:
			n += activities[taskKey{f.state.Instance.InstanceID, f.state.Instance.ExecutionID, id}]
		case *history.TimerCreated:
		default:
			continue
		}
		if n != 1 {
			list.add("%v %d of %s is pending or done %d times, want once", e.Type(), id, f.state.Instance.InstanceID, n)
		}
	}
}
