package azsim

import (
	"fmt"
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

func requestID(roll uint64) string {
	return fmt.Sprintf("00000000-0000-4000-%04x-%012x", roll>>48, roll&(1<<48-1))
}
