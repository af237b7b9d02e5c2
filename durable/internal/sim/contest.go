package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Contest is an ID that several clients start at about the same time, and again after the started instance
// has ended.
type Contest struct {
	ID      string
	Program int
	Begin   time.Duration
	Rounds  int
	Clients int // number of clients per round
	// Any lets a start replace an instance that has not ended.
	Any bool
	// Meddled lets clients also suspend, resume, terminate, rewind and purge the instance.
	Meddled bool
	// Large makes the inputs too large for a message.
	Large bool
}

// lastOfContest is the index of the last step of a contest's program, which calls an activity.
const lastOfContest = 3

func newContest(r *rand.Rand, id string, app *App) Contest {
	g := generator{r: r}
	c := Contest{
		ID: id, Program: len(app.Programs), Begin: g.upTo(20 * time.Second), Rounds: 1 + r.IntN(4), Clients: 1 + r.IntN(4),
		Any: g.oneIn(4), Meddled: g.oneIn(3), Large: g.oneIn(4),
	}
	program := Program{Fails: c.Meddled && g.oneIn(3)}
	for len(program.Steps) < lastOfContest {
		program.Steps = append(program.Steps, Step{Kind: SleepStep, Wait: g.upTo(3 * time.Second)}, Step{Kind: CallStep})
	}
	app.Programs = append(app.Programs, program)
	return c
}

// bid is one attempt to start the ID of a contest. Its path identifies its activities.
type bid struct {
	contest          Contest
	path             string
	called, returned time.Duration
	outcome          bidOutcome
}

type bidOutcome int

const (
	pendingBid bidOutcome = iota
	wonBid                // the start succeeded
	refusedBid            // the start failed because the instance exists
	unclearBid            // the result is unknown
)

func (o bidOutcome) String() string { return [...]string{"pending", "won", "refused", "unclear"}[o] }

var (
	liveStatuses = []history.RuntimeStatus{history.Pending, history.Running, history.ContinuedAsNew, history.Suspended}
	allStatuses  = append(slices.Clone(liveStatuses), history.Completed, history.Failed, history.Terminated, history.Canceled)
)

// contestRun implements the contests of a simulation.
type contestRun struct{ *simulation }

// contest lets clients start an ID in several rounds.
func (s contestRun) contest(ctx context.Context, c Contest) {
	s.sleepUntil(c.Begin)
	for round := range c.Rounds {
		var clients sync.WaitGroup
		for n := range c.Clients {
			clients.Go(func() { s.bidFor(ctx, c, fmt.Sprintf("%s.%d.%d", c.ID, round, n)) })
		}
		if c.Meddled {
			clients.Go(func() { s.meddle(ctx, c, round) })
		}
		clients.Wait()
		if !s.awaitContest(ctx, c) {
			return
		}
	}
	// In the end the ID can always be started. Purging this instance also deletes the blobs of starts that
	// were interrupted.
	s.sleepUntil(s.plan.Quiet)
	s.bidFor(ctx, c, c.ID+".last")
	s.awaitContest(ctx, c)
}

// bidFor runs one client that starts an ID. It usually retries after an interrupted attempt.
func (s contestRun) bidFor(ctx context.Context, c Contest, name string) {
	r := rand.New(rand.NewPCG(s.plan.Seed, mix(0xB1D, name)))
	g := generator{r: r}
	client, kill, err := s.platform.Caller(name)
	if err != nil {
		s.fault("open client %s: %v", name, err)
		return
	}
	ctx = s.platform.Context(ctx, name)
	_, _ = client.Instance(ctx, c.ID, provider.Fetch{}) // creates the hub, so that no interrupted call does
	pause.For(ctx, g.upTo(100*time.Millisecond))
	for n := range 1 + r.IntN(4) {
		b := &bid{contest: c, path: fmt.Sprintf("%s.%d", name, n), called: time.Since(s.begin)}
		s.mu.Lock()
		s.bids = append(s.bids, b)
		s.mu.Unlock()
		after, cut := s.cut(b.path)
		attempt, cancel := context.WithCancel(ctx)
		dies := false
		if cut {
			attempt, cancel = context.WithTimeout(ctx, after)
			if dies = g.oneIn(4); dies {
				context.AfterFunc(attempt, kill)
			}
		}
		err := s.place(attempt, client, b)
		cancel()
		s.mu.Lock()
		b.returned = time.Since(s.begin)
		switch {
		case err == nil:
			b.outcome = wonBid
		case errors.Is(err, durable.ErrInstanceExists):
			b.outcome = refusedBid
		default:
			b.outcome = unclearBid
			if b.called > s.plan.Quiet {
				s.faults = append(s.faults, fmt.Sprintf("start %s: %v", b.path, err))
			}
		}
		s.mu.Unlock()
		if b.outcome != unclearBid || dies {
			return
		}
		pause.For(ctx, g.upTo(time.Duration(1+r.IntN(20))*time.Second))
	}
}

// place starts the instance of a bid.
func (s contestRun) place(ctx context.Context, client provider.Client, b *bid) error {
	in := Input{Path: b.path, Program: b.contest.Program}
	if b.contest.Large {
		in.Pad = strings.Repeat("p", big)
	}
	input, err := json.Marshal(in)
	if err != nil {
		return err
	}
	started := &history.ExecutionStarted{
		Header:   history.NewHeader(time.Now()),
		Instance: history.OrchestrationInstance{InstanceID: b.contest.ID, ExecutionID: fmt.Sprintf("%032x", mix(s.plan.Seed, b.path))},
		Name:     string(child), Input: new(string(input)),
	}
	refuse := liveStatuses
	if b.contest.Any {
		refuse = nil
	}
	return client.StartInstance(ctx, provider.TaskMessage{Event: started, Target: started.Instance}, refuse)
}

