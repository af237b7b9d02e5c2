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

// Partition is a task hub, or a part of one, that this process has for itself.
type Partition struct {
	cfg Config
	work
	Reader

	writer *logstore.Writer[*txn]
	// Of the writer's goroutine: who has sent mail, by their names.
	correspondents map[string]*correspondent
	position       []byte // how far the mailbox was read; protected by work.mu
	opened         time.Time
	imported       atomic.Bool
	numbers        atomic.Uint64 // the last number of a message, an activity or an execution
}

// Open returns the partition whose records are in a store that was not started.
// Close ends it. If it fails the store is as it was.
func Open(store *logstore.Store, cfg Config) (*Partition, error) {
	cfg = cfg.withDefaults()
	p := &Partition{cfg: cfg, work: newWork(cfg), Reader: Reader{cfg, store}, opened: time.Now()}
	p.numbers.Store(cfg.Opens << 40) // no number is ever used again
	if err := p.read("read pending work", func(t tables) error { return errors.Join(p.load(t, cfg.Crashes), p.loadMail(t)) }); err != nil {
		return nil, err
	}
	store.Start()
	p.writer = logstore.NewWriter(store, logstore.WriterConfig[*txn]{
		Begin:   func(t *logstore.Txn) *txn { return &txn{Txn: t, tables: tables{t.View}, p: p} },
		Effects: &p.mu,
		Failed:  func(err error) error { return fmt.Errorf("write to %s: %w", cfg.Name, cfg.Error(err)) },
		Gather:  cfg.Slow,
	})
	if len(p.correspondents) > 0 {
		p.ForgetClients()
	}
	return p, nil
}

// ForgetClients removes, in the background, the records of clients that have sent nothing for
// a day. If that fails, the next call does it.
func (p *Partition) ForgetClients() {
	_ = p.writer.SubmitLazy(logstore.NewOp(func(t *txn) error {
		inbox{t}.forgetClients()
		return nil
	}))
}

// Close revokes locks that are still held and finishes the writes that are under
// way. Call it after Run has returned. The store stays open: nothing is written to it
// any more. It reports whether it is the first call.
func (p *Partition) Close() (first bool, err error) {
	if !p.work.close() {
		return false, nil
	}
	// If the deliveries cannot be written, the next Open counts as after a crash.
	return true, p.writer.Close(p.keepDeliveries)
}

// keepDeliveries stores how often the activities that are not done were dispatched:
// after a crash, any of them may have been. It must be the hub's last operation. Each of
// them gets a new record: if one in the base were changed, the activity would run again
// after it is done, see [logstore.TableInfo].
func (p *Partition) keepDeliveries(t *txn) error {
	p.mu.Lock() // and not while the base is read, which can take long
	all := slices.SortedFunc(maps.Keys(p.delivered), func(a, b *activity) int { return cmp.Compare(a.number, b.number) })
	heads := make([]activityHead, len(all))
	for i, a := range all {
		heads[i] = activityHead{crashes: p.cfg.Crashes, deliveries: uint64(a.earlier + a.deliveries)}
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

// AwaitEnd implements [provider.Awaiter]. It does not poll. An instance that is
// purged or started again has ended, too, and one that is not known.
func (p *Partition) AwaitEnd(ctx context.Context, id string) error {
	ended, cancel := p.awaitEnd(id)
	defer cancel()
	// Read only now: an end that comes later closes the channel.
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

// Update makes changes of records durable that the partition does not know of.
func (p *Partition) Update(ctx context.Context, apply func(*logstore.Txn) error) error {
	return p.writer.Do(ctx, func(t *txn) error { return apply(t.Txn) })
}

// noInstance is an ID that no instance has.
const noInstance = "@@check"

// Check returns why nothing can be written, nil if it can. If a group of changes could
// not be written, and none as large could since, there must be room for it, and a write
// that changes nothing must succeed.
func (p *Partition) Check(ctx context.Context) error {
	apply := func(*txn) error { return nil }
	if p.store.Unwritten() > 0 {
		apply = func(t *txn) error {
			if err := p.store.Reserve(); err != nil {
				return err
			}
			t.Remove(instancesTable, []byte(noInstance))
			t.Then(p.store.SetWritten)
			return nil
		}
	}
	return p.writer.Do(ctx, apply)
}

// IsBusy implements [provider.Checker].
func (p *Partition) IsBusy() bool { return false }

// Purge implements [provider.Purger]. Messages for the instance are deleted with
// it. Activities that were scheduled still run.
func (p *Partition) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return p.writer.Do(ctx, func(t *txn) error { return t.purge(id, seen) })
}

// Rewind implements [provider.Rewinder], as one transaction.
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

// RewindExecution changes the history of an instance as a [provider.RewindPlan] says, and
// lets it go on. It fails with [provider.ErrInstanceChanged] if it has gone on.
func (p *Partition) RewindExecution(ctx context.Context, x provider.RewoundExecution, at time.Time) error {
	return p.writer.Do(ctx, func(t *txn) error { return inbox{t}.rewindSeen(x, at) })
}

// Waiting returns how many operations wait to be written.
func (p *Partition) Waiting() int { return p.writer.Waiting() }

// Flush waits until everything that could wait is durable.
func (p *Partition) Flush(ctx context.Context) error {
	o := logstore.NewOp(func(*txn) error { return nil })
	if err := p.writer.SubmitLazy(o); err != nil {
		return err
	}
	return p.writer.Await(ctx, o)
}

// Run implements [provider.Worker]. An idle hub does nothing: Run sleeps until the
// next timer is due, or until there is one.
func (p *Partition) Run(ctx context.Context) error { return p.run(ctx) }

// NextOrchestration implements [provider.Worker].
func (p *Partition) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	for {
		s := &session{p: p, changed: make(chan struct{}, 1)}
		if err := p.lockInstance(ctx, s); err != nil {
			return nil, err
		}
		item, err := s.open()
		if item != nil {
			return item, nil
		}
		if err != nil {
			p.cfg.Logger.Error("instance cannot be read; it is held back", "instanceId", s.inst.id, "error", err)
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
		p.cfg.Logger.Error("activity cannot be read; it is held back", "activity", l.a.number, "error", err)
		l.abandon(nil)
		if errors.Is(err, logstore.ErrClosed) {
			return nil, err
		}
	}
}

// checkIdle returns an error while Run runs.
func (p *Partition) checkIdle() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running {
		return fmt.Errorf("%s: %w", p.cfg.Name, provider.ErrHubBusy)
	}
	return nil
}

// Export implements [provider.Portable]. It sees one state of the hub, and reads
// records one at a time.
func (p *Partition) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
	if err := p.checkIdle(); err != nil {
		return err
	}
	return p.export(ctx, w)
}

