package partitionlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// When a process has opened a partition, the events that it sends directly follow the events that
// other processes put into the mailbox before. That also holds if the mailbox is slow.
func TestSend_DirectMessagesFollowEarlierMail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{T: t, account: azsim.New(azsim.Config{
			Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
			Delay: func(r azsim.Request, _ int) time.Duration {
				if r.Operation == "GetBlob" && strings.Contains(r.Path, "/mail-") {
					return time.Second
				}
				return 0
			},
		})}
		defer s.account.End()
		client, _ := s.openWith("client", partitionlog.Config{PartitionCount: 1})
		instance := history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}
		start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "Hello", Instance: instance}
		if err := client.StartInstance(s.Context(), provider.TaskMessage{Event: start, Target: instance}, nil); err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Second) // until the client releases the partition
		raise := func(send func(context.Context, provider.TaskMessage) error, name string) {
			s.Helper()
			event := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: name}
			if err := send(s.Context(), provider.TaskMessage{Event: event, Target: instance}); err != nil {
				s.Error(err)
			}
		}
		var want []string
		for process := range 3 {
			other, _ := s.openWith(fmt.Sprint("process ", process), partitionlog.Config{PartitionCount: 1})
			for n := range 5 {
				want = append(want, fmt.Sprint("E", process, n))
				raise(other.Send, want[len(want)-1])
			}
			if err := other.Close(); err != nil {
				s.Error(err)
			}
		}
		w, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		raise(w.SendDirectly, "last")
		want = append(want, "last")

		ctx, cancel := context.WithCancel(s.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		item, err := w.NextOrchestration(ctx)
		if err != nil {
			s.Fatal(err)
		}
		var got []string
		for _, m := range item.Messages {
			if e, is := m.Event.(*history.EventRaised); is {
				got = append(got, e.Name)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			s.Errorf("got events %v, want %v", got, want)
		}
		if err := item.Session.Release(ctx); err != nil {
			s.Error(err)
		}
		cancel()
		if err := errors.Join(<-ended, w.Close(), client.Close()); err != nil {
			s.Error(err)
		}
	})
}
