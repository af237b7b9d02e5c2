package azsim

import (
	"net/http"
	"strconv"
	"time"
)

// lease is a lease on a blob or a container.
type lease struct {
	id      string
	span    time.Duration // of the acquisition; negative means infinite
	until   time.Time     // when it expires or its breaking ends; zero means never
	broken  bool          // it is breaking or broken
	present bool          // it was acquired and not released
}

// leaseState is the state of a lease.
type leaseState string

const (
	available leaseState = "available"
	leased    leaseState = "leased"
	expired   leaseState = "expired"
	breaking  leaseState = "breaking"
	broken    leaseState = "broken"
)

func (l *lease) state(now time.Time) leaseState {
	over := !l.until.IsZero() && !now.Before(l.until)
	switch {
	case !l.present:
		return available
	case l.broken && over:
		return broken
	case l.broken:
		return breaking
	case over:
		return expired
	}
	return leased
}

// addHeaders adds the lease properties to a response.
func (l *lease) addHeaders(r *reply) {
	state := l.state(time.Now())
	r.header.Set("x-ms-lease-state", string(state))
	r.header.Set("x-ms-lease-status", l.status())
	if state == leased {
		kind := "fixed"
		if l.span < 0 {
			kind = "infinite"
		}
		r.header.Set("x-ms-lease-duration", kind)
	}
}

func (l *lease) status() string {
	if state := l.state(time.Now()); state == leased || state == breaking {
		return "locked"
	}
	return "unlocked"
}

// allowsWrite returns the refusal of a write with the request's lease ID, or nil.
func (l *lease) allowsWrite(r *Request) *reply {
	given := r.header.Get("x-ms-lease-id")
	kind := "Blob"
	if r.rest() == "" {
		kind = "Container"
	}
	switch l.state(time.Now()) {
	case leased, breaking:
		switch given {
		case "":
			return refuseBlob(http.StatusPreconditionFailed, "LeaseIdMissing", "There is currently a lease on the blob and no lease ID was specified in the request.")
		case l.id:
			return nil
		}
		return refuseBlob(http.StatusPreconditionFailed, "LeaseIdMismatchWith"+kind+"Operation", "The lease ID specified did not match the lease ID for the blob.")
	case expired, available, broken:
		if given != "" {
			return refuseBlob(http.StatusPreconditionFailed, "LeaseNotPresentWith"+kind+"Operation", "There is currently no lease on the blob.")
		}
		l.present = false // a write ends an expired or broken lease
	}
	return nil
}

func leaseMismatch() *reply {
	return refuseBlob(http.StatusConflict, "LeaseIdMismatchWithLeaseOperation", "The lease ID specified did not match the lease ID for the blob.")
}

func (l *lease) acquire(r *Request, answer *reply, state leaseState, now time.Time) *reply {
	proposed := r.header.Get("x-ms-proposed-lease-id")
	seconds, err := strconv.Atoi(r.header.Get("x-ms-lease-duration"))
	switch {
	case err != nil || seconds != -1 && (seconds < 15 || seconds > 60):
		return refuseBlob(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: x-ms-lease-duration")
	case proposed != "" && identifier([]byte(proposed), 0) != len(proposed): // must be a GUID
		return refuseBlob(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: x-ms-proposed-lease-id")
	case state == breaking || state == leased && proposed != l.id:
		return refuseBlob(http.StatusConflict, "LeaseAlreadyPresent", "There is already a lease present.")
	}
	if proposed == "" {
		proposed = requestID(mix(r.Roll, 8))
	}
	*l = lease{id: proposed, span: time.Duration(seconds) * time.Second, present: true}
	l.extend(now)
	answer.status = http.StatusCreated
	answer.header.Set("x-ms-lease-id", l.id)
	return answer
}

func (l *lease) extend(now time.Time) {
	l.until = time.Time{}
	if l.span > 0 {
		l.until = now.Add(l.span)
	}
}

func (l *lease) breakUp(r *Request, answer *reply, state leaseState, now time.Time) *reply {
	if state == available {
		return refuseBlob(http.StatusConflict, "LeaseNotPresentWithLeaseOperation", "There is currently no lease on the blob.")
	}
	left := time.Duration(0)
	if state == leased || state == breaking {
		if !l.until.IsZero() {
			left = l.until.Sub(now)
		}
		if period, err := strconv.Atoi(r.header.Get("x-ms-lease-break-period")); err == nil {
			if wanted := time.Duration(period) * time.Second; l.until.IsZero() || wanted < left {
				left = wanted
			}
		}
	}
	l.broken, l.until = true, now.Add(left)
	answer.status = http.StatusAccepted
	answer.header.Set("x-ms-lease-time", strconv.Itoa(int(left/time.Second)))
	return answer
}