// meddle performs random client actions on the instance of a contest and gives up some of them.
func (s contestRun) meddle(ctx context.Context, c Contest, round int) {
	r := rand.New(rand.NewPCG(s.plan.Seed, mix(0x3ED, fmt.Sprint(c.ID, round))))
	g := generator{r: r}
	id := durable.InstanceID(c.ID)
	for n := range r.IntN(4) {
		pause.For(ctx, g.upTo(6*time.Second))
		// Errors are ignored: the instance may have a status that refuses the action.
		_ = s.retryUntilClear(ctx, fmt.Sprint("meddle ", c.ID, round, n), func(ctx context.Context) (err error) {
			switch (mix(s.plan.Seed, c.ID) + uint64(round+n)) % 5 {
			case 0:
				err = s.client.Terminate(ctx, id, "enough")
			case 1:
				err = s.client.Suspend(ctx, id, "for a while")
			case 2:
				err = s.client.Resume(ctx, id, "again")
			case 3:
				err = s.client.Rewind(ctx, id, "again")
			case 4:
				_, err = s.client.Purge(ctx, id)
			}
			return err
		})
	}
}

// awaitContest waits until the ID of a contest is unused or its instance has ended.
func (s contestRun) awaitContest(ctx context.Context, c Contest) bool {
	id := durable.InstanceID(c.ID)
	for deadline := time.Now().Add(patience); ; pause.For(ctx, interval) {
		state, err := s.client.Status(ctx, id, durable.Fetch{})
		switch {
		case errors.Is(err, durable.ErrInstanceNotFound):
			return true
		case err != nil: // the client's requests can fail, too
		case state.Status.IsTerminal():
			return true
		case state.Status == history.Suspended:
			_ = s.client.Resume(ctx, id, "again") // retried in the next iteration if it fails
		}
		if time.Now().After(deadline) {
			s.fault("%s has not ended; its state is %+v, %v", c.ID, state, err)
			return false
		}
	}
}

// checkContests compares the results of starts with the activities that ran. The instance of a successful
// start ran to its end. A refused start ran nothing. Of two starts that replaced the same instance, at most
// one succeeded.
func (s contestRun) checkContests(ctx context.Context) {
	for _, c := range s.plan.Contests {
		s.awaitContest(ctx, c)
		state, err := s.client.Status(ctx, durable.InstanceID(c.ID), durable.Fetch{Output: true, Input: true})
		if err != nil && !errors.Is(err, durable.ErrInstanceNotFound) {
			s.fault("status of %s: %v", c.ID, err)
		}
		s.checkBids(c, state)
	}
}

func (s contestRun) checkBids(c Contest, last *durable.InstanceState) {
	x := contestResult{contest: c, began: map[string]time.Duration{}, ended: map[string]time.Duration{}}
	s.mu.Lock()
	for _, run := range slices.Backward(s.runs) { // the first run of each step counts
		path, rest, _ := strings.Cut(run.Key, "/")
		x.began[path] = run.At
		if strings.HasPrefix(rest, fmt.Sprintf("0/%d/", lastOfContest)) {
			x.ended[path] = run.At
		}
	}
	x.bids = slices.DeleteFunc(slices.Clone(s.bids), func(b *bid) bool { return b.contest.ID != c.ID })
	s.mu.Unlock()
	for _, b := range x.bids {
		if last != nil && last.Input != nil && strings.Contains(*last.Input, strconv.Quote(b.path)) {
			x.final = b
		}
	}
	if last != nil && x.final == nil && !s.isRecreated(last) {
		s.fault("the instance of %s belongs to none of the starts: %+v", c.ID, last)
	}
	for _, b := range x.bids {
		s.checkBid(&x, b)
	}
	if x.final == nil || c.Meddled {
		return
	}
	if sum, _ := s.plan.App.expect(Input{Path: x.final.path, Program: c.Program}); last.Status != history.Completed || *last.Output != strconv.FormatUint(sum, 10) {
		s.fault("%s is %+v, want it completed with %d", c.ID, last, sum)
	}
}

// contestResult collects the results of a contest.
type contestResult struct {
	contest      Contest
	bids         []*bid // in the order of their calls
	final        *bid   // the bid whose instance exists at the end; nil if none does
	began, ended map[string]time.Duration
}

// checkBid checks a start against the activities that ran and against earlier starts.
func (s contestRun) checkBid(x *contestResult, b *bid) {
	what := fmt.Sprintf("start %s from %v to %v, %v,", b.path, b.called, b.returned, b.outcome)
	_, began := x.began[b.path]
	end, ended := x.ended[b.path]
	switch {
	case b.outcome == refusedBid && began && s.plan.Repeats == 0 && s.plan.Faults == 0:
		s.fault("%s ran although it was refused", what)
	case b.outcome != wonBid || x.contest.Meddled:
	case x.contest.Any:
		if x.final == nil || x.final.outcome == wonBid && x.final.returned < b.called {
			s.fault("%s was replaced by an earlier start: %+v", what, x.final)
		}
	case !ended:
		s.fault("%s did not run to its end", what)
	default:
		for _, other := range x.bids[:slices.Index(x.bids, b)] {
			if other.outcome == wonBid && end > other.returned && x.ended[other.path] > b.returned {
				s.fault("%s and %s from %v to %v were both acknowledged", what, other.path, other.called, other.returned)
			}
		}
	}
}
