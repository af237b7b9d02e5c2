package azsim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// An Entry tells of a request that took effect or failed on its way.
type Entry struct {
	Request
	Asked  time.Duration // when it was sent, since the account was made
	At     time.Duration // when it took effect
	Fault  Fault
	Status int    // 0 if it did not arrive
	Code   string // of an error
	Answer []byte
}

// String returns what the entry tells, on one line, without what differs between
// two runs of one seed.
func (e Entry) String() string {
	what := fmt.Sprintf("%14v %-3s %-22s %s", e.At, e.Worker, e.Operation, withoutNoise(e.Path))
	if e.query.Has("$filter") {
		what += "?" + withoutNoise(e.query.Get("$filter"))
	}
	for _, s := range []string{fmt.Sprint(e.Status), e.Code, e.Fault.String()} {
		if s != "" {
			what += " " + s
		}
	}
	key := e.key
	if e.Service != BlobService { // whose names and sizes differ with the GUIDs in them
		key = mix(key, fingerprint(e.Answer))
	}
	return fmt.Sprintf("%s %08x", what, uint32(key))
}

// record appends to the log. a.mu is held.
func (a *Account) record(x *exchange, answer *reply) {
	e := Entry{Request: *x.r, Asked: x.asked.Sub(a.start), At: time.Since(a.start), Fault: x.fault}
	if answer != nil {
		e.Status, e.Code, e.Answer = answer.status, answer.code, answer.body
	}
	a.log = append(a.log, e)
	if a.cfg.Watch != nil {
		a.cfg.Watch(View{a}, e)
	}
}

// note records a request that did not arrive.
func (a *Account) note(x *exchange, answer *reply) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.at, x.id = time.Now(), requestID(x.r.Roll)
	a.record(x, answer)
}

// Log returns all requests so far in the order in which they took effect.
func (a *Account) Log() []Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.log)
}

// Trace returns the log as text, one request a line.
func (a *Account) Trace() string {
	var b strings.Builder
	for _, e := range a.Log() {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

func requestID(roll uint64) string {
	return fmt.Sprintf("00000000-0000-4000-%04x-%012x", roll>>48, roll&(1<<48-1))
}
