package partitionlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// running exports a hub while it is in use.
type running struct{ *partitionlog.Hub }

func (r running) Export(ctx context.Context, w provider.HubWriter, _ provider.ExportOptions) error {
	return r.ExportRunning(ctx, w)
}

// Two workers run orchestrations with children, locks and signals in all partitions while backups
// are written. Everything acknowledged before a backup continues from it and ends with the right
// result. The total amount of money in the backup stays the same.
func TestExportRunning_ContainsEverythingAcknowledged(t *testing.T) {
	for seed := uint64(1); seed <= 4; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &simulated{T: t, account: azsim.New(azsim.Config{Seed: seed, MinLatency: time.Millisecond, MaxLatency: 40 * time.Millisecond})}
				defer s.account.End() // after the last worker has stopped
				s.backUpUnderLoad()
			})
		})
	}
}

// load starts orchestrations until it is stopped, and records the acknowledged IDs.
type load struct {
	mu      sync.Mutex
	started []string
	stopped bool
}

func (l *load) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.started...)
}

func (l *load) run(s *simulated, c *durable.Client, name string) {
	for n := 0; ; n++ {
		l.mu.Lock()
		stopped := l.stopped
		l.mu.Unlock()
		if stopped {
			return
		}
		id := fmt.Sprintf("%s-%d", name, n)
		var err error
		switch n % 3 {
		case 0:
			_, err = durable.Start(s.Context(), c, family, 2, durable.InstanceID(id))
		case 1:
			to := durable.EntityKey[account](fmt.Sprint("a", n%4))
			_, err = durable.Start(s.Context(), c, move, transfer{From: "bank", To: to, Cents: 1}, durable.InstanceID(id))
		default:
			_, err = durable.Start(s.Context(), c, squares, 3, durable.InstanceID(id))
		}
		if err != nil {
			s.Errorf("start %s: %v", id, err)
			return
		}
		l.mu.Lock()
		l.started = append(l.started, id)
		l.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

func (s *simulated) backUpUnderLoad() {
	s.live("killed", 5*time.Second) // its partitions have counted a crash
	time.Sleep(partitionlog.DefaultLeaseInterval)
	var stops []func()
	l, clients := &load{}, sync.WaitGroup{}
	for _, name := range []string{"one", "two"} {
		h, _ := s.open(name)
		stops = append(stops, s.workAs(h, shapes))
		clients.Go(func() { l.run(s, durable.NewClient(h, shapes), name) })
	}
	reader, _ := s.open("reader")
	for n := range 3 {
		time.Sleep(5 * time.Second)
		want := l.ids()
		path := filepath.Join(s.TempDir(), fmt.Sprintf("backup-%d.db", n))
		quiet := embedded.Config{Logger: slog.New(slog.DiscardHandler)}
		to, err := embedded.Open(path, quiet)
		if err != nil {
			s.Fatal(err)
		}
		totals, err := provider.CopyHub(s.Context(), running{reader}, to, provider.ExportOptions{}, nil)
		if err != nil {
			s.Fatalf("backup %d: %v", n, err)
		}
		s.Logf("backup %d of %d instances: %v", n, len(want), totals)
		s.wantEnded(to, want)
		if err := to.Close(); err != nil {
			s.Error(err)
		}
	}
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	clients.Wait()
	for _, stop := range stops {
		stop()
	}
	if err := reader.Close(); err != nil {
		s.Error(err)
	}
}

// wantEnded continues a backup and verifies that the instances complete and no money is lost.
func (s *simulated) wantEnded(h *embedded.Hub, ids []string) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.Context())
	var worker sync.WaitGroup
	worker.Go(func() {
		if err := durable.NewWorker(h, shapes, durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx); err != nil {
			s.Error(err)
		}
	})
	c := durable.NewClient(h, shapes)
	patient, done := context.WithTimeout(s.Context(), 10*time.Minute)
	defer done()
	all := map[durable.InstanceID]bool{}
	for _, id := range ids {
		all[durable.InstanceID(id)] = true
	}
	for state, err := range c.AllInstances(patient, durable.Query{}) { // includes instances started during the backup
		if err != nil {
			s.Fatal(err)
		}
		if state.Name == "Move" {
			all[durable.InstanceID(state.Instance.InstanceID)] = true
		}
	}
	for id := range all {
		err := h.AwaitEnd(patient, string(id))
		if err != nil {
			s.Fatalf("instance %s of the backup: %v", id, err)
		}
		state, err := c.Status(patient, id, durable.Fetch{Output: true})
		if err != nil || state.Status.String() != "Completed" {
			s.Errorf("instance %s of the backup: %+v, %v; want Completed", id, state, err)
		}
	}
	sum := 0
	for _, key := range []durable.EntityKey[account]{"bank", "a0", "a1", "a2", "a3"} {
		a, err := durable.ReadEntity(patient, c, key)
		if err != nil && !errors.Is(err, durable.ErrEntityNotFound) {
			s.Errorf("account %s: %v", key, err)
		}
		sum += a.Cents
	}
	if sum != 0 {
		s.Errorf("the accounts of the backup have %d cents in total, want 0", sum)
	}
	cancel()
	worker.Wait()
}
