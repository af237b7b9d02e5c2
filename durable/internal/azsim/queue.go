package azsim

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// The service's bounds on queues.
const (
	maxMessageBytes = 64 << 10
	maxReceive      = 32
	maxInvisible    = 7 * 24 * 60 * 60 // seconds
	defaultTTL      = 7 * 24 * time.Hour
)

type queue struct {
	metadata http.Header
	messages []*message // in the order in which they were sent
}

type message struct {
	id, receipt  string
	text         string
	insertedAt   time.Time
	expiresAt    time.Time // zero for never
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

// expire drops the messages whose time to live is over.
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

// readMessage reads the text out of a body; ok is false if there is none.
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

// owned returns the message that a request is about, if its receipt is the
// last.
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

// What an answer tells of messages besides their identity.
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

// writeEscaped writes text into XML as the service does: quotes stay.
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

// metadataOf returns the metadata among a request's headers.
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
