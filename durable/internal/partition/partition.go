package partition

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Partition is a task hub, or one partition of a task hub, that this process owns. Its methods
// are safe for concurrent use.
type Partition struct {
	cfg Config
	work
	Reader

	writer *logstore.Writer[*txn]
	// The senders of mail, by name. Only the writer's goroutine uses the map after Open.
	senders  map[string]*senderState
	position []byte // the position up to which the mailbox was read; protected by work.mu
	opened   time.Time
	imported atomic.Bool
	numbers  atomic.Uint64 // the last number given to a message, an activity or an execution
}

// MaxOpenCount is the maximum of [Config.OpenCount]. Each opening has 2^40 of the 64-bit numbers.
const MaxOpenCount = 1<<24 - 1

// Open loads the partition from a store that was not started, and starts the store. Call Close
// to close the partition. If Open fails, the store is unchanged.
func Open(store *logstore.Store, cfg Config) (*Partition, error) {
	cfg = cfg.withDefaults()
	p := &Partition{cfg: cfg, work: newWork(cfg), Reader: Reader{cfg, store}, opened: time.Now()}
	p.numbers.Store(cfg.OpenCount << 40) // makes all numbers unique: each opening has its own range
	if err := p.read("read pending work", func(t tables) error { return errors.Join(p.load(t, cfg.CrashCount), p.loadMail(t)) }); err != nil {
		return nil, err
	}
	store.Start()
	p.writer = logstore.NewWriter(store, logstore.WriterConfig[*txn]{
		Begin:   func(t *logstore.Txn) *txn { return &txn{Txn: t, tables: tables{t.View}, p: p} },
		Effects: &p.mu,
		Failed:  func(err error) error { return fmt.Errorf("write to %s: %w", cfg.Name, cfg.Error(err)) },
		Gather:  cfg.HighLatency,
	})
	return p, nil
}

// RemoveIdleClients starts to remove the records of clients that have sent nothing for a day.
// It does not wait. If the removal fails, the next call repeats it.
func (p *Partition) RemoveIdleClients() {
	_ = p.writer.SubmitLazy(logstore.NewOp(func(t *txn) error {
		inbox{t}.removeIdleClients()
		return nil
	}))
}

// Close revokes the remaining locks and completes the writes in flight. Call it after Run has
// returned. It does not close the store, but nothing is written to the store afterwards. first
// is true for the first call.
func (p *Partition) Close() (first bool, err error) {
	if !p.work.close() {
		return false, nil
	}
	// If this write fails, the next Open counts the close as a crash.
	return true, p.writer.Close(p.saveDeliveries)
}

// saveDeliveries stores the delivery counts of the activities that are not done. Without them,
// the next Open must assume that each one was dispatched again. It must be the last operation.
// It moves each record to a new key. A change under the old key could bring back the record in
// the base after the activity is done (see Transient in [logstore.TableInfo]). The activity
// would then run again.
func (p *Partition) saveDeliveries(t *txn) error {
	p.mu.Lock() // released before the base is read, which can be slow
	all := slices.SortedFunc(maps.Keys(p.delivered), func(a, b *activity) int { return cmp.Compare(a.number, b.number) })
	heads := make([]activityHead, len(all))
	for i, a := range all {
		heads[i] = activityHead{crashes: p.cfg.CrashCount, deliveries: uint64(a.earlier + a.deliveries)}
	}
	p.mu.Unlock()
	for i, a := range all {
		record, err := t.Must(activitiesTable, logstore.NumberKey(a.number))
		if err != nil {
			return err
		}
		_, message, err := decodeActivityHead(record)
		if err != nil {
			return err
		}
		t.Remove(activitiesTable, logstore.NumberKey(a.number))
		t.Put(activitiesTable, logstore.NumberKey(p.numbers.Add(1)), encodeActivity(heads[i], message))
	}
	return nil
}

// StartInstance implements [provider.Client].
func (p *Partition) StartInstance(ctx context.Context, msg provider.TaskMessage, refuse []history.RuntimeStatus) error {
	if err := CheckID(msg.Target.InstanceID); err != nil {
		return err
	}
	return p.writer.Do(ctx, func(t *txn) error { return t.start(msg, refuse) })
}

