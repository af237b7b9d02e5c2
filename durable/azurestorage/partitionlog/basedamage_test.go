package partitionlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A damaged block of a base costs the range of its IDs: the list has all other instances, and says
// which partition and which IDs cannot be read.
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
			s.Fatal("there is no base")
		}
		h, _ = s.openWith("client", partitionlog.Config{PartitionCount: 1})
		var listed []string
		var causes []string
		lost, one := 0, "" // one is the ID of a lost instance
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
			s.Errorf("unreadable are %q, want one range of partition 0", causes)
		}
		if lost == 0 || len(listed) < instances/2 || len(listed)+lost != instances {
			s.Errorf("%d instances are listed and %d are in ranges that cannot be read; want %d together", len(listed), lost, instances)
		}
		s.wantUnreadable("client", h, one)
		if err := h.Close(); err != nil {
			s.Error(err)
		}
		h, _ = s.openWith("owner", partitionlog.Config{PartitionCount: 1})
		stop := s.work(h)
		time.Sleep(10 * time.Second) // until it owns the partition
		s.wantUnreadable("owner", h, one)
		stop()
	})
}

// wantUnreadable reports an error of a damaged instance that does not name the partition, the
// range and the command that finds more damage.
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

// A start whose process loses the partition in the middle may have happened, which its error says.
func TestStart_SaysThatItMayHaveHappenedWhenThePartitionIsLost(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, w := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		stop := s.work(h)
		defer stop()
		if err := startHello(s.Context(), h, "a"); err != nil {
			s.Fatal(err)
		}
		w.Freeze(2 * partitionlog.DefaultLeaseInterval)
		if err := startHello(s.Context(), h, "b"); !errors.As(err, new(*partitionlog.UncertainError)) {
			s.Errorf("the start: %v; want an UncertainError", err)
		}
	})
}
