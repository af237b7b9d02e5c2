package hubcopy

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/instances"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// An export is one call of [Hub.Export].
type export struct {
	hub        *Hub
	to         provider.HubWriter
	options    provider.ExportOptions
	instances  map[string]*exported
	received   map[string]*receivedMessage // by queue name and message ID
	order      []*receivedMessage
	startedAt  time.Time
	receivedAt time.Time // start of the last receive; messages that are due later were hidden then
}

// exportInstances exports every instance that has a row or a history.
func (x *export) exportInstances(ctx context.Context) error {
	h := x.hub
	columns := wire.InstanceColumns(provider.Fetch{Input: true, Output: true})
	err := h.Instances.RowTable.All(ctx, store.Query{Columns: columns}, func(raw []byte) error {
		row, err := wire.DecodeInstanceRow(raw)
		if err != nil {
			return err
		}
		if err := h.Instances.Rows.Resolve(ctx, row, wire.MaxDecompressed); err != nil {
			return err
		}
		return x.exportInstance(ctx, row.State.Instance.InstanceID, row)
	})
	if err != nil {
		return fmt.Errorf("export instances: %w", err)
	}
	// After a crash during its first checkpoint, an instance has a history and no row.
	withHistory := store.Query{Filter: "RowKey eq '" + wire.SentinelRowKey + "'", Columns: []string{"PartitionKey"}}
	err = h.Instances.HistoryTable.All(ctx, withHistory, func(raw []byte) error {
		var row struct{ PartitionKey string }
		if err := json.Unmarshal(raw, &row); err != nil {
			return fmt.Errorf("decode history row: %w", err)
		}
		id := wire.UnescapeKey(row.PartitionKey)
		if x.instances[id] != nil {
			return nil
		}
		return x.exportInstance(ctx, id, nil)
	})
	if err != nil {
		return fmt.Errorf("export histories: %w", err)
	}
	return nil
}

func (x *export) exportInstance(ctx context.Context, id string, row *wire.InstanceRow) error {
	stored, err := x.hub.Instances.Histories.Load(ctx, id, "")
	if err != nil {
		return fmt.Errorf("instance %q: %w", id, err)
	}
	isWoken := hasWakeUp(row, stored)
	state, past := repaired(id, row, stored) // may change the row
	if state == nil {
		return nil
	}
	x.instances[id] = newExported(row, stored, state, past)
	x.instances[id].isWoken = isWoken
	return x.to.Instance(ctx, state, past)
}

// repaired returns an instance as it would be without crashes: the history is written before the row
// and may be newer. It returns nil if the instance has neither a row nor events.
func repaired(id string, row *wire.InstanceRow, stored instances.History) (*provider.InstanceState, []history.Event) {
	past := stored.Events
	if row == nil && len(past) == 0 {
		return nil, nil
	}
	l := &instances.Instance{History: stored, Row: row}
	unknown := provider.InstanceState{Status: history.Running, Instance: history.OrchestrationInstance{InstanceID: id}}
	state := &unknown
	if row != nil {
		state = &row.State
		renewed := state.Instance.ExecutionID != stored.ExecutionID
		if len(past) == 0 || l.AwaitsStart() {
			return state, nil // the pending instance replaces the ended one
		}
		if renewed && state.Status.IsTerminal() {
			if state.LastUpdatedAt.After(past[len(past)-1].Head().Timestamp) {
				return state, nil // .NET terminated the execution before it ran
			}
			*state = unknown // the history belongs to a child that reuses the ID of the ended instance
		}
		// A rewound instance waits for its next episode. Its row has an end time and was changed after
		// the last event.
		rewound := !state.CompletedAt.IsZero() && state.Status == history.Pending && state.LastUpdatedAt.After(past[len(past)-1].Head().Timestamp)
		if !renewed && (state.Status.IsTerminal() || stored.Known.Ended == nil && (rewound || !l.RowIsBehind())) {
			return state, past
		}
	}
	state.Instance.ExecutionID = stored.ExecutionID
	first := state.FirstCreatedAt // unknown without a row
	for _, ev := range past {
		state.Apply(ev)
	}
	state.FirstCreatedAt = first
	return state, past
}

// A receivedMessage is a message that an export has received.
type receivedMessage struct {
	queue *store.Queue
	msg   store.Message
	env   *wire.Envelope
}

// exportLock is the visibility timeout of received messages. The export makes them visible when it
// ends; the timeout applies if its process crashes.
const exportLock = 5 * time.Minute

// receiveInterval is the time between two attempts to receive hidden messages.
const receiveInterval = time.Second

