package azsim

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The service's limits of queues.
const (
	maxMessageBytes = 64 << 10
	maxReceive      = 32
	maxInvisible    = 7 * 24 * 60 * 60 // seconds
	defaultTTL      = 7 * 24 * time.Hour
)

type queue struct {
	metadata http.Header
	messages []*message // in the order of sending
}

type message struct {
	id, receipt  string
	text         string
	insertedAt   time.Time
	expiresAt    time.Time // zero means never
	visibleAt    time.Time
	dequeueCount int
	changes      int // of the receipt
	sent         time.Time
}

func validQueueName(name string) bool {
	if len(name) < 3 || len(name) > 63 || strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") || strings.Contains(name, "--") {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return c != '-' && (c < 'a' || c > 'z') && (c < '0' || c > '9')
	})
}

// expire removes expired messages.
func (q *queue) expire(now time.Time) {
	q.messages = slices.DeleteFunc(q.messages, func(m *message) bool { return !m.expiresAt.IsZero() && !now.Before(m.expiresAt) })
}

func (q *queue) find(id string) *message {
	for _, m := range q.messages {
		if m.id == id {
			return m
		}
	}
	return nil
}

func outOfRange(name string) *reply {
	return refusal(QueueService, http.StatusBadRequest, "OutOfRangeQueryParameterValue",
		"One of the query parameters specified in the request URI is outside the permissible range: "+name)
}

// readMessage parses the text of a message; ok is false if the body is invalid.
func readMessage(body []byte) (text string, ok bool) {
	var m struct {
		MessageText string
	}
	body = bytes.TrimPrefix(body, []byte("\uFEFF"))
	if err := xml.Unmarshal(body, &m); err != nil {
		return "", false
	}
	return m.MessageText, true
}

