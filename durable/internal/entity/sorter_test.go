package entity_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
	"github.com/google/go-cmp/cmp"
)

const window = 30 * time.Minute

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// names returns the operations of the requests, in order.
func names(requests []*entity.Request) string {
	var all []string
	for _, r := range requests {
		all = append(all, r.Operation)
	}
	return strings.Join(all, " ")
}

// A sentRequest is a request of sender "a", unless from is set. Times are in minutes after
// noon; -1 means none.
type sentRequest struct {
	op        string
	at, after float64
	from      string
	execution string
	position  int
	id        string
}

func (s sentRequest) request() *entity.Request {
	r := &entity.Request{ID: s.id, Operation: s.op, Parent: s.from, ParentExecution: s.execution, Position: s.position}
	if r.ID == "" {
		r.ID = entity.DeriveID(s.op, s.from, s.execution)
	}
	if r.Parent == "" {
		r.Parent = "a"
	}
	if r.Parent == "a client" {
		r.Parent = ""
	}
	minutes := func(n float64) time.Time {
		if n < 0 {
			return time.Time{}
		}
		return noon.Add(time.Duration(n * float64(time.Minute)))
	}
	r.Timestamp, r.Predecessor = minutes(s.at), minutes(s.after)
	return r
}

// The rules of MessageSorter.ReceiveInOrder, and extensions ("ours").
func TestSorter_ReceiveInOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		window   time.Duration
		requests []sentRequest
		want     []string // the operations that each request lets take effect
	}{
		{"in order", window, []sentRequest{{op: "1", at: 0, after: -1}, {op: "2", at: 1, after: 0}}, []string{"1", "2"}},
		{
			"an early request waits for its predecessor", window,
			[]sentRequest{{op: "3", at: 2, after: 1}, {op: "2", at: 1, after: 0}, {op: "1", at: 0, after: -1}},
			[]string{"", "", "1 2 3"},
		},
		{"without a window no request waits", 0, []sentRequest{{op: "2", at: 1, after: 0}, {op: "1", at: 0, after: -1}}, []string{"2", "1"}},
		{"clients are not sorted", window, []sentRequest{{op: "2", at: 1, after: 0, from: "a client"}}, []string{"2"}},
		{"requests without a label are not sorted", window, []sentRequest{{op: "2", at: -1, after: -1}, {op: "1", at: -1, after: -1}}, []string{"2", "1"}},
		{"passed-on locks are not sorted", window, []sentRequest{{op: "2", at: 1, after: 0, position: 1}}, []string{"2"}},
		{"duplicates are dropped", window, []sentRequest{{op: "1", at: 0, after: -1}, {op: "1", at: 0, after: -1}}, []string{"1", ""}},
		{
			"senders do not wait for each other", window,
			[]sentRequest{{op: "a2", at: 1, after: 0}, {op: "b1", at: 0, after: -1, from: "b"}},
			[]string{"", "b1"},
		},
		{
			"ours: a new execution has its own order, and early requests of the old one wait", window,
			[]sentRequest{
				{op: "2", at: 1, after: 0, execution: "x"},
				{op: "1'", at: 2, after: -1, execution: "y"},
				{op: "3'", at: 4, after: 3, execution: "y"},
				{op: "1", at: 0, after: -1, execution: "x"},
				{op: "2'", at: 3, after: 2, execution: "y"},
			},
			[]string{"", "1'", "", "1 2", "2' 3'"},
		},
		{
			"ours: a waiting execution is forgotten after five others, four of which wait, too", window,
			[]sentRequest{
				{op: "2", at: 1, after: 0, execution: "w"},
				{op: "4", at: 1.5, after: 1.4, execution: "w"},
				{op: "x", at: 3, after: 2, execution: "x"},
				{op: "y", at: 5, after: 4, execution: "y"},
				{op: "z", at: 7, after: 6, execution: "z"},
				{op: "u", at: 9, after: 8, execution: "u"},
				{op: "v", at: 10, after: -1, execution: "v"},
			},
			[]string{"", "", "", "", "", "", "2 4 v"},
		},
		{
			"ours: a request that may follow a forgotten execution does not wait", window,
			[]sentRequest{
				{op: "1", at: 1, after: -1, execution: "w"},
				{op: "x", at: 2, after: -1, execution: "x"},
				{op: "y", at: 3, after: -1, execution: "y"},
				{op: "z", at: 4, after: -1, execution: "z"},
				{op: "u", at: 5, after: -1, execution: "u"},
				{op: "v", at: 6, after: -1, execution: "v"},
				{op: "2", at: 7, after: 1, execution: "w"},
				{op: "1'", at: 1, after: -1, execution: "x'"},
				{op: "3'", at: 3, after: 2, execution: "x'"},
			},
			[]string{"1", "x", "y", "z", "u", "v", "2", "1'", "3'"},
		},
		{
			"ours: the requests of two executions may arrive in any order and share a time", window,
			[]sentRequest{
				{op: "2'", at: 1.1, after: 1, execution: "y"},
				{op: "2", at: 1, after: 0, execution: "x"},
				{op: "1'", at: 1, after: -1, execution: "y"},
				{op: "3'", at: 2, after: 1.1, execution: "y"},
				{op: "1", at: 0, after: -1, execution: "x"},
			},
			[]string{"", "", "1' 2'", "3'", "1 2"},
		},
		{
			"a request older than the window takes effect at once", window,
			[]sentRequest{{op: "late", at: 60, after: -1}, {op: "old", at: 1, after: 0, from: "b"}},
			[]string{"late", "old"},
		},
		{
			"no request waits longer than the window", window,
			[]sentRequest{{op: "2", at: 1, after: 0}, {op: "b", at: 32, after: -1, from: "b"}},
			[]string{"", "2 b"},
		},
		{
			"there are at least ten seconds between sweeps", window,
			[]sentRequest{{op: "first", at: 0, after: -1, from: "b"}, {op: "2", at: 1, after: 0.5}, {op: "b", at: 30.1, after: 0, from: "b"}},
			[]string{"first", "", "b"},
		},
		{
			"ours: the first request of a new execution may have the last label of the old one", window,
			[]sentRequest{{op: "1", at: 1, after: -1, execution: "x"}, {op: "1'", at: 1, after: -1, execution: "y"}, {op: "2'", at: 2, after: 1, execution: "y"}},
			[]string{"1", "1'", "2'"},
		},
		{
			"ours: the clock of the old execution's worker may be ahead", window,
			[]sentRequest{
				{op: "1", at: 5, after: -1, execution: "x"},
				{op: "1'", at: 3, after: -1, execution: "y"},
				{op: "2'", at: 4, after: 3, execution: "y"},
				{op: "3'", at: 6, after: 4, execution: "y"},
			},
			[]string{"1", "1'", "2'", "3'"},
		},
		{
			"ours: a duplicate with another label is dropped, and its successor takes effect", window,
			[]sentRequest{{op: "1", at: 0, after: -1, id: "one"}, {op: "1", at: 2, after: -1, id: "one"}, {op: "2", at: 3, after: 2}},
			[]string{"1", "", "2"},
		},
		{
			"ours: a request that waits for an unsent request of a lost attempt is dropped", window,
			[]sentRequest{{op: "lost's", at: 1, after: 0}, {op: "1", at: 2, after: -1}, {op: "2", at: 3, after: 2}},
			[]string{"", "1", "2"},
		},
		{
			"ours: requests of a lost attempt take effect in the order of the next attempt", window,
			[]sentRequest{
				{op: "1", at: 0, after: -1, id: "one"},
				{op: "4", at: 3, after: 2, id: "four"}, // 2 and 3 are late
				{op: "1", at: 10, after: -1, id: "one"},
				{op: "4", at: 13, after: 12, id: "four"},
				{op: "2", at: 11, after: 10, id: "two"},
				{op: "3", at: 12, after: 11, id: "three"},
				{op: "3", at: 2, after: 1, id: "three"},
			},
			[]string{"1", "", "", "", "2", "3 4", ""},
		},
		{
			"ours: the same if both attempts wait", window,
			[]sentRequest{
				{op: "1", at: 1, after: 0, id: "one"},
				{op: "3", at: 3, after: 2, id: "three"},
				{op: "1", at: 11, after: 0, id: "one"},
				{op: "2", at: 12, after: 11, id: "two"},
				{op: "3", at: 13, after: 12, id: "three"},
				{op: "0", at: 0, after: -1},
			},
			[]string{"", "", "", "", "", "0 1 2 3"},
		},
		{
			"ours: late requests of an ended execution do not affect the next execution", window,
			[]sentRequest{
				{op: "1", at: 0, after: -1, execution: "x"},
				{op: "1'", at: 2, after: -1, execution: "y"},
				{op: "2", at: 1, after: 0, execution: "x"},
				{op: "2'", at: 3, after: 2, execution: "y"},
				{op: "2", at: 1, after: 0, execution: "x"},
				{op: "1", at: 0, after: -1, execution: "x"},
			},
			[]string{"1", "1'", "2", "2'", "", ""},
		},
		{
			"ours: the clock of a lost attempt may be ahead", window,
			[]sentRequest{
				{op: "1", at: 10, after: -1, id: "one"},
				{op: "1", at: 1, after: -1, id: "one"},
				{op: "2", at: 2, after: 1, id: "two"},
				{op: "2", at: 2, after: 1, id: "two"},
				{op: "3", at: 11, after: 10, id: "three"},
			},
			[]string{"1", "", "2", "", "3"},
		},
		{
			"ours: a later label of a lost attempt does not release waiting requests", window,
			[]sentRequest{
				{op: "1", at: 10, after: -1, id: "one"},
				{op: "3", at: 3, after: 2},
				{op: "1", at: 1, after: -1, id: "one"},
				{op: "2", at: 2, after: 1},
				{op: "4", at: 10.5, after: 3},
			},
			[]string{"1", "", "", "2 3", "4"},
		},
		{
			"ours: another attempt does not drop a request that waits for its predecessor", window,
			[]sentRequest{
				{op: "2", at: 2, after: 1},
				{op: "1", at: 10, after: -1, id: "one"}, // its sender died after this request
				{op: "1", at: 1, after: -1, id: "one"},
			},
			[]string{"", "1", "2"},
		},
		{
			"ours: a request of a later episode drops waiting requests of lost attempts", window,
			[]sentRequest{
				{op: "1", at: 1, after: -1},
				{op: "lost", at: 1.5, after: 1.4},
				{op: "2", at: 2, after: 1},
				{op: "3", at: 3, after: 2},
				{op: "lost's first", at: 1.4, after: 1},
			},
			[]string{"1", "", "2", "3", ""},
		},
		{
			"ours: the second request of an execution waits for its first, despite later labels of the previous execution", window,
			[]sentRequest{
				{op: "1", at: 5, after: -1, execution: "x"},
				{op: "2'", at: 4, after: 3, execution: "y"},
				{op: "1'", at: 3, after: -1, execution: "y"},
			},
			[]string{"1", "", "1' 2'"},
		},
		{
			"ours: attempts whose clocks are behind may use one label for different requests", window,
			[]sentRequest{
				{op: "3", at: 3, after: 2, id: "three"},
				{op: "2", at: 3, after: 2, id: "two"},
				{op: "1", at: 2, after: -1},
			},
			[]string{"", "", "1 3 2"},
		},
		{
			"ours: a duplicate with another label is dropped, and its waiting successor takes effect", window,
			[]sentRequest{{op: "1", at: 0, after: -1, id: "one"}, {op: "3", at: 4, after: 3}, {op: "1", at: 2, after: -1, id: "one"}, {op: "2", at: 3, after: 2}},
			[]string{"1", "", "", "2 3"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var s entity.Sorter
			var got []string
			for _, r := range test.requests {
				got = append(got, names(s.Receive(r.request(), test.window)))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The rules of MessageSorter.LabelOutgoingMessage, and extensions ("ours").
func TestSorter_LabelOutgoingMessage(t *testing.T) {
	t.Parallel()
	var s entity.Sorter
	label := func(to string, at time.Time) string {
		var r entity.Request
		s.Label(&r, to, at, window)
		text := r.Encode()
		_, text, _ = strings.Cut(text, `"Timestamp":`)
		text, _, _ = strings.Cut(text, `,"IsLockRequest"`)
		return strings.ReplaceAll(text, `"Predecessor":`, "")
	}
	for _, step := range []struct {
		name, to string
		at       time.Time
		want     string
	}{
		{"the first has no predecessor", "a", noon, `"2026-11-20T12:00:00Z","0001-01-01T00:00:00"`},
		{"the next one at the same time is a tick later, without a zone", "a", noon, `"2026-11-20T12:00:00.0000001","2026-11-20T12:00:00Z"`},
		{"labels do not go back with the clock", "a", noon.Add(-time.Hour), `"2026-11-20T12:00:00.0000003","2026-11-20T12:00:00.0000001"`},
		{"ours: two attempts whose clocks are behind have different labels", "a", noon.Add(-time.Hour + 700), `"2026-11-20T12:00:00.0000012","2026-11-20T12:00:00.0000003"`},
		{"the labels of one attempt have no gaps", "a", noon.Add(-time.Hour + 700), `"2026-11-20T12:00:00.0000013","2026-11-20T12:00:00.0000012"`},
		{"the spread is wider if the clock is only a little behind", "a", noon.Add(-time.Minute + 3*time.Millisecond), `"2026-11-20T12:00:00.0030015","2026-11-20T12:00:00.0000013"`},
		{"other receivers have labels of their own", "b", noon, `"2026-11-20T12:00:00Z","0001-01-01T00:00:00"`},
		{"labels older than the window are dropped", "a", noon.Add(time.Hour), `"2026-11-20T13:00:00Z","0001-01-01T00:00:00"`},
	} {
		if got := label(step.to, step.at); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
}

// Fifty senders send twenty signals each, which arrive in random order with duplicates. The
// signals of each sender take effect in order and once.
func TestSorter_DeliversInOrderAndOnce(t *testing.T) {
	t.Parallel()
	const senders, each = 50, 20
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 0))
		var mail []*entity.Request
		for sender := range senders {
			var s entity.Sorter
			from := fmt.Sprint("sender ", sender)
			at := noon
			for n := range each {
				if r.IntN(3) > 0 {
					at = at.Add(time.Duration(r.IntN(1000)) * time.Millisecond)
				}
				m := &entity.Request{ID: entity.DeriveID(from, fmt.Sprint(n)), Operation: fmt.Sprint(n), Parent: from, ParentExecution: "x"}
				s.Label(m, "@counter@a", at, window)
				for range 1 + max(0, r.IntN(5)-3) {
					mail = append(mail, m)
				}
			}
		}
		r.Shuffle(len(mail), func(i, j int) { mail[i], mail[j] = mail[j], mail[i] })

		state := new(entity.State)
		got := map[string][]string{}
		for len(mail) > 0 {
			n := min(1+r.IntN(60), len(mail))
			for _, op := range deliver(t, state, mail[:n]) {
				got[op.Caller] = append(got[op.Caller], op.Name)
			}
			mail = mail[n:]
			if r.IntN(5) == 0 {
				state = stored(t, state)
			}
		}
		var want []string
		for n := range each {
			want = append(want, fmt.Sprint(n))
		}
		if len(got) != senders {
			t.Errorf("seed %d: requests of %d senders took effect, want %d", seed, len(got), senders)
		}
		for from, ops := range got {
			if !slices.Equal(ops, want) {
				t.Errorf("seed %d: %s's requests took effect in the order %v", seed, from, ops)
			}
		}
	}
}

// withoutWindow returns an entity that has run request 0 of sender a, and buffers 2 and 3 until
// 1 arrives. The reorder window has been disabled since.
func withoutWindow(t *testing.T) (p *play, ran map[string]int) {
	p, ran = newPlay(t), map[string]int{}
	p.now = noon.Add(3 * time.Minute)
	for _, r := range []sentRequest{{op: "0", at: 0.5, after: -1}, {op: "2", at: 2, after: 1}, {op: "3", at: 3, after: 2}} {
		p.run(ran, op(*r.request()))
		p.state.Settle()
	}
	if ran["0"] != 1 || len(ran) != 1 {
		t.Fatalf("ran %v, want 0 only", ran)
	}
	p.settings.Window = 0
	return p, ran
}

// Requests that wait for a late request take effect after it. Requests of other senders do not
// wait.
func TestSorter_WithoutAWindowWaitingRequestsStayInOrder(t *testing.T) {
	t.Parallel()
	p, _ := withoutWindow(t)
	for _, r := range []sentRequest{
		{op: "other", from: "b", at: 9, after: 8},
		{op: "signal", from: "a client", at: -1, after: -1},
		{op: "unlabeled", at: -1, after: -1},
		{op: "1", at: 1, after: -1},
		{op: "4", at: 4, after: 3},
	} {
		p.get(op(*r.request()))
		p.state.Settle()
	}
	var ran []string
	for _, line := range p.log {
		if name, ok := strings.CutPrefix(line, "ran "); ok {
			ran = append(ran, name)
		}
	}
	if got, want := strings.Join(ran, " "), "other signal unlabeled 1 2 3 4"; got != want {
		t.Errorf("ran %q, want %q", got, want)
	}
}

// An episode runs again after the window was disabled, and sends all its requests without
// labels.
func TestSorter_WithoutAWindowItRecognizesEarlierDuplicates(t *testing.T) {
	t.Parallel()
	p, ran := withoutWindow(t)
	for range 2 {
		for _, r := range []sentRequest{{op: "0", at: -1, after: -1}, {op: "1", at: -1, after: -1}, {op: "2", at: -1, after: -1}, {op: "3", at: -1, after: -1}} {
			p.run(ran, op(*r.request()))
			p.state.Settle()
		}
	}
	for _, r := range []sentRequest{{op: "1", at: 1, after: -1}, {op: "2", at: 2, after: 1}} { // of the lost attempt
		p.run(ran, op(*r.request()))
		p.state.Settle()
	}
	if diff := cmp.Diff(map[string]int{"0": 1, "1": 1, "2": 1, "3": 1}, ran); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

// Requests that wait for a request that never arrives take effect when the clock expires their
// sender. The state then contains nothing of the senders.
func TestSorter_WithoutAWindowTheClockExpiresSenders(t *testing.T) {
	t.Parallel()
	p, ran := withoutWindow(t)
	p.now = noon.Add(30 * time.Minute)
	p.run(ran, clientSignal("get"))
	if ran["2"]+ran["3"] > 0 {
		t.Errorf("ran %v before the clock expired the sender", ran)
	}
	p.state.Settle()
	p.now = noon.Add(32 * time.Minute)
	p.run(ran, clientSignal("get"))
	p.state.Settle()
	p.now = noon.Add(34 * time.Minute)
	p.run(ran, clientSignal("get"))
	p.state.Settle()
	if diff := cmp.Diff(map[string]int{"0": 1, "2": 1, "3": 1, "get": 3}, ran); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
	if state := p.state.Encode(); !strings.Contains(state, `"sorter":{}`) {
		t.Errorf("the state is %s, want an empty sorter", state)
	}
}

// A sender of this project passes a lock on. Its next request has a label that is not after the
// lock's, because its clock went back or has not moved. The next request of a .NET sender
// follows the lock.
func TestSorter_APassedOnLockMakesNoRequestADuplicate(t *testing.T) {
	t.Parallel()
	var s entity.Sorter
	receive := func(r sentRequest, want string) {
		t.Helper()
		if got := names(s.Receive(r.request(), window)); got != want {
			t.Errorf("%s lets %q through, want %q", r.op, got, want)
		}
	}
	receive(sentRequest{op: "1", at: 0, after: -1}, "1")
	if got := s.RecordPassedOn(sentRequest{op: "lock", at: 5, after: 0, position: 1}.request(), "a"); len(got) > 0 {
		t.Errorf("the lock lets %q through", names(got))
	}
	receive(sentRequest{op: "2", at: 3, after: 0}, "2")
	receive(sentRequest{op: "3", at: 5, after: 3}, "3")
	receive(sentRequest{op: "of .NET", at: 6, after: 5}, "of .NET")
	receive(sentRequest{op: "of .NET", at: 6, after: 5}, "")
}

// A sender continues as new again and again while its clock stands still. Its requests arrive
// in random order with duplicates, and the entity is stored after each batch. It has entries
// for the last executions only; each request takes effect once.
func TestSorter_RequestsOfForgottenExecutionsTakeEffectOnce(t *testing.T) {
	t.Parallel()
	const executions, each = 12, 2
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		var mail []*entity.Request
		for x := range executions {
			var s entity.Sorter
			for n := range each {
				op := fmt.Sprint(x, ".", n)
				m := &entity.Request{ID: entity.DeriveID(op), Operation: op, Parent: "i", ParentExecution: fmt.Sprint(x)}
				s.Label(m, "@counter@a", noon, window)
				for range 1 + max(0, r.IntN(5)-3) {
					mail = append(mail, m)
				}
			}
		}
		r.Shuffle(len(mail), func(i, j int) { mail[i], mail[j] = mail[j], mail[i] })
		state, taken := new(entity.State), map[string]int{}
		for len(mail) > 0 {
			n := min(1+r.IntN(4), len(mail))
			for _, op := range deliver(t, state, mail[:n]) {
				taken[op.Name]++
			}
			if seed%2 == 0 {
				state.Settle()
			}
			mail, state = mail[n:], stored(t, state)
		}
		for x := range executions {
			for n := range each {
				if op := fmt.Sprint(x, ".", n); taken[op] != 1 {
					t.Errorf("seed %d: %s took effect %d times", seed, op, taken[op])
				}
			}
		}
	}
}

// For a sender that continues as new again and again, an entity holds a few IDs of the last
// executions. The same holds if one of them waits for a late request.
func TestSorter_DoesNotGrowWithTheExecutionsOfASender(t *testing.T) {
	t.Parallel()
	for late, limit := range map[bool]int{false: 1000, true: 1300} {
		state := new(entity.State)
		take := func(x int, after time.Time) (taken int) {
			at := noon.Add(time.Duration(x) * time.Second)
			r := &entity.Request{ID: entity.DeriveID(fmt.Sprint(x)), Parent: "i", ParentExecution: fmt.Sprint(x), Timestamp: at, Predecessor: after}
			taken = len(deliver(t, state, []*entity.Request{r}))
			state.Settle()
			state = stored(t, state)
			return taken
		}
		if late && take(0, noon.Add(-time.Second)) != 0 {
			t.Error("a request took effect before its predecessor")
		}
		for x := 1; x < 200; x++ {
			if take(x, time.Time{}) != 1 || take(max(1, x-10), time.Time{}) != 0 {
				t.Errorf("request %d did not take effect, or %d took effect again", x, x-10)
			}
		}
		if n := len(state.Encode()); n > limit {
			t.Errorf("the state has %d bytes, want at most %d", n, limit)
		}
	}
}
