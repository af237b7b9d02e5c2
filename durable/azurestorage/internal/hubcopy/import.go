package hubcopy

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// importsAtOnce is how many instances are written at a time.
const importsAtOnce = 8

// A hubImport writes what is imported.
type hubImport struct {
	hub      *Hub
	group    *errgroup.Group
	ctx      context.Context // ends when one of the group has failed
	messages bool            // all instances are written
	episodes map[string]int  // of each instance
}

// Instance implements [provider.HubWriter].
func (im *hubImport) Instance(_ context.Context, state *provider.InstanceState, past []history.Event) error {
	if err := context.Cause(im.ctx); err != nil {
		return err
	}
	episodes := 0
	for _, ev := range past {
		if ev.Type() == history.TypeOrchestratorStarted {
			episodes++
		}
	}
	im.episodes[state.Instance.InstanceID] = episodes
	im.group.Go(func() error {
		if err := im.hub.write(im.ctx, state, past); err != nil {
			return fmt.Errorf("import instance %q: %w", state.Instance.InstanceID, err)
		}
		return nil
	})
	return nil
}

// encodeImportedInstance returns the row of an instance that is as state says.
func encodeImportedInstance(s *provider.InstanceState, taskHub string) wire.Row {
	e := wire.Row{PartitionKey: wire.EscapeKey(s.Instance.InstanceID)}
	e.SetInline("Input", s.Input)
	e.SetTime("CreatedTime", s.CreatedAt)
	e.SetOptionalTime(wire.FirstCreatedColumn, s.FirstCreatedAt)
	e.SetName(s.Name)
	e.SetString("Version", s.Version)
	e.SetString("RuntimeStatus", s.Status.String())
	e.SetTime("LastUpdatedTime", s.LastUpdatedAt)
	e.SetString("TaskHubName", taskHub)
	e.SetOptionalTime("ScheduledStartTime", s.ScheduledAt)
	e.SetOptionalTime("CompletedTime", s.CompletedAt)
	e.SetString("ExecutionId", s.Instance.ExecutionID)
	e.SetInt("Generation", s.Generation)
	e.SetString("Tags", wire.TagsColumn(s.Tags))
	e.SetInline("Output", s.Output)
	customStatus := wire.JSONNull
	if s.CustomStatus != nil {
		customStatus = *s.CustomStatus
	}
	e.SetString("CustomStatus", customStatus)
	e.Fit()
	return e
}

// Activity implements [provider.HubWriter].
func (im *hubImport) Activity(ctx context.Context, task provider.TaskMessage) error {
	return im.send(ctx, im.hub.WorkItems, task)
}

// Message implements [provider.HubWriter].
func (im *hubImport) Message(ctx context.Context, msg provider.TaskMessage) error {
	return im.send(ctx, im.hub.QueueOf(msg.Target.InstanceID), msg)
}

func (im *hubImport) send(ctx context.Context, q *store.Queue, msg provider.TaskMessage) error {
	if !im.messages {
		if err := im.group.Wait(); err != nil {
			return err
		}
		im.messages = true
	}
	env := &wire.Envelope{Message: &msg, Sender: &history.OrchestrationInstance{}}
	switch msg.Event.(type) {
	case *history.TaskScheduled, *history.TimerFired: // sent by the instance that they are for
		env.Sender, env.Episode = &msg.Target, new(im.episodes[msg.Target.InstanceID])
	}
	return im.hub.Send(ctx, q, env)
}