func tooLarge() *reply {
	return refusal(QueueService, http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.")
}

func (m *message) changeReceipt(roll uint64) {
	m.changes++
	m.receipt = fmt.Sprintf("r%x.%08x", m.changes, uint32(mix(roll, 6)))
}

// owned returns the message of a request. It returns a refusal if the receipt is not the
// latest.
func (q *queue) owned(r *Request) (*message, *reply) {
	m := q.find(strings.TrimPrefix(r.rest(), "messages/"))
	switch {
	case m == nil:
		return nil, refusal(QueueService, http.StatusNotFound, "MessageNotFound", "The specified message does not exist.")
	case m.receipt != r.query.Get("popreceipt"):
		return nil, refusal(QueueService, http.StatusBadRequest, "PopReceiptMismatch", "The specified pop receipt did not match the pop receipt for a dequeued message.")
	}
	return m, nil
}

// The optional parts of a message in a response.
const (
	withReceipt = 1 << iota
	withText
)

func messagesXML(messages []*message, parts int) []byte {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0" encoding="UTF-8" standalone="yes"?><QueueMessagesList>`)
	for _, m := range messages {
		expires := "Fri, 31 Dec 9999 23:59:59 GMT"
		if !m.expiresAt.IsZero() {
			expires = m.expiresAt.UTC().Format(http.TimeFormat)
		}
		fmt.Fprintf(&b, "<QueueMessage><MessageId>%s</MessageId><InsertionTime>%s</InsertionTime><ExpirationTime>%s</ExpirationTime>",
			m.id, m.insertedAt.UTC().Format(http.TimeFormat), expires)
		if parts&withReceipt != 0 {
			fmt.Fprintf(&b, "<PopReceipt>%s</PopReceipt><TimeNextVisible>%s</TimeNextVisible>", m.receipt, m.visibleAt.UTC().Format(http.TimeFormat))
		}
		if parts&withText != 0 {
			fmt.Fprintf(&b, "<DequeueCount>%d</DequeueCount><MessageText>", m.dequeueCount)
			writeEscaped(&b, m.text)
			b.WriteString("</MessageText>")
		}
		b.WriteString("</QueueMessage>")
	}
	b.WriteString("</QueueMessagesList>")
	return b.Bytes()
}

// writeEscaped writes text with the same XML escapes as the service, which does not escape
// quotes.
func writeEscaped(b *bytes.Buffer, text string) {
	for _, c := range text {
		switch c {
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '&':
			b.WriteString("&amp;")
		case '\r':
			b.WriteString("&#xD;")
		case utf8.RuneError:
			b.WriteString("\uFFFD")
		default:
			b.WriteRune(c)
		}
	}
}

// metadataOf returns the metadata in a request's headers.
func metadataOf(h http.Header) http.Header {
	metadata := http.Header{}
	copyMetadata(metadata, h)
	return metadata
}

func copyMetadata(to, from http.Header) {
	for name, values := range from {
		if strings.HasPrefix(strings.ToLower(name), "x-ms-meta-") {
			to[name] = values
		}
	}
}

// queueService serves the queues of an account.
type queueService struct{ *Account }

func (a queueService) serveQueue(r *Request) *reply {
	switch r.Operation {
	case "ListQueues":
		return a.listQueues()
	case "CreateQueue":
		return a.createQueue(r)
	}
	q := a.queues[r.Target]
	if q == nil {
		return refusal(QueueService, http.StatusNotFound, "QueueNotFound", "The specified queue does not exist.")
	}
	q.expire(time.Now())
	switch r.Operation {
	case "DeleteQueue":
		delete(a.queues, r.Target)
		return newReply(http.StatusNoContent)
	case "GetQueueMetadata":
		answer := newReply(http.StatusOK, "x-ms-approximate-messages-count", strconv.Itoa(len(q.messages)))
		copyMetadata(answer.header, q.metadata)
		return answer
	case "SetQueueMetadata":
		q.metadata = metadataOf(r.header)
		return newReply(http.StatusNoContent)
	case "PutMessage":
		return a.putMessage(q, r)
	case "GetMessages", "PeekMessages":
		return a.getMessages(q, r)
	case "UpdateMessage":
		return a.updateMessage(q, r)
	case "DeleteMessage":
		return a.deleteMessage(q, r)
	case "ClearMessages":
		q.messages = nil
		return newReply(http.StatusNoContent)
	}
	return refusal(QueueService, http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The resource doesn't support the specified Http Verb.")
}

func (a queueService) createQueue(r *Request) *reply {
	metadata := metadataOf(r.header)
	switch q := a.queues[r.Target]; {
	case !validQueueName(r.Target):
		return refusal(QueueService, http.StatusBadRequest, "InvalidResourceName", "The specified resource name contains invalid characters.")
	case q == nil:
		if refused := a.beingDeleted(QueueService, r.Target); refused != nil {
			return refused
		}
		a.queues[r.Target] = &queue{metadata: metadata}
		return newReply(http.StatusCreated)
	case !maps.EqualFunc(q.metadata, metadata, slices.Equal[[]string]):
		return refusal(QueueService, http.StatusConflict, "QueueAlreadyExists", "The specified queue already exists.")
	}
	return newReply(http.StatusNoContent)
}

func (a queueService) listQueues() *reply {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8" standalone="yes"?><EnumerationResults><Queues>`)
	for _, name := range slices.Sorted(maps.Keys(a.queues)) {
		fmt.Fprintf(&b, "<Queue><Name>%s</Name></Queue>", name)
	}
	b.WriteString("</Queues><NextMarker/></EnumerationResults>")
	return newReply(http.StatusOK).with("application/xml", []byte(b.String()))
}

func (a queueService) putMessage(q *queue, r *Request) *reply {
	text, ok := readMessage(r.Body)
	switch {
	case !ok:
		return refusal(QueueService, http.StatusBadRequest, "InvalidXmlDocument", "XML specified is not syntactically valid.")
	case len(text) > maxMessageBytes:
		return tooLarge()
	}
	hidden, ok := r.seconds("visibilitytimeout", 0, 0, maxInvisible)
	if !ok {
		return outOfRange("visibilitytimeout")
	}
	now := time.Now()
	m := &message{
		id: fmt.Sprintf("m-%016x", mix(r.Roll, 5)), text: text,
		insertedAt: now, visibleAt: now.Add(time.Duration(hidden) * time.Second), expiresAt: now.Add(defaultTTL), sent: a.tick(),
	}
	switch ttl, err := strconv.Atoi(cmp.Or(r.query.Get("messagettl"), "604800")); {
	case err != nil || ttl == 0 || ttl < -1 || ttl > 0 && hidden > ttl:
		return refusal(QueueService, http.StatusBadRequest, "InvalidQueryParameterValue", "Value for one of the query parameters specified in the request URI is invalid.")
	case ttl == -1:
		m.expiresAt = time.Time{}
	default:
		m.expiresAt = now.Add(time.Duration(ttl) * time.Second)
	}
	m.changeReceipt(r.Roll)
	q.messages = append(q.messages, m)
	return newReply(http.StatusCreated).with("application/xml", messagesXML([]*message{m}, withReceipt))
}

func (a queueService) getMessages(q *queue, r *Request) *reply {
	n, ok := r.seconds("numofmessages", 1, 1, maxReceive)
	if !ok {
		return outOfRange("numofmessages")
	}
	hidden, ok := r.seconds("visibilitytimeout", 30, 1, maxInvisible)
	if !ok {
		return outOfRange("visibilitytimeout")
	}
	now := time.Now()
	var visible []*message
	for _, m := range q.messages {
		if !now.Before(m.visibleAt) {
			visible = append(visible, m)
		}
	}
	slices.SortStableFunc(visible, func(x, y *message) int {
		if a.cfg.Loose {
			return cmp.Compare(mix(r.Roll, hashOf(x.id)), mix(r.Roll, hashOf(y.id)))
		}
		return cmp.Or(x.visibleAt.Compare(y.visibleAt), x.sent.Compare(y.sent))
	})
	visible = visible[:min(n, len(visible))]
	if r.Operation == "PeekMessages" {
		return newReply(http.StatusOK).with("application/xml", messagesXML(visible, withText))
	}
	for _, m := range visible {
		m.dequeueCount++
		m.visibleAt = now.Add(time.Duration(hidden) * time.Second)
		m.changeReceipt(r.Roll)
	}
	return newReply(http.StatusOK).with("application/xml", messagesXML(visible, withReceipt|withText))
}

func (a queueService) updateMessage(q *queue, r *Request) *reply {
	hidden, ok := r.seconds("visibilitytimeout", -1, 0, maxInvisible)
	if !ok || hidden < 0 {
		return outOfRange("visibilitytimeout")
	}
	m, failure := q.owned(r)
	if failure != nil {
		return failure
	}
	if len(r.Body) > 0 {
		text, ok := readMessage(r.Body)
		switch {
		case !ok:
			return refusal(QueueService, http.StatusBadRequest, "InvalidXmlDocument", "XML specified is not syntactically valid.")
		case len(text) > maxMessageBytes:
			return tooLarge()
		}
		m.text = text
	}
	m.visibleAt = time.Now().Add(time.Duration(hidden) * time.Second)
	m.changeReceipt(r.Roll)
	return newReply(http.StatusNoContent, "x-ms-popreceipt", m.receipt, "x-ms-time-next-visible", m.visibleAt.UTC().Format(http.TimeFormat))
}

func (a queueService) deleteMessage(q *queue, r *Request) *reply {
	m, failure := q.owned(r)
	if failure != nil {
		return failure
	}
	q.messages = slices.DeleteFunc(q.messages, func(o *message) bool { return o == m })
	return newReply(http.StatusNoContent)
}
