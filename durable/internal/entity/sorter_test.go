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

// names returns what the requests ask for, in order.
func names(requests []*entity.Request) string {
	var all []string
	for _, r := range requests {
		all = append(all, r.Operation)
	}
	return strings.Join(all, " ")
}

// A sent request is one of sender "a" unless it says otherwise. Times are in
// minutes after noon; -1 is none.
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

// The rules of MessageSorter.ReceiveInOrder, and ours.
func TestSorter_ReceiveInOrder(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		window   time.Duration
		requests []sentRequest
		want     []string // what each lets through
	}{
		{"in order", window, []sentRequest{{op: "1", at: 0, after: -1}, {op: "2", at: 1, after: 0}}, []string{"1", "2"}},
		{
			"what comes before its predecessor waits", window,
			[]sentRequest{{op: "3", at: 2, after: 1}, {op: "2", at: 1, after: 0}, {op: "1", at: 0, after: -1}},
			[]string{"", "", "1 2 3"},
		},
		{"without a window nothing waits", 0, []sentRequest{{op: "2", at: 1, after: 0}, {op: "1", at: 0, after: -1}}, []string{"2", "1"}},
		{"clients are not sorted", window, []sentRequest{{op: "2", at: 1, after: 0, from: "a client"}}, []string{"2"}},
		{"what has no label is not sorted", window, []sentRequest{{op: "2", at: -1, after: -1}, {op: "1", at: -1, after: -1}}, []string{"2", "1"}},
		{"locks that are passed on are not sorted", window, []sentRequest{{op: "2", at: 1, after: 0, position: 1}}, []string{"2"}},
		{"what comes again is dropped", window, []sentRequest{{op: "1", at: 0, after: -1}, {op: "1", at: 0, after: -1}}, []string{"1", ""}},
		{
			"senders do not wait for each other", window,
			[]sentRequest{{op: "a2", at: 1, after: 0}, {op: "b1", at: 0, after: -1, from: "b"}},
			[]string{"", "b1"},
		},
		{
			"ours: a new execution begins anew, and what came of the old one waits for what is late", window,
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
			"ours: what came of an execution is all there will be when five more have come, of which four wait, too", window,
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
			"ours: what may follow what came of a forgotten execution does not wait for it", window,
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
			"ours: the requests of two executions may come in any order, and all have one time", window,
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
			"what is older than the window is let through", window,
			[]sentRequest{{op: "late", at: 60, after: -1}, {op: "old", at: 1, after: 0, from: "b"}},
			[]string{"late", "old"},
		},
		{
			"nobody waits for longer than the window", window,
			[]sentRequest{{op: "2", at: 1, after: 0}, {op: "b", at: 32, after: -1, from: "b"}},
			[]string{"", "2 b"},
		},
		{
			"ten seconds pass before anything is forgotten", window,
			[]sentRequest{{op: "first", at: 0, after: -1, from: "b"}, {op: "2", at: 1, after: 0.5}, {op: "b", at: 30.1, after: 0, from: "b"}},
			[]string{"first", "", "b"},
		},
		{
			"ours: what follows the first of a new execution need not wait for it again, whose label is that of the last of the old one", window,
			[]sentRequest{{op: "1", at: 1, after: -1, execution: "x"}, {op: "1'", at: 1, after: -1, execution: "y"}, {op: "2'", at: 2, after: 1, execution: "y"}},
			[]string{"1", "1'", "2'"},
		},
		{
			"ours: nor if the old one's worker had a clock that was ahead", window,
			[]sentRequest{
				{op: "1", at: 5, after: -1, execution: "x"},
				{op: "1'", at: 3, after: -1, execution: "y"},
				{op: "2'", at: 4, after: 3, execution: "y"},
				{op: "3'", at: 6, after: 4, execution: "y"},
			},
			[]string{"1", "1'", "2'", "3'"},
		},
		{
			"ours: what comes again with another label is dropped, and its successor follows it", window,
			[]sentRequest{{op: "1", at: 0, after: -1, id: "one"}, {op: "1", at: 2, after: -1, id: "one"}, {op: "2", at: 3, after: 2}},
			[]string{"1", "", "2"},
		},
		{
			"ours: what waits for a request that a lost attempt did not get to send is left behind", window,
			[]sentRequest{{op: "lost's", at: 1, after: 0}, {op: "1", at: 2, after: -1}, {op: "2", at: 3, after: 2}},
			[]string{"", "1", "2"},
		},
		{
			"ours: what a lost attempt sent is left to come again", window,
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
			"ours: also if both attempts have to wait", window,
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
			"ours: what is late of an execution that is over changes nothing for the next", window,
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
			"ours: an attempt that was lost may have had a clock that was ahead of the one that counts", window,
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
			"ours: what a lost attempt sent with a clock that was ahead lets nothing pass", window,
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
			"ours: what waits for its predecessor is not given up because of another attempt", window,
			[]sentRequest{
				{op: "2", at: 2, after: 1},
				{op: "1", at: 10, after: -1, id: "one"}, // whoever sent it died then
				{op: "1", at: 1, after: -1, id: "one"},
			},
			[]string{"", "1", "2"},
		},
		{
			"ours: what lost attempts sent is left behind when something of a later episode comes", window,
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
			"ours: the second request of an execution waits for its first, whatever the labels of the one before", window,
			[]sentRequest{
				{op: "1", at: 5, after: -1, execution: "x"},
				{op: "2'", at: 4, after: 3, execution: "y"},
				{op: "1'", at: 3, after: -1, execution: "y"},
			},
			[]string{"1", "", "1' 2'"},
		},
		{
			"ours: attempts whose clocks are behind may have given one label to different requests", window,
			[]sentRequest{
				{op: "3", at: 3, after: 2, id: "three"},
				{op: "2", at: 3, after: 2, id: "two"},
				{op: "1", at: 2, after: -1},
			},
			[]string{"", "", "1 3 2"},
		},
		{
			"ours: also if it had to wait", window,
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

// The rules of MessageSorter.LabelOutgoingMessage.
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
		{"one of the same time is a tick later, without a zone", "a", noon, `"2026-11-20T12:00:00.0000001","2026-11-20T12:00:00Z"`},
		{"a clock that goes back does not", "a", noon.Add(-time.Hour), `"2026-11-20T12:00:00.0000003","2026-11-20T12:00:00.0000001"`},
		{"ours: two attempts whose clocks are behind have different labels", "a", noon.Add(-time.Hour + 700), `"2026-11-20T12:00:00.0000012","2026-11-20T12:00:00.0000003"`},
		{"and what one sends has labels without gaps", "a", noon.Add(-time.Hour + 700), `"2026-11-20T12:00:00.0000013","2026-11-20T12:00:00.0000012"`},
		{"a clock that is only a little behind has more room for that", "a", noon.Add(-time.Minute + 3*time.Millisecond), `"2026-11-20T12:00:00.0030015","2026-11-20T12:00:00.0000013"`},
		{"other receivers are apart", "b", noon, `"2026-11-20T12:00:00Z","0001-01-01T00:00:00"`},
		{"what is older than the window is forgotten", "a", noon.Add(time.Hour), `"2026-11-20T13:00:00Z","0001-01-01T00:00:00"`},
	} {
		if got := label(step.to, step.at); got != step.want {
			t.Errorf("%s: got %s, want %s", step.name, got, step.want)
		}
	}
}