// Send implements [provider.Client].
func (p *Partition) Send(ctx context.Context, msg provider.TaskMessage) error {
	if err := CheckID(msg.Target.InstanceID); err != nil {
		return fmt.Errorf("send message: %w", err)
	}
	record, err := encodeMessage(msg)
	if err == nil {
		err = p.writer.Do(ctx, func(t *txn) error { return t.send(record, msg) })
	}
	if err != nil {
		return fmt.Errorf("send message to instance %s: %w", msg.Target.InstanceID, err)
	}
	return nil
}

// AwaitEnd implements [provider.Awaiter] without polling. It also returns when the instance is
// purged or restarted. If the instance does not exist, it returns
// [provider.ErrInstanceNotFound].
func (p *Partition) AwaitEnd(ctx context.Context, id string) error {
	ended, cancel := p.awaitEnd(id)
	defer cancel()
	// Read after awaitEnd: if the instance ends from here on, the channel is closed.
	status, err := p.status(ctx, id)
	if err != nil || status.IsTerminal() {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.closing:
		return logstore.ErrClosed
	}
}

// Update durably applies changes to records. The changes have no effect on the pending work in
// memory.
func (p *Partition) Update(ctx context.Context, apply func(*logstore.Txn) error) error {
	return p.writer.Do(ctx, func(t *txn) error { return apply(t.Txn) })
}

// unusedID is not the ID of any instance.
const unusedID = "@@check"

// Check returns an error if the partition cannot write. If a group of changes has failed, and
// no group of its size was written since, Check reserves space for one. It then performs a
// write that changes nothing.
func (p *Partition) Check(ctx context.Context) error {
	apply := func(*txn) error { return nil }
	if p.store.Unwritten() > 0 {
		apply = func(t *txn) error {
			if err := p.store.Reserve(); err != nil {
				return err
			}
			t.Remove(instancesTable, []byte(unusedID))
			t.AfterCommit(p.store.ResetUnwritten)
			return nil
		}
	}
	return p.writer.Do(ctx, apply)
}

// IsBusy implements [provider.Checker].
func (p *Partition) IsBusy() bool { return false }

// Purge implements [provider.Purger]. It also deletes the instance's messages. Activities that
// the instance has scheduled still run.
func (p *Partition) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return p.writer.Do(ctx, func(t *txn) error { return t.purge(id, seen) })
}

// Rewind implements [provider.Rewinder] in one transaction.
func (p *Partition) Rewind(ctx context.Context, id, reason string) error {
	at := time.Now()
	var plan *provider.RewindPlan
	err := p.writer.Do(ctx, func(t *txn) (err error) {
		plan, err = t.rewind(ctx, id, reason, at)
		return err
	})
	if err != nil {
		return err
	}
	for _, x := range plan.Executions {
		p.cfg.Logger.Info("instance rewound", "event", "FunctionRewound", "instanceId", x.Instance.InstanceID, "executionId", x.Instance.ExecutionID, "reason", reason)
	}
	return nil
}

// RewindExecution applies one execution of a [provider.RewindPlan] and resumes the instance. It
// fails with [provider.ErrInstanceChanged] if the instance has changed since it was planned.
func (p *Partition) RewindExecution(ctx context.Context, x provider.RewoundExecution, at time.Time) error {
	return p.writer.Do(ctx, func(t *txn) error { return inbox{t}.rewindUnchanged(x, at) })
}

// Waiting returns the number of operations that wait to be written.
func (p *Partition) Waiting() int { return p.writer.Waiting() }

// Flush waits until all operations submitted so far are durable, including lazy ones.
func (p *Partition) Flush(ctx context.Context) error {
	o := logstore.NewOp(func(*txn) error { return nil })
	if err := p.writer.SubmitLazy(o); err != nil {
		return err
	}
	return p.writer.Await(ctx, o)
}

// Run implements [provider.Worker]. It does not poll: it sleeps until the next timer is due.
func (p *Partition) Run(ctx context.Context) error { return p.run(ctx) }

