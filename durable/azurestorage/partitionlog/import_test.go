package partitionlog_test

import (
	"context"
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

// A worker that acquires a partition of an imported hub knows that messages may be delivered twice.
// It knows that even if it opened the hub before the import.
func TestHub_IsNotExactAfterAnImport(t *testing.T) {
	inBubble(t, func(s *simulated) {
		worker, _ := s.open("worker")
		filler, _ := s.open("filler")
		if err := worker.Check(s.Context()); err != nil { // opens the hub
			s.Fatal(err)
		}
		if !worker.IsExactlyOnce() {
			s.Error("a new hub is not exact; want exact")
		}
		if err := filler.Import(s.Context(), func(provider.HubWriter) error { return nil }); err != nil {
			s.Fatal(err)
		}
		if filler.IsExactlyOnce() {
			s.Error("a hub that this process has filled is exact; want not exact")
		}
		if err := filler.Close(); err != nil {
			s.Fatal(err)
		}
		stop := s.work(worker)
		time.Sleep(time.Minute)
		if worker.IsExactlyOnce() {
			s.Error("a hub that another process has filled is exact; want not exact")
		}
		stop()
	})
}

// messages is a hub that counts the exported messages.
type messages int

func (*messages) Instance(context.Context, *provider.InstanceState, []history.Event) error {
	return nil
}
func (*messages) Activity(context.Context, provider.TaskMessage) error { return nil }

func (m *messages) Message(context.Context, provider.TaskMessage) error {
	*m++
	return nil
}

// onItsWay opens a hub whose partition 0 stopped with a message of 9 MiB for partition 1 in its outbox.
// Letters are slow.
func onItsWay(t *testing.T, use func(s *simulated, operator *partitionlog.Hub)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &simulated{T: t, account: azsim.New(azsim.Config{
			Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
			Bandwidth: func(r azsim.Request) int {
				if strings.Contains(r.Path, "/letter-") {
					return 250_000
				}
				return 0
			},
			Decide: func(r azsim.Request) azsim.Fault {
				if r.Worker == "w" && strings.Contains(r.Path, "/p01/mail-") {
					return azsim.FailBefore
				}
				return azsim.None
			},
		})}
		defer s.account.End()
		operator, _ := s.open("operator")
		id := ""
		for n := 0; id == ""; n++ {
			place, err := operator.QueuePosition(s.Context(), fmt.Sprint("i", n))
			if err != nil {
				s.Fatal(err)
			}
			if place.Partition == 1 {
				id = fmt.Sprint("i", n)
			}
		}
		msg := event(id)
		msg.Event.(*history.EventRaised).Input = new(strings.Repeat("x", 9<<20))
		w, _ := s.open("w")
		if err := w.SendFrom(s.Context(), 0, msg); err != nil {
			s.Fatal(err)
		}
		_ = w.Close() // the partition could not deliver its message
		use(s, operator)
		if err := operator.Close(); err != nil {
			s.Error(err)
		}
	})
}

// An export delivers a message that is on its way to another partition, and waits until that partition has
// downloaded it.
func TestExport_ContainsAMessageOnItsWayToAnotherPartition(t *testing.T) {
	onItsWay(t, func(s *simulated, operator *partitionlog.Hub) {
		var exported messages
		if err := operator.Export(s.Context(), &exported, provider.ExportOptions{}); err != nil {
			s.Fatal(err)
		}
		if exported != 1 {
			s.Errorf("the export has %d messages; want the one from the outbox", exported)
		}
	})
}

// A message to a mailbox without its blobs is never delivered, so an export fails instead of waiting.
func TestExport_FailsIfAMailboxIsLost(t *testing.T) {
	onItsWay(t, func(s *simulated, operator *partitionlog.Hub) {
		s.vanish(func(name string) bool { return strings.HasPrefix(name, "p01/mail-") })
		ctx, cancel := context.WithTimeout(s.Context(), time.Hour)
		defer cancel()
		s.wantDamage("export", operator.Export(ctx, new(messages), provider.ExportOptions{}))
	})
}