// receiveAll receives the messages of all queues until no message is missing.
func (x *export) receiveAll(ctx context.Context) error {
	h := x.hub
	deadline := x.startedAt.Add(max(h.HiddenFor, clockSkew))
	for reported := false; ; {
		unread := map[string]int{} // by queue name
		x.receivedAt = time.Now()
		for _, q := range h.Queues {
			if err := x.receive(ctx, q); err != nil {
				return fmt.Errorf("receive from queue %s: %w", q.Name, err)
			}
			n, err := q.Length(ctx)
			if err != nil {
				return err
			}
			unread[q.Name] = n
		}
		for _, r := range x.order {
			unread[r.queue.Name]--
		}
		p := x.pending()
		missing, hidden, explained := p.missing(x.instances), 0, x.explained(p)
		for queue, n := range unread {
			hidden += max(0, n-explained[queue])
		}
		if missing == 0 && hidden == 0 {
			return nil
		}
		problem := h.HiddenError(hidden, missing)
		if time.Now().After(deadline) {
			if missing > 0 || !x.options.IgnoreHidden {
				return problem
			}
			x.notice(fmt.Sprintf("%v; they are not copied", problem))
			return nil
		}
		if !reported {
			x.notice(fmt.Sprintf("%v; waiting for them until %s", problem, deadline.Format(time.TimeOnly)))
			reported = true
		}
		if !pause.For(ctx, receiveInterval) {
			return context.Cause(ctx)
		}
	}
}

func (x *export) notice(text string) {
	if x.options.Notice != nil {
		x.options.Notice(text)
	}
}

// receive receives all visible messages of a queue.
func (x *export) receive(ctx context.Context, q *store.Queue) error {
	for {
		messages, err := q.Receive(ctx, store.MaxReceive, exportLock)
		if err != nil {
			return err
		}
		if len(messages) == 0 {
			return nil
		}
		for _, m := range messages {
			key := q.Name + " " + m.ID
			if again := x.received[key]; again != nil {
				again.msg = m
				continue
			}
			env, err := x.hub.Read(ctx, m.Text)
			if err != nil {
				return fmt.Errorf("message %s: %w", m.ID, err)
			}
			r := &receivedMessage{queue: q, msg: m, env: env}
			x.received[key] = r
			x.order = append(x.order, r)
		}
	}
}

// pending collects the work in flight from the received messages.
func (x *export) pending() pending {
	p := pending{
		runs: map[action]bool{}, completed: map[action]bool{}, fired: map[action]bool{},
		starts: map[history.OrchestrationInstance]bool{}, started: map[string]bool{}, wakes: map[string]bool{}, signals: map[signal]bool{},
	}
	for _, r := range x.order {
		m := r.env.Message
		key := action{m.Target.InstanceID, m.Target.ExecutionID, 0}
		if to := x.instances[key.instance]; to != nil && to.wakes(m) {
			p.wakes[key.instance] = true
		}
		switch ev := m.Event.(type) {
		case *history.TaskScheduled:
			key.id = ev.EventID
			p.runs[key] = true
		case *history.ExecutionStarted:
			p.starts[ev.Instance], p.started[m.Target.InstanceID] = true, true
		case *history.EventRaised:
			p.signals[signalOf(*m)] = true
		default:
			if id, ok := history.Completes(ev); ok {
				key.id = id
				if to := x.instances[key.instance]; key.execution == "" && to != nil {
					key.execution = to.loaded.ExecutionID
				}
				if ev.Type() == history.TypeTimerFired {
					p.fired[key] = true
				} else {
					p.completed[key] = true
				}
			}
		}
	}
	return p
}

// exportMessages exports the received messages that are still needed. It also exports hidden messages,
// which it reconstructs from histories and rows.
func (x *export) exportMessages(ctx context.Context) error {
	slices.SortStableFunc(x.order, func(a, b *receivedMessage) int {
		return cmp.Or(a.msg.InsertedOn.Compare(b.msg.InsertedOn), cmp.Compare(a.env.SequenceNumber, b.env.SequenceNumber))
	})
	p := x.pending()
	taken := map[action]bool{}
	for _, r := range x.order {
		task, isTask := r.env.Message.Event.(*history.TaskScheduled)
		if !isTask {
			continue
		}
		key := action{r.env.Message.Target.InstanceID, r.env.Message.Target.ExecutionID, task.EventID}
		if taken[key] || p.completed[key] || x.isOver(key) {
			continue
		}
		taken[key] = true
		if err := x.to.Activity(ctx, *r.env.Message); err != nil {
			return err
		}
	}
	clear(taken)
	for _, r := range x.order {
		if _, isTask := r.env.Message.Event.(*history.TaskScheduled); isTask || !x.isWanted(r, taken) {
			continue
		}
		if err := x.to.Message(ctx, *r.env.Message); err != nil {
			return err
		}
	}
	return x.exportHidden(ctx, p)
}

// isOver reports whether an activity need not run: the history has its result, or no committed
// checkpoint has scheduled it.
func (x *export) isOver(key action) bool {
	to := x.instances[key.instance]
	if to == nil || to.loaded.ExecutionID != key.execution {
		return false // the activity runs although no execution waits for it
	}
	known := to.loaded.Known
	return known.CompletedActions.Has(key.id) || !known.Actions.Has(key.id)
}

