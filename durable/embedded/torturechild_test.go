package embedded_test

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A torturer makes random operations on a hub until it is killed. It reports each acknowledged
// operation on standard output:
//
//	S instance                     started
//	E instance token               sent an event
//	C instance execution n digest  committed: the history has n events
//	A instance execution task      completed an activity
//
// Tokens are unique, so that lost and duplicated messages are detected.
type torturer struct {
	hub    *embedded.Hub
	seed   uint64
	tokens atomic.Int64

	mu  sync.Mutex
	ids []string
}

// tortureHub runs in a child process. Its argument contains a seed, whether the hub is relaxed, and
// the hub's path.
func tortureHub(arg string) error {
	var seed uint64
	var relaxed bool
	var path string
	if _, err := fmt.Sscan(arg, &seed, &relaxed, &path); err != nil {
		return err
	}
	return torture(seed, relaxed, path, nil)
}

// torture makes random operations on a hub. It also runs more, which may be nil.
func torture(seed uint64, relaxed bool, path string, more func(*embedded.Hub) error) error {
	ctx := context.Background()
	hub, err := embedded.Open(path, embedded.Config{
		Relaxed: relaxed, AbandonDelay: time.Millisecond, MaxAbandonDelay: 5 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	hub.FlushAt(30_000)
	x := &torturer{hub: hub, seed: seed}
	page, err := hub.Instances(ctx, provider.Query{
		PageSize: 10_000, Statuses: []history.RuntimeStatus{history.Running, history.Pending},
	})
	if err != nil {
		return err
	}
	for _, s := range page.Instances {
		x.ids = append(x.ids, s.Instance.InstanceID)
	}
	fmt.Println("open")
	errs := make(chan error)
	go func() { errs <- hub.Run(ctx) }()
	if more != nil {
		go func() { errs <- more(hub) }()
	}
	for i, work := range []func(*rand.Rand) error{x.start, x.send, x.send, x.orchestrate, x.orchestrate, x.orchestrate, x.act, x.act, x.act} {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		go func() {
			for {
				if err := work(r); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	return <-errs
}

// say reports an acknowledged operation in a single write, which is atomic on a pipe.
func say(format string, args ...any) {
	_, _ = fmt.Fprintf(os.Stdout, format+"\n", args...)
}

func (x *torturer) token() string { return fmt.Sprintf("%d.%d", x.seed, x.tokens.Add(1)) }

func (x *torturer) anyID(r *rand.Rand) (string, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.ids) == 0 {
		return "", false
	}
	return x.ids[r.IntN(len(x.ids))], true
}

func (x *torturer) start(r *rand.Rand) error {
	time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond) // real time: the parent kills this process at a random time
	id := "i" + x.token()
	start := &history.ExecutionStarted{
		Header: history.NewHeader(time.Now()), Name: "Orchestrator", Input: new(strings.Repeat("x", r.IntN(2000))),
		Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: "e" + id},
	}
	err := x.hub.StartInstance(context.Background(), provider.TaskMessage{Event: start, Target: start.Instance}, nil)
	if err != nil {
		return err
	}
	say("S %s", id)
	x.mu.Lock()
	x.ids = append(x.ids, id)
	x.mu.Unlock()
	return nil
}

func (x *torturer) event(r *rand.Rand, id string) provider.TaskMessage {
	input := strings.Repeat("y", r.IntN(300))
	if r.IntN(50) == 0 {
		input = strings.Repeat("z", 50_000)
	}
	e := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: x.token(), Input: &input}
	return provider.TaskMessage{Event: e, Target: history.OrchestrationInstance{InstanceID: id}}
}

func (x *torturer) send(r *rand.Rand) error {
	time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond) // real time: the parent kills this process at a random time
	id, ok := x.anyID(r)
	if !ok {
		return nil
	}
	m := x.event(r, id)
	if err := x.hub.Send(context.Background(), m); err != nil {
		return err
	}
	say("E %s %s", id, m.Event.(*history.EventRaised).Name)
	return nil
}

func (x *torturer) act(r *rand.Rand) error {
	ctx := context.Background()
	a, err := x.hub.NextActivity(ctx)
	if err != nil {
		return err
	}
	if r.IntN(10) == 0 {
		return a.Lock.Abandon(ctx, errTortured)
	}
	result := &history.TaskCompleted{Header: history.NewHeader(time.Now()), TaskScheduledID: a.Task.EventID, Result: &a.Task.Name}
	if err := a.Lock.Complete(ctx, result); err != nil {
		return err
	}
	say("A %s %s %d", a.Instance.InstanceID, a.Instance.ExecutionID, a.Task.EventID)
	return nil
}

