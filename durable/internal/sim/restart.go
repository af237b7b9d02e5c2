package sim

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Restart is of an instance of the app, as another instance, which comes to the same.
type Restart struct {
	Of Instance
	ID string
	At time.Duration
}

// restart lets a client restart an instance once there is one. It goes away meanwhile,
// and asks again.
func (s *simulation) restart(ctx context.Context, r Restart) {
	s.at(r.At)
	for deadline := time.Now().Add(patience); ; pause(ctx, interval) {
		err := s.insist(ctx, "restart "+r.ID, func(ctx context.Context) error {
			_, err := s.client.Restart(ctx, durable.InstanceID(r.Of.ID), durable.InstanceID(r.ID))
			return err
		})
		switch {
		case err == nil, errors.Is(err, durable.ErrInstanceExists): // an attempt that was cut off may have started it
			return
		case !errors.Is(err, durable.ErrInstanceNotFound), time.Now().After(deadline):
			s.fault("restart %s: %v", r.ID, err)
			return
		}
	}
}

// checkRestarts waits until what was restarted has ended, and holds it against what it
// must have come to.
func (s *simulation) checkRestarts(ctx context.Context) {
	for _, r := range s.plan.Restarts {
		want, output := s.plan.App.Expect(r.Of), ""
		state, err := s.awaitEnd(ctx, r.ID)
		if state != nil && state.Output != nil {
			output = *state.Output
		}
		if err != nil || state.Status != want.Status || want.Status == history.Completed && output != strconv.FormatUint(want.Sum, 10) {
			s.fault("%s, a restart of %s, is %+v with %q, %v, want %+v", r.ID, r.Of.ID, state, output, err, want)
		}
	}
}

// awaitEnd returns the state in which an instance ended, or is after a long time.
func (s *simulation) awaitEnd(ctx context.Context, id string) (*durable.InstanceState, error) {
	for deadline := time.Now().Add(patience); ; pause(ctx, interval) {
		state, err := s.client.Status(ctx, durable.InstanceID(id), durable.Fetch{Output: true})
		if err != nil || state.Status.IsTerminal() || time.Now().After(deadline) {
			return state, err
		}
	}
}
