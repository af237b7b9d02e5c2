package partition

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Mail is what a sender asks of a partition: another partition of the hub, or a client in
// another process. A sender sends its requests in the order of their numbers, and may send
// them again: the partition keeps the number of the last that it has received.
type Mail struct {
	// Sender is the name of the sender, unique among all that send to the hub.
	Sender string
	// Answered is the number up to which the sender needs no answers any more.
	Answered uint64
	Requests []Request
}

// RequestKind is what a [Request] asks for.
type RequestKind byte

// The kinds of requests. All but messages are answered.
const (
	RequestMessage RequestKind = iota // to send Message
	RequestStart                      // to start the instance of Message, see provider.Client
	RequestPurge                      // to purge ID, see provider.Purger
	RequestRewind                     // to change the history of Execution, at Time
)

// Request is one thing that a sender asks for.
type Request struct {
	Number uint64
	Kind   RequestKind
	// Message is the record of a message, see [EncodeMessage].
	Message   []byte
	Refuse    []history.RuntimeStatus
	ID        string
	Seen      *provider.InstanceState // the ID of its execution, its status and its last update
	Execution provider.RewoundExecution
	Time      time.Time
}

// EncodeMessage returns the record of a message.
func EncodeMessage(m provider.TaskMessage) ([]byte, error) { return encodeMessage(m) }

// Encode returns mail as bytes.
func (m *Mail) Encode() ([]byte, error) {
	c := writing(nil)
	c.mail(m)
	return c.Buf, c.End()
}

// DecodeMail reads mail that Encode wrote.
func DecodeMail(b []byte) (*Mail, error) {
	m := &Mail{}
	c := reading(b)
	c.mail(m)
	if err := c.End(); err != nil {
		return nil, fmt.Errorf("decode mail: %w", err)
	}
	return m, nil
}

// list codes a slice.
func list[T any](c *coder, v *[]T, one func(*T)) {
	n := uint64(len(*v))
	c.Uint(&n)
	if c.Reading {
		if n > uint64(len(c.Buf)) {
			c.Fail(logstore.ErrShort)
			n = 0
		}
		*v = slices.Grow(*v, int(n))[:n]
	}
	for i := range *v {
		one(&(*v)[i])
	}
}

// clientPrefix begins the names of clients among senders.
const clientPrefix = "c"

const clientsFor = 24 * time.Hour

// ClientSender returns the name under which a client sends, which must have a unique ID.
func ClientSender(id string) string { return clientPrefix + id }

// The records of mail:
//
//	outbox  number                      a message for another partition
//	outbox  number, partition           an activity that the partition is to run
//	mail    'a', sender, 0, number      an answer
//	mail    'm', sender                 when the sender last sent, and the last number
//	mail    'p'                         how far the mailbox was read
//	mail    'i'                         1 if something was imported
const (
	answerPrefix = "a"
	markPrefix   = "m"
	positionKey  = "p"
	importedKey  = "i"
)

func answerKey(sender string, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(answerPrefix+sender+"\x00"), number)
}

// answer is the answer to a request.
type answer struct {
	kind   byte // one of the following
	status history.RuntimeStatus
	text   string
}

const (
	answerDone byte = iota
	answerExists
	answerNotFound
	answerChanged
	answerFailed
	answerUnreadable
)

func answerOf(err error) answer {
	exists, isThere := errors.AsType[*provider.InstanceExistsError](err)
	switch {
	case err == nil:
		return answer{kind: answerDone}
	case isThere:
		return answer{kind: answerExists, status: exists.Status, text: exists.InstanceID}
	case errors.Is(err, provider.ErrInstanceNotFound):
		return answer{kind: answerNotFound}
	case errors.Is(err, provider.ErrInstanceChanged):
		return answer{kind: answerChanged}
	case IsDamage(err):
		return answer{kind: answerUnreadable, text: err.Error()}
	}
	return answer{kind: answerFailed, text: err.Error()}
}

func (a answer) err() error {
	switch a.kind {
	case answerDone:
		return nil
	case answerExists:
		return &provider.InstanceExistsError{InstanceID: a.text, Status: a.status}
	case answerNotFound:
		return provider.ErrInstanceNotFound
	case answerChanged:
		return provider.ErrInstanceChanged
	case answerUnreadable:
		return remoteDamage(a.text)
	}
	return errors.New(a.text)
}

// remoteDamage is an error for which [IsDamage] was true in another process.
type remoteDamage string

// Error returns the error's text there.
func (e remoteDamage) Error() string { return string(e) }

// Outgoing is a message for another partition: that of an instance, or one that is to run
// an activity.
type Outgoing struct {
	Number    uint64
	To        string // the instance; empty if Partition is set
	Partition int    // the number of the partition that is to run an activity
	Record    []byte
}

// key returns the key of a message in the outbox. The partition that is to run an activity is
// part of it: what may have arrived there must not be sent to another one.
func (m Outgoing) key() []byte {
	k := logstore.NumberKey(m.Number)
	if m.To == "" {
		k = binary.BigEndian.AppendUint16(k, uint16(m.Partition))
	}
	return k
}

// outgoingOf returns the message of a record of the outbox.
func outgoingOf(key, record []byte) (Outgoing, error) {
	m := Outgoing{Record: bytes.Clone(record)}
	switch len(key) {
	case 8:
		r, err := decodeRoute(record)
		if err != nil {
			return m, err
		}
		m.To = r.target.InstanceID
	case 10:
		m.Partition = int(binary.BigEndian.Uint16(key[8:]))
	default:
		return m, fmt.Errorf("key has %d bytes; want 8 or 10", len(key))
	}
	m.Number = binary.BigEndian.Uint64(key)
	return m, nil
}

// OutgoingIn returns the messages for other partitions that a layer adds, by rising numbers.
func OutgoingIn(l *logstore.Layer) (all []Outgoing, err error) {
	l.Changes(outboxTable, func(key string, record []byte) bool {
		if record == nil { // it was sent
			return true
		}
		var m Outgoing
		m, err = outgoingOf([]byte(key), record)
		all = append(all, m)
		return err == nil
	})
	return all, err
}

// correspondent is who has sent mail, in memory.
type correspondent struct {
	at       time.Time // when it last sent
	last     uint64
	answered []uint64 // numbers whose answers are stored
}
