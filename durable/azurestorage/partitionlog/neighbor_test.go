package partitionlog_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
)

// live runs a worker for a while and then kills its process.
func (s *simulated) live(name string, lasts time.Duration) {
	s.Helper()
	h, w := s.open(name)
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = h.Run(ctx) // a dead process cannot stop cleanly
	}()
	time.Sleep(lasts)
	w.Kill()
	cancel()
	<-ended
	_ = h.Close() // a dead process releases nothing
}

// A worker keeps its partitions and its pace beside a worker that crashes in a loop. A worker that
// stays alive gets its share.
func TestHub_KeepsItsPartitionsBesideANeighborThatCrashesInALoop(t *testing.T) {
	for _, lasts := range []time.Duration{800 * time.Millisecond, 7 * time.Second} {
		t.Run(fmt.Sprint("every ", lasts), func(t *testing.T) {
			inBubble(t, func(s *simulated) {
				healthy, _ := s.open("z") // the last ID, so its quota would be the smaller one
				stop := s.work(healthy)
				defer stop()
				c := durable.NewClient(healthy, greetings)
				s.greet(c, 16)
				time.Sleep(30 * time.Second)
				for life, began := 0, time.Now(); time.Since(began) < time.Minute; life++ {
					s.live(fmt.Sprint("a", life), lasts)
					load, err := healthy.Load(s.Context())
					if err != nil {
						s.Fatal(err)
					}
					for n, owner := range load.Owners {
						if owner != "z" {
							s.Fatalf("after %d lives, partition %d has owner %q; want z", life+1, n, owner)
						}
					}
					before := time.Now()
					s.greet(c, 4)
					if took := time.Since(before); took > time.Second {
						s.Errorf("after %d lives, 4 sequences took %v", life+1, took)
					}
				}
				b, _ := s.open("b")
				stopOther := s.work(b)
				time.Sleep(40 * time.Second)
				if load, err := b.Load(s.Context()); err != nil || load.Workers != 2 {
					s.Errorf("the load is %+v, %v; want 2 workers with partitions", load, err)
				}
				stopOther()
			})
		})
	}
}

// createHeartbeat returns the headers of the request that created the heartbeat blob of a worker.
func (s *simulated) createHeartbeat(worker string) http.Header {
	s.Helper()
	for _, b := range s.account.Blobs() {
		if b.Name == "workers/"+worker {
			header := b.Metadata
			header.Set("x-ms-blob-type", "AppendBlob")
			return header
		}
	}
	s.Fatalf("worker %s has no heartbeat blob", worker)
	return nil
}

// heartbeatBlobs returns how often the heartbeat blob of a worker was created.
func (s *simulated) heartbeatBlobs(worker string) (created int) {
	for _, e := range s.account.Log() {
		if e.Operation == "CreateAppendBlob" && strings.HasSuffix(e.Path, "/workers/"+worker) {
			created++
		}
	}
	return created
}

// A request may replace a worker's heartbeat blob with an older one, because the network delivers it
// late. The worker creates the current blob again, once.
func TestHub_ReplacesAnOutdatedHeartbeatBlob(t *testing.T) {
	inBubble(t, func(s *simulated) {
		begin := func(name string) (*partitionlog.Hub, func()) {
			h, _ := s.openWith(name, partitionlog.Config{PartitionCount: 3})
			stop := s.work(h)
			time.Sleep(5 * time.Second)
			return h, stop
		}
		deliverLate := func(header http.Header) {
			s.create("workers/z", header, "")
			before := s.heartbeatBlobs("z")
			time.Sleep(30 * time.Second)
			if created := s.heartbeatBlobs("z") - before; created != 1 {
				s.Errorf("after a late request, the worker created its heartbeat blob %d times; want once", created)
			}
		}
		_, stop := begin("z")
		defer stop()
		young := s.createHeartbeat("z")
		time.Sleep(30 * time.Second)
		ofAll := s.createHeartbeat("z")
		deliverLate(young)
		a, stop := begin("a")
		defer stop()
		_, stopOther := begin("b")
		time.Sleep(time.Minute)
		deliverLate(ofAll)
		s.create("workers/z", ofAll, "")
		stopOther()
		time.Sleep(20 * time.Second)
		load, err := a.Load(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		slices.Sort(load.Owners)
		if got := fmt.Sprint(load.Owners); got != "[a a z]" {
			s.Errorf("the partitions have the owners %s; want [a a z]", got)
		}
	})
}

// staleList answers each list of the heartbeats with the first list.
type staleList struct {
	policy.Transporter
	first []byte
}

func (l *staleList) Do(r *http.Request) (*http.Response, error) {
	answer, err := l.Transporter.Do(r)
	if err != nil || r.URL.Query().Get("comp") != "list" || r.URL.Query().Get("prefix") != "workers/" {
		return answer, err
	}
	if l.first == nil {
		l.first, err = io.ReadAll(answer.Body)
	}
	answer.Body = io.NopCloser(bytes.NewReader(l.first))
	return answer, err
}

// A worker creates its heartbeat blob at most once per interval, even if the list of heartbeats stays
// outdated.
func TestHub_CreatesFewHeartbeatBlobsDespiteAnOutdatedList(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h := s.openBy(&staleList{Transporter: s.account.Worker("w")}, partitionlog.Config{WorkerID: "w"})
		stop := s.work(h)
		time.Sleep(time.Minute)
		if created := s.heartbeatBlobs("w"); created < 3 || created > 12 {
			s.Errorf("the worker created its heartbeat blob %d times in a minute; want 3 to 12", created)
		}
		stop()
	})
}
