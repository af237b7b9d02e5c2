package azsim

import (
	"errors"
	"net/http"
	"time"
)

// Fault is a fault of a request.
type Fault int

// The faults.
const (
	// None causes no fault.
	None Fault = iota
	// Throttle refuses the request with 503 ServerBusy.
	Throttle
	// FailBefore loses the request: it has no effect and no response.
	FailBefore
	// FailAfter loses the response after the request has taken effect.
	FailAfter
	// RefuseAfter returns status 500 although the request has taken effect.
	RefuseAfter
	// Slow delays the request's effect by 2 s to 60 s, even if the worker gives up earlier.
	Slow
	// KillBefore kills the worker before the request takes effect.
	KillBefore
	// KillAfter kills the worker as soon as the request has taken effect.
	KillAfter
	// FreezeAfter loses the response and freezes the worker for 5 s to 45 s, which delays its
	// retry. The machine may sleep meanwhile, or its wall clock may be set.
	FreezeAfter
	// Twice delivers the request twice in a row, as a middlebox may. The worker gets the second
	// response.
	Twice
	// Echo answers the request and delivers it again after 2 s to 60 s.
	Echo
	// Late resets the connection and delivers the request after 2 s to 60 s.
	Late
	// Cut resets the connection during the response's body, after the request has taken effect.
	// A response without a body is lost.
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

// Errors that the transport returns instead of a response.
var (
	errLost   = errors.New("azsim: the connection was reset")
	errKilled = errors.New("azsim: the process is dead")
	errEnded  = errors.New("azsim: the account has ended")
)

// refused returns the response of an overloaded service.
func refused(r *Request, f Fault) *reply {
	if f == RefuseAfter {
		return refusal(r.Service, http.StatusInternalServerError, "InternalError", "The server encountered an internal error. Please retry the request.")
	}
	return refusal(r.Service, http.StatusServiceUnavailable, "ServerBusy", "The server is busy.")
}

// freezeTime returns how long FreezeAfter freezes the worker.
func freezeTime(roll uint64) time.Duration {
	return 5*time.Second + time.Duration(fraction(roll)*float64(40*time.Second))
}

// slowDelay returns the delay of a slow request.
func slowDelay(roll uint64) time.Duration {
	return 2*time.Second + time.Duration(fraction(roll)*float64(58*time.Second))
}