// Fifty senders send twenty signals each. They come in any order and some
// several times, and each sender's take effect in order, once.
func TestSorter_DeliversInOrderAndOnceWhateverComes(t *testing.T) {
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
			t.Errorf("seed %d: %d senders were heard, want %d", seed, len(got), senders)
		}
		for from, ops := range got {
			if !slices.Equal(ops, want) {
				t.Errorf("seed %d: %s was heard as %v", seed, from, ops)
			}
		}
	}
}

// withoutWindow returns an entity that knows request 0 of sender a, and holds 2 and 3 until 1
// comes, in a hub that had a reorder window then and has none now.
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

// What waits for a request that is late takes effect after that, whoever else sends something
// meanwhile: others wait for nobody.
func TestSorter_WithoutAWindowWhatWaitsTakesItsTurn(t *testing.T) {
	t.Parallel()
	p, _ := withoutWindow(t)
	for _, r := range []sentRequest{
		{op: "other", from: "b", at: 9, after: 8},
		{op: "signal", from: "a client", at: -1, after: -1},
		{op: "unlabelled", at: -1, after: -1},
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
	if got, want := strings.Join(ran, " "), "other signal unlabelled 1 2 3 4"; got != want {
		t.Errorf("ran %q, want %q", got, want)
	}
}

// An episode runs again where requests have no labels, and sends all of its requests again.
func TestSorter_WithoutAWindowItKnowsWhatItKnew(t *testing.T) {
	t.Parallel()
	p, ran := withoutWindow(t)
	for range 2 {
		for _, r := range []sentRequest{{op: "0", at: -1, after: -1}, {op: "1", at: -1, after: -1}, {op: "2", at: -1, after: -1}, {op: "3", at: -1, after: -1}} {
			p.run(ran, op(*r.request()))
			p.state.Settle()
		}
	}
	for _, r := range []sentRequest{{op: "1", at: 1, after: -1}, {op: "2", at: 2, after: 1}} { // of the attempt that was lost
		p.run(ran, op(*r.request()))
		p.state.Settle()
	}
	if diff := cmp.Diff(map[string]int{"0": 1, "1": 1, "2": 1, "3": 1}, ran); diff != "" {
		t.Errorf("operations (-want +got):\n%s", diff)
	}
}

// What waits for a request that never comes takes effect when the clock says so, and of
// senders nothing stays.
func TestSorter_WithoutAWindowItForgetsByTheClock(t *testing.T) {
	t.Parallel()
	p, ran := withoutWindow(t)
	p.now = noon.Add(30 * time.Minute)
	p.run(ran, clientSignal("get"))
	if ran["2"]+ran["3"] > 0 {
		t.Errorf("ran %v before the time has come", ran)
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
		t.Errorf("the state is %s, want that nothing is left to sort", state)
	}
}

// A sender of ours passes a lock on and gives its next request a label that is not
// after the lock's, since its clock went back or has not moved. One of .NET has its
// next request follow the lock.
func TestSorter_ALockThatIsPassedOnMakesNothingOld(t *testing.T) {
	t.Parallel()
	var s entity.Sorter
	receive := func(r sentRequest, want string) {
		t.Helper()
		if got := names(s.Receive(r.request(), window)); got != want {
			t.Errorf("%s lets %q through, want %q", r.op, got, want)
		}
	}
	receive(sentRequest{op: "1", at: 0, after: -1}, "1")
	if got := s.Passed(sentRequest{op: "lock", at: 5, after: 0, position: 1}.request(), "a"); len(got) > 0 {
		t.Errorf("the lock lets %q through", names(got))
	}
	receive(sentRequest{op: "2", at: 3, after: 0}, "2")
	receive(sentRequest{op: "3", at: 5, after: 3}, "3")
	receive(sentRequest{op: "of .NET", at: 6, after: 5}, "of .NET")
	receive(sentRequest{op: "of .NET", at: 6, after: 5}, "")
}

// A sender continues as new again and again while its clock stands still, and what its
// executions send comes in any order and some of it several times, to an entity that is
// stored after each batch. It knows but the last executions, and takes all of it, once.
func TestSorter_TakesOnceWhatComesOfExecutionsThatItHasForgotten(t *testing.T) {
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
					t.Errorf("seed %d: %s was taken %d times", seed, op, taken[op])
				}
			}
		}
	}
}

// A sender that continues as new again and again has an entity remember a few of its IDs:
// those of the last executions. It is the same if one of them waits for a late request.
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
			t.Error("a request was taken before its predecessor")
		}
		for x := 1; x < 200; x++ {
			if take(x, time.Time{}) != 1 || take(max(1, x-10), time.Time{}) != 0 {
				t.Errorf("request %d or %d is not taken once", x, x-10)
			}
		}
		if n := len(state.Encode()); n > limit {
			t.Errorf("the state has %d bytes, want at most %d", n, limit)
		}
	}
}