// isWanted reports whether a message fits the stored instance. No checkpoint is in progress, so a
// message that waits for a checkpoint is left over from an interrupted one.
func (x *export) isWanted(r *receivedMessage, taken map[action]bool) bool {
	m := r.env.Message
	to := x.instances[m.Target.InstanceID]
	if to == nil {
		to = &exported{loaded: instances.Instance{History: instances.History{Known: instances.NewKnownEvents()}}}
	}
	if !x.isCommitted(r.env) || x.isPremature(r.env) || x.isOrphan(r.env) || to.wakes(m) {
		return false
	}
	key := action{m.Target.InstanceID, to.loaded.ExecutionID, history.NoEventID}
	start, isStart := m.Event.(*history.ExecutionStarted)
	id, completes := history.Completes(m.Event)
	switch {
	case isStart:
		key.execution = start.Instance.ExecutionID
	case completes:
		key.id = id
		isOthers := m.Target.ExecutionID != "" && m.Target.ExecutionID != key.execution // for an earlier generation
		if isOthers || !to.loaded.Known.Actions.Has(id) {
			return false
		}
	}
	isUnique := isStart || completes
	if isUnique && taken[key] || !to.accepts(r) {
		return false
	}
	if isUnique {
		taken[key] = true
	}
	return true
}

// isCommitted reports whether a message belongs to a committed batch of an entity, or to no batch.
func (x *export) isCommitted(env *wire.Envelope) bool {
	if env.Batch == "" || env.Sender == nil {
		return true
	}
	from := x.instances[env.Sender.InstanceID]
	return from != nil && wire.ParseEntityBatches(from.loaded.Batches).IsCommitted(env.Batch)
}

// isPremature reports whether a message announces the end of a child whose history says it is running.
// The child's checkpoint was interrupted and will be repeated.
func (x *export) isPremature(env *wire.Envelope) bool {
	switch env.Message.Event.(type) {
	case *history.SubOrchestrationInstanceCompleted, *history.SubOrchestrationInstanceFailed:
	default:
		return false
	}
	if env.Sender == nil {
		return false
	}
	child := x.instances[env.Sender.InstanceID]
	return child != nil && child.isRunning() && child.loaded.ExecutionID == env.Sender.ExecutionID
}

// isOrphan reports whether a message is the start of a child from an interrupted checkpoint.
func (x *export) isOrphan(env *wire.Envelope) bool {
	start, isStart := env.Message.Event.(*history.ExecutionStarted)
	if !isStart || start.Parent == nil || env.Sender == nil || env.Sender.InstanceID == "" {
		return false
	}
	parent := x.instances[start.Parent.Instance.InstanceID]
	return parent != nil && parent.loaded.ExecutionID == start.Parent.Instance.ExecutionID &&
		!parent.loaded.Known.Actions.Has(start.Parent.TaskScheduleID)
}

// exportHidden exports the hidden messages, reconstructed from histories and rows.
func (x *export) exportHidden(ctx context.Context, p pending) error {
	for _, id := range slices.Sorted(maps.Keys(x.instances)) {
		inst := x.instances[id]
		if inst.isAwaited() && !p.hasStart(inst) {
			if err := x.to.Message(ctx, *inst.start()); err != nil {
				return err
			}
		}
		for _, m := range p.hiddenSignals(inst, x.certainAfter()) {
			if err := x.to.Message(ctx, m); err != nil {
				return err
			}
		}
		if !inst.isRunning() {
			continue
		}
		if inst.loaded.Known.HasOpenSteps() && !history.IsEntity(id) {
			if err := x.to.Message(ctx, provider.WakeSteps(inst.execution(), x.receivedAt)); err != nil {
				return err
			}
		}
		for _, n := range slices.Sorted(maps.Keys(inst.timers)) {
			if p.fired[inst.action(n)] {
				continue
			}
			if err := x.to.Message(ctx, *inst.fired(inst.timers[n], x.receivedAt)); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseMessages makes the received messages visible again.
func (x *export) releaseMessages(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	_ = store.ForEach(ctx, store.MessagesAtOnce, x.order, func(ctx context.Context, _ int, r *receivedMessage) error {
		if _, err := r.queue.Update(ctx, r.msg, 0); err != nil && !store.IsMessageGone(err) {
			x.hub.Log.Warn("cannot release message; it reappears when its visibility timeout ends", "messageId", r.msg.ID, "after", exportLock, "error", err)
		}
		return nil
	})
}

// reportAside reports messages that were set aside and are not copied.
func (x *export) reportAside(ctx context.Context) error {
	for _, q := range x.hub.Queues {
		aside := x.hub.PoisonQueue(q)
		n, err := aside.Length(store.AllowMissing(ctx))
		if err != nil && !store.IsMissing(err) {
			return err
		}
		if n > 0 {
			x.notice(fmt.Sprintf("queue %[2]s has %[1]d messages that could not be decoded and were set aside; they are not copied", n, aside.Name))
		}
	}
	return nil
}