// NextOrchestration implements [provider.Worker].
func (p *Partition) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	for {
		s := &session{p: p, changed: make(chan struct{}, 1)}
		if err := p.lockInstance(ctx, s); err != nil {
			return nil, err
		}
		item, err := s.open(ctx)
		if item != nil {
			return item, nil
		}
		if err != nil {
			p.cfg.Logger.Error("cannot open instance; retrying later", "instanceId", s.inst.id, "error", err)
			s.abandon(nil)
		}
		s.end()
		if errors.Is(err, logstore.ErrClosed) {
			return nil, err
		}
	}
}

// NextActivity implements [provider.Worker].
func (p *Partition) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	for {
		l := &activityLock{p: p}
		if err := p.lockActivity(ctx, l); err != nil {
			return nil, err
		}
		item, err := l.item()
		if err == nil {
			return item, nil
		}
		p.cfg.Logger.Error("cannot read activity; retrying later", "activity", l.a.number, "error", err)
		l.abandon(nil)
		if errors.Is(err, logstore.ErrClosed) {
			return nil, err
		}
	}
}

// checkIdle returns [provider.ErrHubBusy] while Run runs.
func (p *Partition) checkIdle() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		return fmt.Errorf("%s: %w", p.cfg.Name, provider.ErrHubBusy)
	}
	return nil
}

// Export implements [provider.Portable]. It exports one consistent state of the hub, one record
// at a time.
func (p *Partition) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
	if err := p.checkIdle(); err != nil {
		return err
	}
	return p.export(ctx, w)
}

// Import implements [provider.Portable] for a partition that is a whole hub.
func (p *Partition) Import(ctx context.Context, fill func(provider.HubWriter) error) error {
	if err := p.checkIdle(); err != nil {
		return err
	}
	empty, err := p.IsEmpty()
	if err != nil {
		return err
	}
	if !empty {
		return fmt.Errorf("%s: %w", p.cfg.Name, provider.ErrHubNotEmpty)
	}
	im := NewImporter(p)
	if err := fill(im); err != nil {
		return err
	}
	return im.Flush(ctx)
}

// loadMail loads the unsent messages for other partitions and the state of each sender.
func (p *Partition) loadMail(t tables) error {
	p.senders = make(map[string]*senderState)
	if !t.Has(mailTable) {
		return nil
	}
	err := t.each(outboxTable, func(key, value []byte) error {
		m, err := outgoingOf(key, value)
		if err != nil {
			return t.Damage(outboxTable, key, err)
		}
		p.cfg.Post(m)
		return nil
	})
	if err != nil {
		return err
	}
	return t.each(mailTable, func(key, value []byte) error {
		switch rest := string(key[1:]); string(key[:1]) {
		case positionKey:
			p.position = bytes.Clone(value)
		case importedKey:
			p.imported.Store(true)
		case markPrefix:
			c := newDecoder(value)
			from := p.senderState(rest)
			c.Time(&from.at)
			c.Uint(&from.last)
			return c.End()
		case answerPrefix:
			sender, number, _ := strings.Cut(rest, "\x00")
			if len(number) != 8 {
				return t.Damage(mailTable, key, errors.New("key is too short"))
			}
			from := p.senderState(sender)
			from.answered = append(from.answered, binary.BigEndian.Uint64([]byte(number)))
		}
		return nil
	})
}

func (p *Partition) senderState(sender string) *senderState {
	if p.senders[sender] == nil {
		p.senders[sender] = &senderState{}
	}
	return p.senders[sender]
}

// Sent deletes messages that are in the mailbox of their partition.
func (p *Partition) Sent(all []Outgoing) {
	// If it fails, they are sent again when the partition is opened next.
	_ = p.writer.SubmitLazy(logstore.NewOp(func(t *txn) error {
		for _, m := range all {
			t.Remove(outboxTable, m.key())
		}
		return nil
	}))
}

