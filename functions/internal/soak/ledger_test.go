//go:build unix

package soak_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ledger records the requests of all clients and which of them were acknowledged. A request without an
// acknowledgment is in doubt: it may have had its effect.
type ledger struct {
	mu       sync.Mutex // guards the fields below
	starts   map[string]*startedInstance
	signals  map[string]map[string]bool // by tally and token; true if acknowledged
	words    map[string][]spoken        // by listener, in order
	counts   map[string]int             // of requests: acknowledged, in doubt
	progress time.Time                  // of the last acknowledgment or completion
}

// startedInstance records an instance that a client started.
type startedInstance struct {
	shape        string
	input        any
	acknowledged bool
	completed    bool // a client saw it
}

// spoken is an event that a client raised. A process keeps the order of events only if it
// acknowledged them itself.
type spoken struct {
	token, route string
	acknowledged bool
}

func newLedger() *ledger {
	return &ledger{
		starts: map[string]*startedInstance{}, signals: map[string]map[string]bool{}, words: map[string][]spoken{},
		counts: map[string]int{}, progress: time.Now(),
	}
}

// count counts a request. The caller holds the lock.
func (l *ledger) count(acknowledged bool) {
	if acknowledged {
		l.counts["acknowledged"]++
		l.progress = time.Now()
	} else {
		l.counts["in doubt"]++
	}
}

// intend records a start before its first request.
func (l *ledger) intend(id, shape string, input any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts[id] = &startedInstance{shape: shape, input: input}
}

func (l *ledger) started(id string, acknowledged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts[id].acknowledged = l.starts[id].acknowledged || acknowledged
	l.count(acknowledged)
}

func (l *ledger) signaled(tally, token string, acknowledged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.signals[tally] == nil {
		l.signals[tally] = map[string]bool{}
	}
	l.signals[tally][token] = acknowledged
	l.count(acknowledged)
}

func (l *ledger) raised(listener string, s spoken) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.words[listener] = append(l.words[listener], s)
	l.count(s.acknowledged)
}

// asked counts a request that needs no record.
func (l *ledger) asked(acknowledged bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(acknowledged)
}

// saw records that a client saw the end of an instance.
func (l *ledger) saw(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.starts[id].completed = true
	l.progress = time.Now()
}

// heard returns the tokens of the acknowledged events of a listener.
func (l *ledger) heard(listener string) (tokens []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.words[listener] {
		if s.acknowledged {
			tokens = append(tokens, s.token)
		}
	}
	return tokens
}

// open returns the acknowledged starts whose end no client has seen.
func (l *ledger) open() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, s := range l.starts {
		if s.acknowledged && !s.completed {
			ids = append(ids, id)
		}
	}
	return slices.Sorted(slices.Values(ids))
}

// neverSeen reports whether the start of an instance is in doubt and no client saw its end.
func (l *ledger) neverSeen(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.starts[id]
	return s != nil && !s.acknowledged && !s.completed
}

// silent returns the listeners among the instances whose start is in doubt and that run: no client
// sends them events.
func (l *ledger) silent(found *contents) (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, i := range found.Instances {
		if s := l.starts[id]; s != nil && s.shape == "Listen" && !s.acknowledged && i.Status != "Completed" {
			ids = append(ids, id)
		}
	}
	return ids
}

// quietFor returns the time since the last progress.
func (l *ledger) quietFor() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.progress)
}

// A promise is the number of times and the order in which a store delivers events. Every store
// applies starts and signals exactly once.
type promise struct {
	exact   bool // events of instances arrive once and in order, as provider.ExactlyOnce says
	ordered bool // events of one client arrive in order although several processes take them
}

// effects are the figures of a judgment.
type effects struct {
	completed, signals, changes, runs, again int // again counts repeated activity runs and client events
}

// judge compares the contents of a hub with the ledger. runs has the number of runs of each
// activity.
func (l *ledger) judge(found *contents, runs map[string]int, p promise) (e effects, problems []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := &judgment{ledger: l, found: found, runs: runs, promise: p, cents: map[string]account{}, tokens: map[string]map[string]int{}}
	for _, id := range slices.Sorted(maps.Keys(l.starts)) {
		j.instance(id, l.starts[id])
	}
	for _, id := range slices.Sorted(maps.Keys(found.Instances)) {
		parent, _, _ := strings.Cut(id, "-child")
		if l.starts[parent] == nil {
			j.add("instance %s: no client started it", id)
		}
	}
	j.entities()
	for _, n := range runs {
		j.effects.runs += n
		j.effects.again += n - 1
	}
	return j.effects, j.problems
}

