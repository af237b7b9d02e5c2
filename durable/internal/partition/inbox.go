package partition

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// inbox is a transaction that processes mail.
type inbox struct{ *txn }

// receiveAll carries out the new requests of mail, and stores position, unless it is nil. If refusal is
// not nil, it refuses the requests instead.
func (t inbox) receiveAll(all []*Mail, position []byte, refusal error) error {
	for _, m := range all {
		if err := t.receive(m, refusal); err != nil {
			return err
		}
	}
	if position != nil {
		t.Put(mailTable, []byte(positionKey), position)
		t.AfterCommit(func() { t.p.position = position })
	}
	return nil
}

// split returns mail with one request each.
func split(all []*Mail) (one [][]*Mail) {
	for _, m := range all {
		for _, r := range m.Requests {
			one = append(one, []*Mail{{Sender: m.Sender, Answered: m.Answered, Requests: []Request{r}}})
		}
	}
	return one
}

// receive carries out the requests of m that are new, or refuses them if refusal is not nil. Only the
// writer's goroutine uses senders; it updates them when the transaction is durable.
func (t inbox) receive(m *Mail, refusal error) error {
	from := t.p.senders[m.Sender]
	now := cmp.Or(t.received[m.Sender], from, &senderState{})
	next := &senderState{at: time.Now(), last: now.last, answered: slices.Clone(now.answered)}
	for _, r := range m.Requests {
		if r.Number <= next.last {
			continue
		}
		next.last = r.Number
		if r.Kind == RequestMessage {
			if err := t.deliver(m.Sender, r.Message, refusal); err != nil {
				return err
			}
			continue
		}
		err := refusal
		if err == nil {
			err = t.carryOut(r)
		}
		if !logstore.IsRefused(err) && err != nil && !IsDamage(err) {
			return err
		}
		c := newEncoder(nil)
		a := answerOf(err)
		c.answer(&a)
		t.Put(mailTable, answerKey(m.Sender, r.Number), c.Buf)
		next.answered = append(next.answered, r.Number)
	}
	next.answered = slices.DeleteFunc(next.answered, func(n uint64) bool {
		if n <= m.Answered {
			t.Remove(mailTable, answerKey(m.Sender, n))
		}
		return n <= m.Answered
	})
	c := newEncoder(nil)
	c.Time(&next.at)
	c.Uint(&next.last)
	t.Put(mailTable, []byte(markPrefix+m.Sender), c.Buf)
	if t.received == nil {
		t.received = make(map[string]*senderState)
	}
	t.received[m.Sender] = next
	t.AfterCommit(func() { t.p.senders[m.Sender] = next })
	return nil
}

// deliver stores a message, or logs it as lost if refusal is not nil. If this program cannot decode it,
// deliver fails: the message and all later mail stay in the mailbox until a newer program reads them.
func (t inbox) deliver(sender string, record []byte, refusal error) error {
	msg, err := decodeMessage(record)
	if err != nil {
		return err
	}
	if refusal != nil {
		t.AfterCommit(func() {
			t.p.cfg.Logger.Error("a message is lost: the partition cannot store it", "sender", sender, "instanceId", msg.Target.InstanceID, "kind", msg.Event.Type(), "bytes", len(record), "error", refusal)
		})
		return nil
	}
	if err = t.send(record, msg); IsDamage(err) {
		t.addMessage(record, msg) // the instance's record is damaged: keep the message until it can be read
		return nil
	}
	return err
}

// IsDamage reports whether err means that stored records are damaged.
func IsDamage(err error) bool {
	return errors.As(err, new(*logstore.DamageError)) || errors.As(err, new(*logstore.RangeError)) || errors.As(err, new(remoteDamage))
}

// carryOut carries out a client's request. A refused request changes nothing.
func (t inbox) carryOut(r Request) error {
	switch r.Kind {
	case RequestStart:
		msg, err := decodeMessage(r.Message)
		if err == nil {
			err = CheckID(msg.Target.InstanceID)
		}
		if err != nil {
			return logstore.Refuse(err)
		}
		return t.start(msg, r.Refuse)
	case RequestPurge:
		return t.purge(r.ID, r.Seen)
	default:
		return t.rewindUnchanged(r.Execution, r.Time)
	}
}

// rewindUnchanged calls rewindExecution unless the execution has changed since the rewind was
// planned.
func (t inbox) rewindUnchanged(x provider.RewoundExecution, at time.Time) error {
	r, err := t.row(x.Instance.InstanceID)
	if err != nil {
		return err
	}
	if r == nil || r.Instance.ExecutionID != x.Instance.ExecutionID || !provider.CanRewind(r.Status) {
		return logstore.Refuse(provider.ErrInstanceChanged)
	}
	past, err := t.events(r.number)
	if err != nil {
		return err
	}
	if places := slices.Concat(x.Replace, x.MarkChildren); len(places) > 0 && slices.Max(places) >= len(past) {
		return logstore.Refuse(provider.ErrInstanceChanged)
	}
	if slices.ContainsFunc(x.Apply(past), isEnd) { // it has ended since the rewind was planned
		return logstore.Refuse(provider.ErrInstanceChanged)
	}
	return t.rewindExecution(x, at)
}

// removeIdleClients removes the records of clients that have sent nothing for clientLifetime.
func (t inbox) removeIdleClients() {
	for name, from := range t.p.senders {
		if !IsClient(name) || time.Since(from.at) < clientLifetime || t.received[name] != nil {
			continue
		}
		t.Remove(mailTable, []byte(markPrefix+name))
		for _, n := range from.answered {
			t.Remove(mailTable, answerKey(name, n))
		}
		t.AfterCommit(func() { delete(t.p.senders, name) })
	}
}