// Receive carries out the requests of mail, and stores position, unless it is nil. Requests that were
// received earlier have no effect. Receive uses one transaction. If that is too large for the log,
// each request has its own, and Receive refuses a request that is still too large.
func (p *Partition) Receive(ctx context.Context, all []*Mail, position []byte) error {
	receive := func(all []*Mail, position []byte, refusal error) error {
		return p.writer.Do(ctx, func(t *txn) error { return inbox{t}.receiveAll(all, position, refusal) })
	}
	err := receive(all, position, nil)
	if !errors.Is(err, logstore.ErrTooLarge) {
		return err
	}
	for _, m := range split(all) {
		err := receive(m, nil, nil)
		if errors.Is(err, logstore.ErrTooLarge) {
			err = receive(m, nil, logstore.Refuse(err))
		}
		if err != nil {
			return err
		}
	}
	return receive(nil, position, nil)
}

// SetImported records permanently that data was imported into this partition of a hub.
func (p *Partition) SetImported(ctx context.Context) error {
	return p.writer.Do(ctx, func(t *txn) error {
		t.Put(mailTable, []byte(importedKey), []byte{1})
		t.AfterCommit(func() { p.imported.Store(true) })
		return nil
	})
}

// IsImported reports whether SetImported was called, by any process.
func (p *Partition) IsImported() bool { return p.imported.Load() }

// Position returns the position up to which the mailbox was read; nil if it was never read.
func (p *Partition) Position() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.position
}

// Backlog returns the work that is ready for dispatch.
func (p *Partition) Backlog() (b Backlog) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, inst := range p.ready.waiting() {
		b.Messages.Length += len(inst.inbox)
		b.Messages.Latency = max(b.Messages.Latency, now.Sub(inst.since))
		if slices.ContainsFunc(inst.inbox, (*message).isStart) {
			b.StartLatency = max(b.StartLatency, now.Sub(inst.since))
		}
	}
	for _, a := range p.readyActivities.waiting() {
		if a.isReady() {
			b.Activities.Length++
			b.Activities.Latency = max(b.Activities.Latency, now.Sub(a.since))
		}
	}
	return b
}

// MessagesAhead returns the number of messages that will be dispatched ahead of an instance's
// messages. The number is 0 if the instance is not ready. served is true if work is being
// dispatched.
func (p *Partition) MessagesAhead(id string) (messages int, served bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	inst := p.instances[id]
	if inst == nil || !inst.ready {
		return 0, p.serves()
	}
	for _, other := range p.ready.waiting() {
		if other == inst {
			break
		}
		messages += len(other.inbox)
	}
	return messages, p.serves()
}

// Offload moves up to n activities that have been ready for at least waited to another
// partition, newest first. That partition runs them and sends their results. It returns the
// number of moved activities.
func (p *Partition) Offload(ctx context.Context, n int, waited time.Duration, to int) (moved int, err error) {
	p.mu.Lock()
	before := time.Now().Add(-waited)
	var chosen []*activity
	for _, a := range slices.Backward(p.readyActivities.waiting()) {
		if len(chosen) == n {
			break
		}
		if a.isReady() && a.since.Before(before) {
			a.done = true // prevents dispatch during the write
			chosen = append(chosen, a)
		}
	}
	p.mu.Unlock()
	if len(chosen) == 0 {
		return 0, nil
	}
	err = p.writer.Do(ctx, func(t *txn) error {
		for _, a := range chosen {
			record, err := t.Must(activitiesTable, logstore.NumberKey(a.number))
			if err != nil {
				return err
			}
			_, message, err := decodeActivityHead(record)
			if err != nil {
				return err
			}
			t.Remove(activitiesTable, logstore.NumberKey(a.number))
			t.postTo(Outgoing{Partition: to, Record: slices.Clone(message)})
			t.AfterCommit(func() { p.finish(a) })
		}
		return nil
	})
	if err == nil {
		return len(chosen), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range chosen {
		if a.done = false; !slices.Contains(p.readyActivities.waiting(), a) { // lockActivity has skipped it
			p.makeReady(a)
		}
	}
	return 0, err
}

// encodeNewActivity encodes the record of a new activity. It copies a large input only once.
func (p *Partition) encodeNewActivity(m provider.TaskMessage) ([]byte, error) {
	c := newEncoder(nil)
	c.activityHead(&activityHead{crashes: p.cfg.CrashCount})
	return appendMessage(c.Buf, m)
}