// judgment is a comparison in progress.
type judgment struct {
	*ledger
	found    *contents
	runs     map[string]int
	promise  promise
	cents    map[string]account        // expected
	tokens   map[string]map[string]int // expected signals of instances, by tally
	effects  effects
	problems []string
}

func (j *judgment) add(format string, args ...any) {
	j.problems = append(j.problems, fmt.Sprintf(format, args...))
}

// instance judges one start.
func (j *judgment) instance(id string, s *startedInstance) {
	got, exists := j.found.Instances[id]
	switch {
	case !exists && s.acknowledged:
		j.add("instance %s: lost after its start was acknowledged", id)
		return
	case !exists:
		return
	case got.Status != "Completed" || got.Name != s.shape:
		j.add("instance %s: %s %s %s; want %s Completed", id, got.Name, got.Status, got.Output, s.shape)
		return
	}
	j.effects.completed++
	s.completed = true
	want := ""
	switch s.shape {
	case "Steps":
		want = "14"
		j.activities(id, 3)
	case "Family":
		want = "42"
		j.family(id)
	case "Move":
		t := s.input.(transfer)
		want = fmt.Sprint(t.Cents)
		j.paid(string(t.From), -t.Cents)
		j.paid(string(t.To), t.Cents)
	case "Later":
		want = fmt.Sprintf("%q", id)
		j.expect(fmt.Sprint(s.input), id)
	case "Courier":
		want = fmt.Sprint(letters)
		j.activities(id, letters)
	case "Shop":
		j.shop(id, got.Output)
		return
	case "Watch":
		j.watch(id, got.Output)
		return
	case "Listen":
		j.conversation(id, got.Output)
		return
	}
	if got.Output != want {
		j.add("instance %s: the output is %s, want %s", id, got.Output, want)
	}
}

func (j *judgment) family(id string) {
	for _, n := range children {
		child := childOf(id, n)
		if c := j.found.Instances[child]; c.Status != "Completed" || c.Output != "14" {
			j.add("child %s: %q with output %q; want Completed with 14", child, c.Status, c.Output)
		}
		j.activities(child, 3)
	}
}

func (j *judgment) activities(id string, n int) {
	for i := 1; i <= n; i++ {
		if j.runs[runOf(id, i)] == 0 {
			j.add("activity %s: its instance completed, but it never ran", runOf(id, i))
		}
	}
}

// shop judges the steps of an instance. A step that uses results of others always gets the recorded
// ones, and the last step runs at most once.
func (j *judgment) shop(id, output string) {
	var got bill
	if err := json.Unmarshal([]byte(output), &got); err != nil {
		j.add("instance %s: the output is %s: %v", id, output, err)
	}
	j.activities(id, 3)
	if j.runs[useOf(id, got.Token)] == 0 {
		j.add("step %s: its instance completed, but it never ran", useOf(id, got.Token))
	}
	for line := range j.runs {
		if strings.HasPrefix(line, useOf(id, "")) && line != useOf(id, got.Token) {
			j.add("step %s: it got other results than %s, which the history has", line, got.Token)
		}
	}
	if n := j.runs[runOf(id, 5)]; n > 1 || n == 0 && !got.Unknown {
		j.add("step %s: it ran %d times, its outcome is unknown: %t", runOf(id, 5), n, got.Unknown)
	}
}

// watch judges a poll. Its result is the number of a call that ran and that reports the end of the poll.
func (j *judgment) watch(id, output string) {
	n, err := strconv.Atoi(output)
	if err != nil || n < looks {
		j.add("instance %s: the poll ended with %s, want at least %d", id, output, looks)
	} else if j.runs[runOf(id, n)] == 0 {
		j.add("poll %s: its instance completed, but the call never ran", runOf(id, n))
	}
}

func (j *judgment) paid(key string, cents int) {
	a := j.cents[key]
	j.cents[key] = account{a.Cents + cents, a.Changes + 1}
}

// expect records a signal that an instance sent to a tally.
func (j *judgment) expect(tally, token string) {
	if j.tokens[tally] == nil {
		j.tokens[tally] = map[string]int{}
	}
	j.tokens[tally][token]++
}