var errTortured = fmt.Errorf("the test abandons it")

func (x *torturer) orchestrate(r *rand.Rand) error {
	ctx := context.Background()
	item, err := x.hub.NextOrchestration(ctx)
	if err != nil {
		return err
	}
	past, instance, messages := item.History, item.Instance, item.Messages
	for len(messages) > 0 {
		switch r.IntN(20) {
		case 0:
			if err := item.Session.Abandon(ctx, errTortured); err != nil {
				return err
			}
			fallthrough
		case 1:
			return item.Session.Release(ctx)
		}
		cp := x.decide(r, instance, past, messages)
		if err := item.Session.Commit(ctx, cp); err != nil {
			return err
		}
		if cp.ContinuedAsNew {
			past = nil
		}
		past, instance = slices.Concat(past, cp.NewEvents), cp.Instance
		say("C %s %s %d %x", instance.InstanceID, instance.ExecutionID, len(past), digest(past))
		if r.IntN(2) == 0 {
			break
		}
		if messages, err = item.Session.Next(ctx, time.Duration(r.IntN(3))*time.Millisecond); err != nil {
			return err
		}
	}
	return item.Session.Release(ctx)
}

// decide returns a checkpoint that consumes all messages and has random decisions.
func (x *torturer) decide(r *rand.Rand, instance history.OrchestrationInstance, past []history.Event, messages []provider.TaskMessage) *provider.Checkpoint {
	now := history.NewHeader(time.Now())
	cp := &provider.Checkpoint{Instance: instance}
	cp.NewEvents = append(cp.NewEvents, &history.OrchestratorStarted{Header: now})
	if r.IntN(25) == 0 && len(past) > 0 {
		// The consumed events are kept in the history, so that they can be counted.
		cp.Instance.ExecutionID, cp.ContinuedAsNew = "e"+x.token(), true
		cp.NewEvents = append(cp.NewEvents, &history.ExecutionStarted{Header: now, Name: "Orchestrator", Instance: cp.Instance})
		for _, e := range past {
			if e.Type() == history.TypeEventRaised {
				cp.NewEvents = append(cp.NewEvents, e)
			}
		}
	}
	for _, m := range messages {
		if !cp.ContinuedAsNew || m.Event.Type() == history.TypeEventRaised {
			cp.NewEvents = append(cp.NewEvents, m.Event)
		}
	}
	head := func() history.Header {
		id := len(cp.NewEvents)
		if !cp.ContinuedAsNew {
			id += len(past)
		}
		return history.Header{EventID: id, Timestamp: now.Timestamp}
	}
	for range r.IntN(5) / 3 { // limits their number
		task := &history.TaskScheduled{Header: head(), Name: x.token()}
		cp.NewEvents = append(cp.NewEvents, task)
		cp.Activities = append(cp.Activities, provider.TaskMessage{Event: task, Target: cp.Instance})
	}
	if r.IntN(3) == 0 {
		timer := &history.TimerCreated{Header: head(), FireAt: now.Timestamp.Add(time.Duration(r.IntN(10)) * time.Millisecond)}
		fired := &history.TimerFired{Header: now, TimerID: timer.EventID, FireAt: timer.FireAt}
		cp.NewEvents = append(cp.NewEvents, timer)
		cp.Timers = append(cp.Timers, provider.TaskMessage{Event: fired, Target: cp.Instance})
	}
	if to, ok := x.anyID(r); ok && r.IntN(3) == 0 {
		m := x.event(r, to)
		cp.NewEvents = append(cp.NewEvents, &history.EventSent{Header: head(), InstanceID: to, Name: m.Event.(*history.EventRaised).Name})
		cp.Messages = append(cp.Messages, m)
	}
	if r.IntN(40) == 0 {
		cp.NewEvents = append(cp.NewEvents, &history.ExecutionCompleted{Header: head(), Status: history.Completed, Result: new("done")})
	}
	cp.NewEvents = append(cp.NewEvents, &history.OrchestratorCompleted{Header: now})
	return cp
}

// digest returns a hash of the events.
func digest(events []history.Event) uint64 {
	h := fnv.New64a()
	for _, e := range events {
		b, err := json.Marshal(e)
		if err != nil {
			panic(err) // events contain only plain data
		}
		_, _ = fmt.Fprintf(h, "%v %s\n", e.Type(), b)
	}
	return h.Sum64()
}
