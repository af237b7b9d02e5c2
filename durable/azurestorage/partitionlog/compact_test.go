package partitionlog_test

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// size returns the size of all blobs of the hub, in bytes.
func (s *simulated) size() (bytes int64) {
	for _, b := range s.account.Blobs() {
		bytes += int64(len(b.Content))
	}
	return bytes
}

// ids returns the IDs of all instances that h reads.
func (s *simulated) ids(h *partitionlog.Hub) (all []string) {
	s.Helper()
	page, err := h.Instances(s.Context(), provider.Query{PageSize: 1000})
	if err != nil {
		s.Fatal(err)
	}
	for _, i := range page.Instances {
		all = append(all, i.Instance.InstanceID)
	}
	return all
}

// Most instances of a hub are purged. Only a compaction frees their space. A reader in another
// process sees the remaining instances before and after it, and a worker can use the hub again.
func TestHub_CompactionFreesTheSpaceOfPurgedInstances(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		stop := s.work(h)
		c := durable.NewClient(h, greetings)
		s.greet(c, 200)
		for n := range partitionlog.DefaultPartitionCount {
			if err := h.Flush(s.Context(), n, 1); err != nil {
				s.Fatal(err)
			}
		}
		all := s.ids(h)
		for _, id := range all[20:] {
			if err := h.Purge(s.Context(), id, nil); err != nil {
				s.Fatal(err)
			}
		}
		reader, _ := s.open("reader")
		if left := s.ids(reader); !slices.Equal(left, all[:20]) {
			s.Errorf("before the compaction the hub has %q; want %q", left, all[:20])
		}
		cli, _ := s.open("cli")
		if _, _, err := cli.Compact(s.Context()); !errors.Is(err, provider.ErrHubBusy) {
			s.Errorf("Compact while a worker is running: %v; want ErrHubBusy", err)
		}
		stop()

		full := s.size()
		before, after, err := cli.Compact(s.Context())
		if err != nil || before != full || after != s.size() || after > full/4 {
			s.Errorf("compacted from %d to %d bytes, %v; want from %d to at most a quarter", before, after, err, full)
		}
		s.Logf("compacted from %d to %d bytes", before, after)
		for n := range partitionlog.DefaultPartitionCount {
			if names := s.names(n); strings.Count(names, "/base-") != 1 || strings.Count(names, "/log-") != 2 {
				s.Errorf("partition %d has %s; want one base file and two log blobs", n, names)
			}
		}
		if left := s.ids(reader); !slices.Equal(left, all[:20]) {
			s.Errorf("after the compaction the hub has %q; want %q", left, all[:20])
		}
		if _, again, err := cli.Compact(s.Context()); err != nil || again > after+after/10 {
			s.Errorf("second compaction to %d bytes, %v; want at most %d", again, err, after)
		}
		next, _ := s.open("next")
		stop = s.work(next)
		s.greet(durable.NewClient(next, greetings), 8)
		if n := len(s.ids(next)); n != 28 {
			s.Errorf("a worker sees %d instances, want 28", n)
		}
		stop()
		for _, h := range []*partitionlog.Hub{cli, reader} {
			if err := h.Close(); err != nil {
				s.Error(err)
			}
		}
	})
}

// Compact does not create a hub.
func TestCompact_DoesNotCreateAHub(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("cli")
		if _, _, err := h.Compact(s.Context()); !errors.Is(err, partitionlog.ErrNoHub) {
			s.Errorf("Compact: %v; want ErrNoHub", err)
		}
		if n := len(s.account.Blobs()); n > 0 {
			s.Errorf("%d blobs exist; want none", n)
		}
		if err := h.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A process dies at each request of a compaction. The hub loses nothing and can be compacted again.
func TestHub_LosesNothingWhenItsCompactionIsInterrupted(t *testing.T) {
	requests := 1
	for at := 1; at <= requests; at++ {
		inOrder(t, func(s *simulated) {
			var asked atomic.Int64
			s.account = azsim.New(azsim.Config{
				Seed: uint64(at), MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
				Decide: func(r azsim.Request) azsim.Fault {
					if r.Worker != "cli" {
						return azsim.None
					}
					if asked.Add(1) == int64(at) {
						return azsim.KillAfter
					}
					return azsim.None
				},
			})
			cfg := partitionlog.Config{PartitionCount: 1}
			h, _ := s.openWith("w", cfg)
			stop := s.work(h)
			s.greet(durable.NewClient(h, greetings), 8)
			for range 2 {
				if err := h.Flush(s.Context(), 0, 1); err != nil {
					s.Fatal(err)
				}
			}
			want := s.ids(h)
			if err := h.Purge(s.Context(), want[0], nil); err != nil {
				s.Fatal(err)
			}
			stop()
			cli, _ := s.openWith("cli", cfg)
			_, _, err := cli.Compact(s.Context())
			if err == nil && asked.Load() >= int64(at) {
				s.Errorf("the compaction succeeded although its process died")
			}
			_ = cli.Close() // its process is dead
			time.Sleep(partitionlog.DefaultLeaseInterval)
			requests = max(requests, int(asked.Load())+1)
			again, _ := s.openWith("again", cfg)
			if _, _, err := again.Compact(s.Context()); err != nil {
				s.Errorf("the second compaction: %v", err)
			}
			if got := s.ids(again); !slices.Equal(got, want[1:]) {
				s.Errorf("got instances %q; want %q", got, want[1:])
			}
			if n := strings.Count(s.names(0), "/base-"); n != 1 {
				s.Errorf("the base has %d files, want 1", n)
			}
			if err := again.Close(); err != nil {
				s.Error(err)
			}
			if s.Failed() {
				s.Logf("killed after request %d:\n%s", at, s.account.Trace())
			}
		})
		if t.Failed() {
			return
		}
	}
	if requests < 15 {
		t.Errorf("the compaction took %d requests, want at least 15", requests)
	}
}
