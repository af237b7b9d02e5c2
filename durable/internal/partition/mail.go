package partition

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Mail is a list of requests to a partition. The sender is another partition of the hub, or a
// client in another process. It numbers its requests in the order of sending and may repeat
// them: the partition stores the highest number that it received.
type Mail struct {
	// Sender is the sender's name, unique in the hub.
	Sender string
	// Answered is the highest number of a request whose answer the sender no longer needs. The
	// partition deletes the answers up to it.
	Answered uint64
	Requests []Request
}

// RequestKind is the kind of a [Request].
type RequestKind byte

// The kinds of requests. Each request except RequestMessage is answered.
const (
	RequestMessage RequestKind = iota // send Message
	RequestStart                      // start the instance of Message, see provider.Client
	RequestPurge                      // purge the instance ID, see provider.Purger
	RequestRewind                     // rewrite the history of Execution for a rewind at Time
)

// Request is a request to a partition. Kind says which fields are set.
type Request struct {
	Number uint64
	Kind   RequestKind
	// Message is the record of a message (see [EncodeMessage]).
	Message   []byte
	Refuse    []history.RuntimeStatus
	ID        string
	Seen      *provider.InstanceState // execution ID, status and last update
	Execution provider.RewoundExecution
	Time      time.Time
}

// EncodeMessage returns the record of a message.
func EncodeMessage(m provider.TaskMessage) ([]byte, error) { return encodeMessage(m) }

// Encode returns m in the form that DecodeMail reads.
func (m *Mail) Encode() ([]byte, error) {
	c := newEncoder(nil)
	c.mail(m)
	return c.Buf, c.End()
}

// DecodeMail decodes mail that Encode returned.
func DecodeMail(b []byte) (*Mail, error) {
	m := &Mail{}
	c := newDecoder(b)
	c.mail(m)
	if err := c.End(); err != nil {
		return nil, fmt.Errorf("decode mail: %w", err)
	}
	return m, nil
}

// list codes a slice; one codes an element.
func list[T any](c *coder, v *[]T, one func(*T)) {
	n := uint64(len(*v))
	c.Uint(&n)
	if c.Reading {
		if n > uint64(len(c.Buf)) {
			c.Fail(logstore.ErrTruncated)
			n = 0
		}
		*v = slices.Grow(*v, int(n))[:n]
	}
	for i := range *v {
		one(&(*v)[i])
	}
}

// clientPrefix is the first letter of a client's sender name.
const clientPrefix = "c"

// clientLifetime is the time without mail after which the records of a client are removed. If a
// client is suspended for longer and then repeats a request, the request is carried out again.
const clientLifetime = 24 * time.Hour

// ClientSender returns the sender name of a client. id must be unique in the hub.
func ClientSender(id string) string { return clientPrefix + id }

// IsClient reports whether sender is the sender name of a client, and not of a partition.
func IsClient(sender string) bool { return strings.HasPrefix(sender, clientPrefix) }

// The records of mail:
//
//	outbox  number                      a message for another partition
//	outbox  number, partition           an activity for that partition to run
//	mail    'a', sender, 0, number      an answer
//	mail    'm', sender                 when the sender last sent, and its highest number
//	mail    'p'                         the position up to which the mailbox was read
//	mail    'i'                         1 if data was imported
const (
	answerPrefix = "a"
	markPrefix   = "m"
	positionKey  = "p"
	importedKey  = "i"
)

func answerKey(sender string, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte(answerPrefix+sender+"\x00"), number)
}

// answer is the stored answer to a request.
type answer struct {
	kind   byte // one of the constants below
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

// remoteDamage is the text of an error for which [IsDamage] was true in another process.
type remoteDamage string

// Error returns the text.
func (e remoteDamage) Error() string { return string(e) }

// Outgoing is a message for another partition: a message for an instance, or an activity to
// run.
type Outgoing struct {
	Number    uint64
	To        string // the target instance; empty for an activity
	Partition int    // the partition that runs the activity
	Record    []byte
}

// key returns the message's key in the outbox. It includes the partition that runs an activity:
// a repeated send must go to the same partition, which may have received the first one.
func (m Outgoing) key() []byte {
	k := logstore.NumberKey(m.Number)
	if m.To == "" {
		k = binary.BigEndian.AppendUint16(k, uint16(m.Partition))
	}
	return k
}

// outgoingOf decodes a record of the outbox.
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

// OutgoingIn returns the messages for other partitions that a layer adds, by ascending number.
func OutgoingIn(l *logstore.Layer) (all []Outgoing, err error) {
	l.Changes(outboxTable, func(key string, record []byte) bool {
		if record == nil { // deleted: it was sent
			return true
		}
		var m Outgoing
		m, err = outgoingOf([]byte(key), record)
		all = append(all, m)
		return err == nil
	})
	return all, err
}

// senderState is the state of a sender of mail.
type senderState struct {
	at       time.Time // when it last sent
	last     uint64
	answered []uint64 // numbers of requests whose answers are stored
}