// Import is [provider.Portable]'s, into a partition that is a whole hub.
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

// loadMail reads what is to be sent, and from whom mail has come.
func (p *Partition) loadMail(t tables) error {
	p.correspondents = make(map[string]*correspondent)
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
			c := reading(value)
			from := p.correspondent(rest)
			c.Time(&from.at)
			c.Uint(&from.last)
			return c.End()
		case answerPrefix:
			sender, number, _ := strings.Cut(rest, "\x00")
			if len(number) != 8 {
				return t.Damage(mailTable, key, errors.New("key is too short"))
			}
			from := p.correspondent(sender)
			from.answered = append(from.answered, binary.BigEndian.Uint64([]byte(number)))
		}
		return nil
	})
}

func (p *Partition) correspondent(sender string) *correspondent {
	if p.correspondents[sender] == nil {
		p.correspondents[sender] = &correspondent{}
	}
	return p.correspondents[sender]
}

// Sent deletes outgoing messages that have reached the mailbox of their partition.
func (p *Partition) Sent(all []Outgoing) {
	// If it fails they are sent again when the partition is next opened.
	_ = p.writer.SubmitLazy(logstore.NewOp(func(t *txn) error {
		for _, m := range all {
			t.Remove(outboxTable, m.key())
		}
		return nil
	}))
}

// Receive does what mail asks for, in one transaction, and stores position, which
// [Partition.Position] returns from then on; nil leaves it. Requests that were received
// before have no effect.
func (p *Partition) Receive(ctx context.Context, all []*Mail, position []byte) error {
	return p.writer.Do(ctx, func(t *txn) error {
		for _, m := range all {
			if err := (inbox{t}).receive(m); err != nil {
				return err
			}
		}
		if position != nil {
			t.Put(mailTable, []byte(positionKey), position)
			t.Then(func() { p.position = position })
		}
		return nil
	})
}

// SetImported notes that something is imported into the partition of several, for good.
func (p *Partition) SetImported(ctx context.Context) error {
	return p.writer.Do(ctx, func(t *txn) error {
		t.Put(mailTable, []byte(importedKey), []byte{1})
		t.Then(func() { p.imported.Store(true) })
		return nil
	})
}

// IsImported reports whether something was imported into the partition of several.
func (p *Partition) IsImported() bool { return p.imported.Load() }

// Position returns how far the mailbox was read, nil if it was not.
func (p *Partition) Position() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.position
}

// Backlog returns what waits for a worker in memory.
func (p *Partition) Backlog() (b Backlog) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, inst := range p.ready.waiting() {
		b.Messages.Length += len(inst.inbox)
		b.Messages.Latency = max(b.Messages.Latency, now.Sub(inst.since))
	}
	for _, a := range p.readyActivities.waiting() {
		if a.isReady() {
			b.Activities.Length++
			b.Activities.Latency = max(b.Activities.Latency, now.Sub(a.since))
		}
	}
	return b
}

// Before returns how many messages are to be taken before those of an instance, and whether
// anybody takes them. It is 0 if the instance does not wait for its turn.
func (p *Partition) Before(id string) (messages int, served bool) {
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

// Offload gives up to n activities that have waited for as long as given to another
// partition, which runs them and sends their results. Those that came last go first.
func (p *Partition) Offload(ctx context.Context, n int, waited time.Duration, to int) (moved int, err error) {
	p.mu.Lock()
	before := time.Now().Add(-waited)
	var chosen []*activity
	for _, a := range slices.Backward(p.readyActivities.waiting()) {
		if len(chosen) == n {
			break
		}
		if a.isReady() && a.since.Before(before) {
			a.done = true // nobody takes it meanwhile
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
			t.Then(func() { p.finish(a) })
		}
		return nil
	})
	if err == nil {
		return len(chosen), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range chosen {
		if a.done = false; !slices.Contains(p.readyActivities.waiting(), a) { // it was passed over
			p.makeReady(a)
		}
	}
	return 0, err
}

// encodeNewActivity encodes an activity to run as its record. A large input is copied once.
func (p *Partition) encodeNewActivity(m provider.TaskMessage) ([]byte, error) {
	c := writing(nil)
	c.activityHead(&activityHead{crashes: p.cfg.Crashes})
	return appendMessage(c.Buf, m)
}
