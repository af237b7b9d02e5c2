package entity_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// A teller is an orchestration with branches that tell one entity this and that:
// each numbers what it says. Its episodes are attempted by workers whose clocks
// differ, and only the last attempt of each counts. The others get to send some of
// what they decide.
type teller struct {
	r         *rand.Rand
	execution string
	labels    entity.Sorter // as its history has them
	now       time.Time
	skew      int   // how far clocks are from the right time, in seconds
	told      []int // by branch, what its history has
	mail      []*entity.Request
}

// attempt lets some branches say something in some order, and returns what they
// say and what of each would have been told then.
func (s *teller) attempt(labels *entity.Sorter) (sent []*entity.Request, told []int) {
	told = slices.Clone(s.told)
	s.now = s.now.Add(time.Duration(s.r.IntN(5_000_000)) * time.Microsecond)
	s.now = s.now.Add(time.Duration(s.r.IntN(10)) * 100)
	at := s.now.Add(time.Duration(s.r.IntN(2*s.skew+1)-s.skew) * time.Second)
	for range s.r.IntN(6) {
		branch := s.r.IntN(len(told))
		r := &entity.Request{
			ID: entity.DeriveID(s.execution, fmt.Sprint(branch), fmt.Sprint(told[branch])), Operation: fmt.Sprint(s.execution, " ", branch),
			Input: new(fmt.Sprint(told[branch])), Parent: "teller", ParentExecution: s.execution,
		}
		labels.Label(r, "@counter@a", at, window)
		told[branch]++
		sent = append(sent, r)
	}
	return sent, told
}

// episode attempts an episode until it counts.
func (s *teller) episode() {
	for range s.r.IntN(3) {
		lost := s.labels.Clone()
		sent, _ := s.attempt(&lost)
		for _, r := range sent {
			if s.r.IntN(3) > 0 {
				s.mail = append(s.mail, r)
			}
		}
	}
	sent, told := s.attempt(&s.labels)
	s.mail, s.told = append(s.mail, sent...), told
}

// What an orchestration's branches tell an entity takes effect in their order, once,
// whatever attempts there were besides those that count, whatever clocks they had,
// and in whatever order it comes within some minutes.
func TestSorter_AttemptsThatDoNotCountChangeNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		tellAndCheck(t, seed, func(state *entity.State, r *rand.Rand) {
			if r.IntN(2) == 0 {
				state.Settle()
			}
		})
	}
}

// It is the same if so many others send something between any two batches that the entity
// puts the orchestration into its past again and again.
func TestPast_AttemptsThatDoNotCountChangeNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		crowd := 0
		tellAndCheck(t, seed, func(state *entity.State, _ *rand.Rand) {
			state.Settle()
			var requests []*entity.Request
			for range 140 {
				crowd++
				requests = append(requests, fromCrowd(crowd, 10*time.Minute))
			}
			if ran := deliver(t, state, requests); len(ran) != len(requests) {
				t.Errorf("seed %d: %d of %d others were heard", seed, len(ran), len(requests))
			}
			state.Settle()
			deliver(t, state, nil) // now there are too many
			state.Settle()
		})
	}
}

// fromCrowd is the only request of one of many senders.
func fromCrowd(n int, after time.Duration) *entity.Request {
	at := noon.Add(after + time.Duration(n)*time.Millisecond)
	return &entity.Request{ID: entity.DeriveID("crowd", fmt.Sprint(n)), Operation: "crowd", Input: new("crowd"), Parent: fmt.Sprint("member ", n), ParentExecution: "x", Timestamp: at}
}

// tellAndCheck has some executions of a teller tell an entity something. Between is what
// happens between two batches of that.
func tellAndCheck(t *testing.T, seed uint64, between func(*entity.State, *rand.Rand)) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	skew := []int{0, 1, 60}[seed%3]
	now := noon
	var mail []*entity.Request
	want := map[string]int{}
	for execution := range 1 + r.IntN(3) {
		s := &teller{r: r, execution: fmt.Sprint("x", execution), now: now, skew: skew, told: make([]int, 1+r.IntN(3))}
		for range 1 + r.IntN(6) {
			s.episode()
		}
		now, mail = s.now, append(mail, s.mail...)
		for branch, n := range s.told {
			want[fmt.Sprint(s.execution, " ", branch)] = n
		}
	}
	checkTold(t, seed, mail, want, r, between)
}

// checkTold has a sorter receive mail, some of it twice, and looks what is
// delivered. What does not count may be, after what does.
func checkTold(t *testing.T, seed uint64, mail []*entity.Request, want map[string]int, r *rand.Rand, between func(*entity.State, *rand.Rand)) {
	t.Helper()
	for _, m := range mail {
		if r.IntN(10) == 0 {
			mail = append(mail, m)
		}
	}
	if r.IntN(2) == 0 {
		r.Shuffle(len(mail), func(i, j int) { mail[i], mail[j] = mail[j], mail[i] })
	}
	got, state := map[string]int{}, new(entity.State)
	for len(mail) > 0 {
		n := min(1+r.IntN(5), len(mail))
		for _, op := range deliver(t, state, mail[:n]) {
			if number := fmt.Sprint(got[op.Name]); *op.Input != number {
				t.Errorf("seed %d: %s says %s, want %s", seed, op.Name, *op.Input, number)
				return
			}
			got[op.Name]++
		}
		between(state, r)
		mail, state = mail[n:], stored(t, state)
	}
	for name, n := range want {
		if got[name] < n {
			t.Errorf("seed %d: %s was heard to say %d things, want %d", seed, name, got[name], n)
		}
	}
}
