package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Contest is an ID that several clients start at about the same time, and again when
// what they started has ended.
type Contest struct {
	ID      string
	Program int
	Begin   time.Duration
	Rounds  int
	Clients int // of each round
	// Any says that a start replaces an instance that has not ended, too.
	Any bool
	// Meddled says that clients also suspend, terminate, rewind and purge.
	Meddled bool
	// Large says that inputs do not fit into messages.
	Large bool
}

// lastOfContest is the step of a contest's program after which it ends.
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

// A bid is one attempt to start the ID of a contest. Its path tells its activities from
// those of the others.
type bid struct {
	contest          Contest
	path             string
	called, returned time.Duration
	outcome          bidOutcome
}

type bidOutcome int

const (
	pendingBid bidOutcome = iota
	wonBid                // the client was told that it started the instance
	refusedBid            // it was told that there is another
	cutOffBid             // it was told neither
)

func (o bidOutcome) String() string { return [...]string{"begun", "won", "refused", "cut off"}[o] }

var (
	liveStatuses = []history.RuntimeStatus{history.Pending, history.Running, history.ContinuedAsNew, history.Suspended}
	allStatuses  = append(slices.Clone(liveStatuses), history.Completed, history.Failed, history.Terminated, history.Canceled)
)
