package partitionlog_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

func TestOwner_DeletesUnneededBaseFiles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub := simulatedHub(t)
		h := hub.Provider.(*partitionlog.Hub)
		const left = "base-0000000001-left"
		before, after, err := h.Sweep(t.Context(), left, false)
		if err != nil || len(before) != 2 || !slices.Contains(before, "p00/"+left) {
			t.Fatalf("base files before: %q, %v", before, err)
		}
		want := slices.DeleteFunc(before, func(name string) bool { return name == "p00/"+left })
		if diff := cmp.Diff(want, after); diff != "" {
			t.Errorf("base files after (-want +got):\n%s", diff)
		}
		if before, after, err = h.Sweep(t.Context(), left, true); err != nil || !slices.Contains(before, "p00/"+left) || !slices.Equal(before, after) {
			t.Errorf("after the loss of the partition: %q, then %q, %v; want no deletion", before, after, err)
		}
	})
}

// The partition changes owners more often than files are due for deletion: processes die and stop
// in turn. The files that they leave do not pile up. After a quiet time all are deleted.
func TestOwner_DeletesFilesWhileItsPartitionChangesOwners(t *testing.T) {
	inBubble(t, func(s *simulated) {
		files := func() int { return strings.Count(s.names(0), "/base-") }
		for life := range 20 {
			h, w := s.open(fmt.Sprint("w", life))
			if err := h.Flush(s.Context(), 0, 10); err != nil {
				s.Fatal(err)
			}
			if n := files(); n > 30 {
				s.Errorf("after %d lives the base has %d files; %d are needed", life+1, n, h.Named(0))
			}
			if life%2 == 0 {
				w.Kill()
			}
			_ = h.Close() // a dead process releases nothing
			time.Sleep(partitionlog.DefaultLeaseInterval)
		}
		h, _ := s.open("last")
		if err := h.Flush(s.Context(), 0, 1); err != nil {
			s.Fatal(err)
		}
		time.Sleep(6 * time.Minute)
		if n, want := files(), h.Named(0); n != want || n == 0 {
			s.Errorf("after a quiet time the base has %d files, want %d", n, want)
		}
		if err := h.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A partition changes its owner just after a merge. The merged files are kept for readers of the
// previous manifest, and deleted later.
func TestOwner_KeepsRecentFilesForReaders(t *testing.T) {
	inBubble(t, func(s *simulated) {
		files := func() int { return strings.Count(s.names(0), "/base-") }
		h, w := s.open("a")
		for named, before := 0, 0; named >= before; {
			before = named
			if err := h.Flush(s.Context(), 0, 1); err != nil {
				s.Fatal(err)
			}
			time.Sleep(time.Second) // until merges end
			named = h.Named(0)
		}
		w.Kill()
		_ = h.Close() // a dead process releases nothing
		time.Sleep(partitionlog.DefaultLeaseInterval)
		h, _ = s.open("b")
		if err := h.Flush(s.Context(), 0, 1); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n, most := files(), h.Named(0); n < most+4 {
			s.Errorf("after a minute the base has %d files, %d are needed; want the merged ones, too", n, most)
		}
		time.Sleep(5 * time.Minute)
		if n, want := files(), h.Named(0); n != want {
			s.Errorf("after 6 minutes the base has %d files, want %d", n, want)
		}
		if err := h.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A frozen machine does not notice that its lease has expired. It must not delete files then.
func TestOwner_DeletesNoFilesUnlessTheLeaseCanBeRenewed(t *testing.T) {
	inBubble(t, func(s *simulated) {
		w := s.account.Worker("w")
		h := s.openBy(&endsLeases{Transporter: w, account: s.account}, partitionlog.Config{WorkerID: "w"})
		const left = "base-0000000001-left"
		before, after, err := h.Sweep(s.Context(), left, false)
		if err == nil || len(after) > 0 || !slices.Contains(before, "p00/"+left) {
			s.Errorf("before %q, after %q, %v; want an error", before, after, err)
		}
		if trace := s.account.Trace(); strings.Contains(trace, "DeleteBlob") {
			s.Errorf("a file was deleted:\n%s", trace)
		}
		_ = h.Close() // the partition is lost
	})
}

// endsLeases is a transport to an account that ends all leases when base files are listed after a
// crash has left one.
type endsLeases struct {
	policy.Transporter
	account *azsim.Account
	left    atomic.Bool
}

func (e *endsLeases) Do(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "-left") {
		e.left.Store(true)
	}
	if r.Method == http.MethodGet && strings.Contains(r.URL.RawQuery, "base-") && e.left.Load() {
		e.account.Restore("/log-")
	}
	return e.Transporter.Do(r)
}

// Each owner of a partition writes less than a log may contain before it is written to the base. The base
// is still written, and the log stays small.
func TestOwner_WritesTheBaseAlthoughEachOwnerWritesLittle(t *testing.T) {
	inBubble(t, func(s *simulated) {
		logged := func() (size int) {
			for _, b := range s.account.Blobs() {
				if strings.HasPrefix(b.Name, "p00/log-") {
					size += len(b.Content)
				}
			}
			return size
		}
		for i := range 30 {
			h, _ := s.openWith(fmt.Sprint("owner ", i), partitionlog.Config{PartitionCount: 1})
			instance := history.OrchestrationInstance{InstanceID: fmt.Sprint("i", i), ExecutionID: "e"}
			start := &history.ExecutionStarted{
				Header: history.NewHeader(time.Now()), Name: "Hello", Instance: instance, Input: new(`"` + strings.Repeat("x", 1<<20) + `"`),
			}
			if err := h.StartInstance(s.Context(), provider.TaskMessage{Event: start, Target: instance}, nil); err != nil {
				s.Fatal(err)
			}
			time.Sleep(5 * time.Second)
			if err := h.Close(); err != nil {
				s.Fatal(err)
			}
		}
		if size := logged(); !strings.Contains(s.names(0), "/base-") || size > 32<<20 {
			s.Errorf("the log has %d MiB; want at most 32, and a base:\n%s", size>>20, s.names(0))
		}
	})
}

// A client repeats mail because a response was lost. The partition has no owner for a day between the
// two copies. The next owner recognizes the second copy. A later owner forgets the client.
func TestOwner_ForgetsClientsAfterItHasReceivedTheirMail(t *testing.T) {
	inBubble(t, func(s *simulated) {
		for i, tt := range []struct {
			mailed bool
			want   int
		}{{true, 1}, {true, 1}, {false, 1}, {true, 2}} {
			h, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1})
			if tt.mailed {
				if err := h.Mail(s.Context(), "a", partition.ClientSender("x"), 1); err != nil {
					s.Fatal(err)
				}
			}
			if i < 3 {
				time.Sleep(25 * time.Hour)
			}
			if n, err := h.Messages(s.Context()); err != nil || n != tt.want {
				s.Errorf("owner %d: %d messages, %v; want %d", i+1, n, err, tt.want)
			}
			time.Sleep(time.Second)
			if err := h.Close(); err != nil {
				s.Error(err)
			}
		}
	})
}

// At the opening, the scheduler decides whether the first poll or the removal of idle clients runs first. The
// requests must be the same in both orders; otherwise a seed of a simulation does not repeat.
func TestOwner_RemovesIdleClientsAfterItsFirstPoll(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		if polls, err := h.PollsForIdleClients(s.Context()); polls || err != nil {
			s.Errorf("polls again: %v, %v; want one poll", polls, err)
		}
		if err := h.Close(); err != nil {
			s.Error(err)
		}
	})
}
