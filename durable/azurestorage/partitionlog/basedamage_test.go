package partitionlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A damaged base block makes the instances in its ID range unreadable. A list returns all other
// instances and names the partition and the range.
func TestInstances_ListsAllButTheRangeOfADamagedBlock(t *testing.T) {
	inBubble(t, func(s *simulated) {
		const instances = 3000
		h, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		for n := range instances {
			if err := startHello(s.Context(), h, fmt.Sprintf("i%04d", n)); err != nil {
				s.Fatal(err)
			}
		}
		if err := errors.Join(h.FlushBase(s.Context(), 0), h.Close()); err != nil {
			s.Fatal(err)
		}
		damaged := ""
		for _, b := range s.account.Blobs() {
			if strings.HasPrefix(b.Name, "p00/base-") && len(b.Content) > 10_000 {
				damaged = b.Name
				content := []byte(string(b.Content))
				content[100] ^= 1
				s.put(b.Name, string(content))
			}
		}
		if damaged == "" {
			s.Fatal("the base has no files")
		}
		h, _ = s.openWith("client", partitionlog.Config{PartitionCount: 1})
		var listed []string
		var causes []string
		lost, one := 0, "" // one of the lost IDs
		for q := (provider.Query{PageSize: 400}); ; {
			page, err := h.Instances(s.Context(), q)
			if err != nil {
				s.Fatal(err)
			}
			for _, i := range page.Instances {
				listed = append(listed, i.Instance.InstanceID)
			}
			for _, u := range page.Unreadable {
				causes = append(causes, u.Cause.Error())
				if gap, is := errors.AsType[*logstore.RangeError](u.Cause); is {
					for n := range instances {
						if id := fmt.Sprintf("i%04d", n); id >= string(gap.From) && (gap.To == nil || id < string(gap.To)) {
							lost, one = lost+1, id
						}
					}
				}
			}
			if q.Continuation = page.Continuation; q.Continuation == "" {
				break
			}
		}
		if len(causes) != 1 || !strings.Contains(causes[0], "partition 0: ") || !strings.Contains(causes[0], `keys from "i0`) {
			s.Errorf("unreadable ranges: %q; want one range of partition 0", causes)
		}
		if lost == 0 || len(listed) < instances/2 || len(listed)+lost != instances {
			s.Errorf("listed %d instances, %d are in unreadable ranges; want %d in total", len(listed), lost, instances)
		}
		s.wantUnreadable("client", h, one)
		if err := h.Close(); err != nil {
			s.Error(err)
		}
		h, _ = s.openWith("owner", partitionlog.Config{PartitionCount: 1})
		stop := s.work(h)
		time.Sleep(10 * time.Second) // until the worker owns the partition
		s.wantUnreadable("owner", h, one)
		stop()
	})
}

// wantUnreadable fails unless requests for a damaged instance return an error with the partition,
// the range and the repair command.
func (s *simulated) wantUnreadable(who string, h *partitionlog.Hub, id string) {
	s.Helper()
	_, read := h.Instance(s.Context(), id, provider.Fetch{})
	_, past := h.History(s.Context(), id)
	for what, err := range map[string]error{"the instance": read, "the history": past, "a start": startHello(s.Context(), h, id)} {
		if !errors.As(err, new(*partitionlog.UnreadableError)) {
			s.Errorf("%s of %s: %v; want an UnreadableError", what, who, err)
			continue
		}
		for _, want := range []string{"partition 0: ", fmt.Sprintf("from %q", id), "base-", "hub repair"} {
			if !strings.Contains(err.Error(), want) {
				s.Errorf("%s of %s: %v; want %q", what, who, err, want)
			}
		}
	}
}

// The base files of a running partition vanish. Mail for an instance in them does not stop the mail
// behind it, and the owner reports the instance as unreadable.
func TestHub_ReceivesMailWhileBaseFilesAreMissing(t *testing.T) {
	inBubble(t, func(s *simulated) {
		one := partitionlog.Config{PartitionCount: 1}
		h, _ := s.openWith("w", one)
		for n := range 3000 {
			if err := startHello(s.Context(), h, fmt.Sprintf("i%04d", n)); err != nil {
				s.Fatal(err)
			}
		}
		if err := errors.Join(h.FlushBase(s.Context(), 0), h.Close()); err != nil {
			s.Fatal(err)
		}
		h, _ = s.openWith("owner", one)
		ctx, cancel := context.WithCancel(s.Context())
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		time.Sleep(10 * time.Second) // until the worker owns the partition
		s.vanish(func(name string) bool { return strings.HasPrefix(name, "p00/base-") })
		client, _ := s.openWith("client", one)
		end := provider.TaskMessage{
			Event:  &history.ExecutionTerminated{Header: history.NewHeader(time.Now())},
			Target: history.OrchestrationInstance{InstanceID: "i1500"},
		}
		if err := client.Send(s.Context(), end); err != nil {
			s.Error(err)
		}
		if err := startHello(s.Context(), client, "j"); !errors.As(err, new(*partitionlog.UncertainError)) {
			s.Errorf("a start by a client that cannot read the answer: %v; want an UncertainError", err)
		}
		time.Sleep(time.Minute)
		s.wantBlocked(h, "[]", false)
		if _, err := h.Instance(s.Context(), "j", provider.Fetch{}); err != nil {
			s.Errorf("the started instance: %v", err)
		}
		s.wantUnreadable("owner", h, "i1500")
		if _, err := client.Instance(s.Context(), "i1500", provider.Fetch{}); !errors.As(err, new(*partitionlog.UnreadableError)) {
			s.Errorf("the instance of a client: %v; want an UnreadableError", err)
		}
		cancel()
		if err := errors.Join(<-ended, h.Close(), client.Close()); err != nil {
			s.Error(err)
		}
	})
}

// If the process loses the partition during a start, the error says that the start may have
// happened.
func TestStart_IsUncertainIfThePartitionIsLostMeanwhile(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, w := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		stop := s.work(h)
		defer stop()
		if err := startHello(s.Context(), h, "a"); err != nil {
			s.Fatal(err)
		}
		w.Freeze(2 * partitionlog.DefaultLeaseInterval)
		if err := startHello(s.Context(), h, "b"); !errors.As(err, new(*partitionlog.UncertainError)) {
			s.Errorf("StartInstance: %v; want an UncertainError", err)
		}
	})
}
