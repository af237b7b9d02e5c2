package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// isEntity reports whether an instance is an entity. Entities do not end.
func isEntity(state *durable.InstanceState) bool {
	return history.IsEntity(state.Instance.InstanceID)
}

// ledgerRun implements the ledgers of a simulation.
type ledgerRun struct{ *simulation }

// operationTime returns the function that determines the duration of ledger operations in a process.
func (s ledgerRun) operationTime(p Process, worker int) func(context.Context, Order) error {
	return func(ctx context.Context, o Order) error {
		if isDead(p) {
			<-ctx.Done() // a dead process does nothing
			return ctx.Err()
		}
		s.mu.Lock()
		s.operations++
		if s.operations == s.plan.StopAt && s.processes[worker] == p {
			s.stops[worker]()
		}
		s.mu.Unlock()
		h := mix(s.plan.Seed, o.key().String())
		if h%4 == 0 {
			pause.For(ctx, time.Duration(h>>8%700)*time.Millisecond+time.Duration(h>>32%uint64(time.Millisecond)))
		}
		return ctx.Err()
	}
}

// receiptRecorder returns the function that records the receipts of a process. Repeated calls must return
// the same receipt in all workers. Receipts of dead processes are ignored, because their code may run for a
// moment longer.
func (s ledgerRun) receiptRecorder(p Process) func(Receipt) {
	return func(r Receipt) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !isDead(p) {
			s.addReceipt(r)
		}
	}
}

// addReceipt records a receipt. s.mu must be held.
func (s ledgerRun) addReceipt(r Receipt) {
	key := orderKey{r.From, r.Number}
	r.Pad = ""
	if s.receipts == nil {
		s.receipts = map[orderKey]map[string]Receipt{}
	}
	if s.receipts[key] == nil {
		s.receipts[key] = map[string]Receipt{}
	}
	if before, ok := s.receipts[key][r.Ledger]; ok && before != r {
		s.faults = append(s.faults, fmt.Sprintf("order %v got the receipts %+v and %+v", key, before, r))
	}
	s.receipts[key][r.Ledger] = r
}

// signal sends a client's signal to a ledger.
func (s ledgerRun) signal(ctx context.Context, c ClientSignal) {
	s.sleepUntil(c.At)
	var opts []durable.SignalOption
	if c.Op == string(addOp) && c.Order.Wait > 0 {
		opts = append(opts, durable.SignalAfter(c.Order.Wait))
	}
	if c.Cut > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Cut)
		defer cancel()
	}
	if err := operation(c.Op).Signal(ctx, s.client, ledgerNamed(c.Ledger), c.Order.padded(s.plan.App), opts...); err != nil && c.Cut == 0 {
		s.fault("signal ledger %q: %v", c.Ledger, err)
	}
}

// orphans reports whether locks may stay held: a terminated instance may have requested a lock in an episode
// that was not committed.
func (s ledgerRun) orphans() bool {
	for _, in := range s.plan.App.Instances {
		if in.Terminated > 0 {
			return len(s.plan.App.Ledgers) > 0
		}
	}
	return false
}

// keepFreeingOrphans calls freeOrphans repeatedly until work ends, because instances may wait for such locks.
func (s ledgerRun) keepFreeingOrphans(work, clients context.Context) {
	for work.Err() == nil {
		s.freeOrphans(clients)
		pause.For(work, 3*time.Minute)
	}
}

// freeOrphans releases the locks of instances that have ended.
func (s ledgerRun) freeOrphans(ctx context.Context) {
	if _, err := s.client.CleanEntities(ctx, durable.EntityCleaning{KeepEmpty: true}); err != nil {
		s.fault("clean entities: %v", err)
	}
}

// settleLedgers waits until no instance waits for a lock of an instance that has ended.
func (s ledgerRun) settleLedgers(ctx context.Context) {
	if s.orphans() {
		s.freeOrphans(ctx)
		s.awaitQuiet()
	}
}

// checkLedgers compares the final state of all ledgers with the expected orders.
func (s ledgerRun) checkLedgers(ctx context.Context) {
	if len(s.plan.App.Ledgers) == 0 {
		return
	}
	expected := s.plan.App.expectOrders()
	current, archived := map[string][]Entry{}, map[string][]Entry{}
	for e, err := range s.client.AllEntities(ctx, durable.EntityQuery{FetchState: true, IncludeEmpty: true}) {
		if err != nil {
			s.fault("list entities: %v", err)
			return
		}
		if e.LockedBy != "" || e.QueueSize != 0 {
			s.fault("%v is locked by %q with %d in its queue at the end", e.ID, e.LockedBy, e.QueueSize)
		}
		if expected.books[e.ID.Key] == nil || e.ID.Name != "ledger" {
			s.fault("%v exists, but the app has no such ledger", e.ID)
			continue
		}
		var l Ledger
		if err := json.Unmarshal(e.State, &l); e.Exists && err != nil {
			s.fault("state of %v: %v", e.ID, err)
		}
		current[e.ID.Key] = l.Entries
	}
	logs := map[string][][]Entry{}
	for _, key := range s.plan.App.Ledgers {
		archived[key] = current[archiveOf(key)]
		for _, closed := range archived[key] {
			logs[key] = append(logs[key], closed.Batch)
		}
		logs[key] = append(logs[key], current[key])
		logs[archiveOf(key)] = [][]Entry{archived[key]}
	}
	s.mu.Lock()
	receipts := s.receipts
	s.mu.Unlock()
	for _, what := range expected.check(logs, receipts) {
		s.fault("%s", what)
	}
	s.checkStarted(ctx, expected.started)
}

// checkStarted compares the orchestrations that ledgers started with their expected outcomes.
func (s ledgerRun) checkStarted(ctx context.Context, started []Input) {
	for _, in := range started {
		state, err := s.client.Status(ctx, durable.InstanceID(in.Path), durable.Fetch{Output: true})
		if err != nil {
			s.fault("status of %s, which a ledger should have started: %v", in.Path, err)
			continue
		}
		sum, ok := s.plan.App.expect(in)
		switch {
		case ok && (state.Status != history.Completed || state.Output == nil || !s.returned(*state.Output, sum)):
			s.fault("%s is %v, want it to return %d", in.Path, state.Status, sum)
		case !ok && state.Status != history.Failed:
			s.fault("%s is %v, want it to fail", in.Path, state.Status)
		}
	}
	for state, err := range s.client.AllInstances(ctx, durable.Query{IDPrefix: refused}) {
		if err != nil {
			s.fault("list instances: %v", err)
			return
		}
		s.fault("%s was started by an operation that failed", state.Instance.InstanceID)
	}
}
