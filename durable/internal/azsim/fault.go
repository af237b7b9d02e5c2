package azsim

import (
	"errors"
	"net/http"
	"time"
)

// A Fault is something that goes wrong with a request.
type Fault int

// The faults.
const (
	// None lets the request pass.
	None Fault = iota
	// Throttle refuses the request with 503 ServerBusy.
	Throttle
	// FailBefore loses the request: it has no effect and gets no answer.
	FailBefore
	// FailAfter loses the answer: the request has had its effect.
	FailAfter
	// RefuseAfter answers 500 though the request has had its effect.
	RefuseAfter
	// Slow lets the request take effect after several seconds, even if the worker
	// does not wait for it so long.
	Slow
	// KillBefore ends the worker's life before the request has an effect.
	KillBefore
	// KillAfter ends it as soon as the request has had its effect.
	KillAfter
	// FreezeAfter loses the answer, and freezes the worker for a while, which makes
	// its next attempt come late.
	FreezeAfter
	// Twice delivers the request two times, one right after the other, as a
	// middlebox may. The answer is that of the second.
	Twice
	// Echo answers the request, and delivers it once more after several seconds.
	Echo
	// Late loses the connection, and delivers the request after several seconds.
	Late
	// Cut resets the connection in the middle of the answer's body, after the request
	// has had its effect. An answer without a body is lost.
	Cut
)

// String returns the name of the fault.
func (f Fault) String() string {
	names := [...]string{
		"", "throttled", "lost", "answer lost", "refused after", "slow", "killed before", "killed after", "frozen after",
		"delivered twice", "delivered again", "delivered late", "cut off",
	}
	if f < 0 || int(f) >= len(names) {
		return "unknown fault"
	}
	return names[f]
}

// Errors that the transport returns instead of an answer.
var (
	errLost   = errors.New("azsim: the connection was reset")
	errKilled = errors.New("azsim: the process is dead")
)

// refused is the answer of an overloaded service.
func refused(r *Request, f Fault) *reply {
	if f == RefuseAfter {
		return refusal(r.Service, http.StatusInternalServerError, "InternalError", "The server encountered an internal error. Please retry the request.")
	}
	return refusal(r.Service, http.StatusServiceUnavailable, "ServerBusy", "The server is busy.")
}

// stall is for how long a worker is frozen that lost an answer.
func stall(roll uint64) time.Duration {
	return 5*time.Second + time.Duration(fraction(roll)*float64(40*time.Second))
}

// slowness is how long a slow request is on its way.
func slowness(roll uint64) time.Duration {
	return 2*time.Second + time.Duration(fraction(roll)*float64(58*time.Second))
}
