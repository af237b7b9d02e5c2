package entity_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/entity"
)

// A branchSender is an orchestration whose branches send numbered requests to one entity.
// Workers with different clocks attempt its episodes. Only the last attempt at each episode is
// committed; the others send some of their requests.
type branchSender struct {
	r         *rand.Rand
	execution string
	labels    entity.Sorter // according to its history
	now       time.Time
	skew      int   // maximum error of the clocks, in seconds
	counts    []int // number of requests in the history, by branch
	mail      []*entity.Request
}

// attempt makes some branches send requests in random order. It returns the requests and the
// counts that apply if the attempt is committed.
func (s *branchSender) attempt(labels *entity.Sorter) (sent []*entity.Request, counts []int) {
	counts = slices.Clone(s.counts)
	s.now = s.now.Add(time.Duration(s.r.IntN(5_000_000)) * time.Microsecond)
	s.now = s.now.Add(time.Duration(s.r.IntN(10)) * 100)
	at := s.now.Add(time.Duration(s.r.IntN(2*s.skew+1)-s.skew) * time.Second)
	for range s.r.IntN(6) {
		branch := s.r.IntN(len(counts))
		r := &entity.Request{
			ID: entity.DeriveID(s.execution, fmt.Sprint(branch), fmt.Sprint(counts[branch])), Operation: fmt.Sprint(s.execution, " ", branch),
			Input: new(fmt.Sprint(counts[branch])), Parent: "teller", ParentExecution: s.execution,
		}
		labels.Label(r, "@counter@a", at, window)
		counts[branch]++
		sent = append(sent, r)
	}
	return sent, counts
}

// episode attempts an episode until it is committed.
func (s *branchSender) episode() {
	for range s.r.IntN(3) {
		lost := s.labels.Clone()
		sent, _ := s.attempt(&lost)
		for _, r := range sent {
			if s.r.IntN(3) > 0 {
				s.mail = append(s.mail, r)
			}
		}
	}
	sent, counts := s.attempt(&s.labels)
	s.mail, s.counts = append(s.mail, sent...), counts
}

// The requests of an orchestration's branches take effect in order and once. Uncommitted
// attempts, the clocks of the workers, and the order of arrival within some minutes make no
// difference.
func TestSorter_UncommittedAttemptsChangeNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(400) {
		sendAndCheck(t, seed, func(state *entity.State, r *rand.Rand) {
			if r.IntN(2) == 0 {
				state.Settle()
			}
		})
	}
}

// The same holds if many other senders send requests between any two batches, and the entity
// moves the orchestration to its past again and again.
func TestPast_UncommittedAttemptsChangeNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		crowd := 0
		sendAndCheck(t, seed, func(state *entity.State, _ *rand.Rand) {
			state.Settle()
			var requests []*entity.Request
			for range 140 {
				crowd++
				requests = append(requests, fromCrowd(crowd, 10*time.Minute))
			}
			if ran := deliver(t, state, requests); len(ran) != len(requests) {
				t.Errorf("seed %d: %d of %d requests of other senders took effect", seed, len(ran), len(requests))
			}
			state.Settle()
			deliver(t, state, nil) // this batch finds too many senders
			state.Settle()
		})
	}
}

// fromCrowd returns the only request of sender n.
func fromCrowd(n int, after time.Duration) *entity.Request {
	at := noon.Add(after + time.Duration(n)*time.Millisecond)
	return &entity.Request{ID: entity.DeriveID("crowd", fmt.Sprint(n)), Operation: "crowd", Input: new("crowd"), Parent: fmt.Sprint("member ", n), ParentExecution: "x", Timestamp: at}
}

// sendAndCheck sends the requests of some executions of a branchSender to an entity, and checks
// what takes effect. It calls between after each batch.
func sendAndCheck(t *testing.T, seed uint64, between func(*entity.State, *rand.Rand)) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	skew := []int{0, 1, 60}[seed%3]
	now := noon
	var mail []*entity.Request
	want := map[string]int{}
	for execution := range 1 + r.IntN(3) {
		s := &branchSender{r: r, execution: fmt.Sprint("x", execution), now: now, skew: skew, counts: make([]int, 1+r.IntN(3))}
		for range 1 + r.IntN(6) {
			s.episode()
		}
		now, mail = s.now, append(mail, s.mail...)
		for branch, n := range s.counts {
			want[fmt.Sprint(s.execution, " ", branch)] = n
		}
	}
	checkDelivered(t, seed, mail, want, r, between)
}

// checkDelivered delivers mail to an entity, some of it twice, and checks the order of the
// requests that take effect. Uncommitted requests may take effect after the committed ones.
func checkDelivered(t *testing.T, seed uint64, mail []*entity.Request, want map[string]int, r *rand.Rand, between func(*entity.State, *rand.Rand)) {
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
				t.Errorf("seed %d: %s ran request %s, want %s", seed, op.Name, *op.Input, number)
				return
			}
			got[op.Name]++
		}
		between(state, r)
		mail, state = mail[n:], stored(t, state)
	}
	for name, n := range want {
		if got[name] < n {
			t.Errorf("seed %d: of %s %d requests took effect, want %d", seed, name, got[name], n)
		}
	}
}
