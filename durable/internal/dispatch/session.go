package dispatch

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/metering"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A session holds an instance from the delivery of its work item to its release. [orchestrationSession] and
// [entitySession] embed it.
type session struct {
	d     *Dispatcher
	live  lifetimes
	item  *provider.OrchestrationWorkItem
	label string
	work  string       // the key of its crash count
	log   *slog.Logger // with the IDs of the current execution and the name of its function
	ids   *slog.Logger // with the IDs of the current execution

	hasSlot bool // for entities or orchestrations
	payload int  // admitted bytes
	outcome metering.Outcome
	metered func(name string, o metering.Outcome) // ends the current measurement; may be nil
}

func newSession(d *Dispatcher, live lifetimes, next *admitted[*provider.OrchestrationWorkItem], it *item) session {
	return session{d: d, live: live, item: next.item, label: it.label, work: it.work, payload: next.size}
}

// logFor sets the logs for an execution with the given start. The start of an entity, or of an unknown
// instance, is nil.
func (s *session) logFor(i history.OrchestrationInstance, start *history.ExecutionStarted) {
	name, traced := entityName(s.item), (*history.TraceContext)(nil)
	if start != nil {
		name, traced = start.Name, start.ParentTraceContext
	}
	s.ids = instanceLog(s.d.log, i, traced)
	if s.log = s.ids; name != "" {
		s.log = s.ids.With("name", name)
	}
}

// measure starts the measurement of an episode or a batch.
func (s *session) measure(kind metering.Kind) {
	s.outcome, s.metered = metering.Completed, s.d.config.Meter.Begin(kind, s.d.config.Now)
}

// endMeasurement ends the measurement, if one is running. Name is the name of the function, or "" if it
// is unknown.
func (s *session) endMeasurement(name string) {
	if s.metered != nil {
		s.metered(name, s.outcome)
		s.metered = nil
	}
}

// next waits for the instance's next messages as an idle session. It returns none if the session must end:
// the session was idle for too long, its slot or memory is needed, or the worker stops. It returns an error
// if the payload of the messages does not fit. The session must then abandon the instance with the error.
// Size is the size of the instance in memory, in bytes.
func (s *session) next(among *idle, size int) ([]provider.TaskMessage, error) {
	s.releasePayload() // idle sessions have a limit of their own
	ctx, leave := among.enter(s.live.fetch, size)
	continues := false
	defer func() { leave(continues) }()
	messages, err := s.item.Session.Next(ctx, s.d.config.ExtendedSessionIdle)
	if err != nil && ctx.Err() == nil {
		s.log.Warn("cannot wait for the instance's next messages", "error", err)
	}
	if err != nil || len(messages) == 0 {
		return nil, nil
	}
	if size += payloadOfMessages(messages); !s.d.payloads.tryEnter(size) {
		return nil, &provider.RetryAtError{Cause: errNoRoom, At: s.d.config.Now().Add(time.Second)} // the redelivered messages wait until they fit
	}
	s.payload, continues = size, true
	return messages, nil
}

// releasePayload releases the admitted bytes.
func (s *session) releasePayload() {
	s.d.payloads.release(s.payload)
	s.payload = 0
}

// commitFailed logs the error of a commit. The session must abandon the instance with the returned error.
func (s *session) commitFailed(err error) error {
	if errors.Is(err, provider.ErrSessionLost) {
		s.log.Warn("another worker has taken the instance over; the results of this episode are discarded", "event", "FunctionAborted")
	} else {
		s.d.committing.failed(err)
	}
	return fmt.Errorf("commit checkpoint: %w", err)
}

// abandon returns the messages in flight to the hub.
func (s *session) abandon(cause error) {
	s.outcome = metering.Abandoned
	ctx, cancel := s.live.abandonContext()
	defer cancel()
	if err := s.item.Session.Abandon(ctx, cause); err != nil {
		s.log.Warn("cannot abandon the instance", "error", err)
	}
}

// release releases the lock on the instance.
func (s *session) release() {
	ctx, cancel := s.live.abandonContext()
	defer cancel()
	if err := s.item.Session.Release(ctx); err != nil {
		s.log.Warn("cannot release the instance", "error", err)
	}
}