// conversation judges the events of a listener.
func (j *judgment) conversation(id, output string) {
	var heard []string
	if output == "" { // it heard nothing
		output = "null"
	}
	if err := json.Unmarshal([]byte(output), &heard); err != nil {
		j.add("listener %s: the output is %s: %v", id, output, err)
		return
	}
	times := map[string]int{}
	var first []string
	for _, token := range heard {
		if times[token]++; times[token] == 1 {
			first = append(first, token)
		}
	}
	place := func(token string) int { return slices.Index(first, token) }
	last := map[string]spoken{} // by route
	for _, s := range j.words[id] {
		switch n := times[s.token]; {
		case n == 0 && s.acknowledged:
			j.add("listener %s: event %s is lost", id, s.token)
		case n > 1:
			j.effects.again += n - 1
		}
		delete(times, s.token)
		if !s.acknowledged || !j.promise.exact {
			continue
		}
		route := s.route
		if j.promise.ordered {
			route = ""
		}
		if before, ok := last[route]; ok && place(before.token) > place(s.token) {
			j.add("listener %s: event %s arrived before %s, which was acknowledged earlier: %v", id, s.token, before.token, heard)
		}
		last[route] = s
	}
	for _, courier := range slices.Sorted(maps.Keys(j.starts)) {
		if s := j.starts[courier]; s.shape == "Courier" && s.input == id {
			j.letters(id, courier, heard)
		}
	}
	for token := range times {
		if !strings.Contains(token, "/letter") {
			j.add("listener %s: no client sent event %s", id, token)
		}
	}
}

// letters judges the events that a courier sent to a listener. The listener may end before it hears
// all events of a courier whose start is in doubt.
func (j *judgment) letters(id, courier string, heard []string) {
	want := lettersOf(courier)
	got := slices.DeleteFunc(slices.Clone(heard), func(token string) bool { return !slices.Contains(want, token) })
	fits := got
	if !j.promise.exact {
		fits = slices.Compact(slices.Sorted(slices.Values(got)))
	}
	if j.starts[courier].acknowledged && !slices.Equal(fits, want) || j.promise.exact && !slices.Equal(fits, want[:min(len(fits), len(want))]) {
		j.add("listener %s: the events of %s are %v, want %v; once and in order: %v", id, courier, got, want, j.promise.exact)
	}
}

// entities judges accounts and tallies.
func (j *judgment) entities() {
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(j.found.Entities)) {
		e := j.found.Entities[name]
		if e.LockedBy != "" || e.Queue > 0 {
			j.add("entity %s: locked by %q, %d operations wait", name, e.LockedBy, e.Queue)
		}
		kind, key, _ := strings.Cut(name, "/")
		switch kind {
		case "account":
			var got account
			if err := json.Unmarshal(e.State, &got); err != nil || got != j.cents[key] {
				j.add("account %s: %s, %v; want %+v", key, e.State, err, j.cents[key])
			}
			sum += got.Cents
			j.effects.changes += got.Changes
			delete(j.cents, key)
		case "tally":
			var got tally
			if err := json.Unmarshal(e.State, &got); err != nil {
				j.add("tally %s: %s: %v", key, e.State, err)
			}
			j.tally(key, got.Tokens)
		default:
			j.add("entity %s: no client uses it", name)
		}
	}
	if sum != 0 {
		j.add("the accounts have %d cents in sum, want 0", sum)
	}
	for _, key := range slices.Sorted(maps.Keys(j.cents)) {
		j.add("account %s: missing, want %+v", key, j.cents[key])
	}
	for _, key := range slices.Sorted(maps.Keys(j.signals)) {
		if _, exists := j.found.Entities["tally/"+key]; !exists {
			j.tally(key, nil)
		}
	}
}

// tally judges the signals that an entity counted.
func (j *judgment) tally(key string, got map[string]int) {
	for token, n := range got {
		j.effects.signals += n
		acknowledged, sent := j.signals[key][token]
		want := j.tokens[key][token]
		switch {
		case acknowledged && n == 1, sent && n <= 1, !sent && n == want:
		default:
			j.add("tally %s: signal %s counts %d times; acknowledged %v", key, token, n, acknowledged || want > 0)
		}
	}
	for token, acknowledged := range j.signals[key] {
		if acknowledged && got[token] == 0 {
			j.add("tally %s: the acknowledged signal %s is lost", key, token)
		}
	}
	for token := range j.tokens[key] {
		if got[token] == 0 {
			j.add("tally %s: the signal of instance %s is lost", key, token)
		}
	}
}
