package azsim

import (
	"fmt"
	"time"
)

// Entry describes a request that took effect or failed.
type Entry struct {
	Request
	SentAt    time.Duration // when it was sent, relative to the account's creation
	AppliedAt time.Duration // when it took effect, relative to the account's creation
	Fault     Fault
	Status    int    // 0 if it was lost
	Code      string // the error code
	Answer    []byte
}

// String returns a line that is the same in all runs with the same seed.
func (e Entry) String() string {
	what := fmt.Sprintf("%14v %-3s %-22s %s", e.AppliedAt, e.Worker, e.Operation, withoutNoise(e.Path))
	if e.query.Has("$filter") {
		what += "?" + withoutNoise(e.query.Get("$filter"))
	}
	for _, s := range []string{fmt.Sprint(e.Status), e.Code, e.Fault.String()} {
		if s != "" {
			what += " " + s
		}
	}
	key := e.key
	if e.Service != BlobService { // blob names and sizes differ with the GUIDs in them
		key = mix(key, fingerprint(e.Answer))
	}
	return fmt.Sprintf("%s %08x", what, uint32(key))
}

func requestID(roll uint64) string {
	return fmt.Sprintf("00000000-0000-4000-%04x-%012x", roll>>48, roll&(1<<48-1))
}
