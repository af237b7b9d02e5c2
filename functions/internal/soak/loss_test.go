//go:build unix

package soak_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
)

// newLoss starts a soak on partition logs if the faults have the given one.
func newLoss(t *testing.T, fault string) *soak {
	t.Helper()
	processtest.SkipInShortRuns(t)
	if !slices.Contains(chosenFaults(t), fault) {
		t.Skipf("-soak.faults does not have %s", fault)
	}
	return newSoak(t, "log", 2)
}

// lossRounds is the number of rounds that clients complete before the loss.
const lossRounds = 2

// use completes rounds without faults.
func (s *soak) use() {
	s.Helper()
	c := &caller{random: rand.New(rand.NewPCG(s.seed, 10)), ledger: s.ledger, routes: s.route}
	for n := 1; n <= lossRounds; n++ {
		ctx, cancel := context.WithTimeout(s.Context(), *stuckFlag)
		err := c.round(ctx, n)
		cancel()
		if err != nil {
			s.Fatal(err)
		}
	}
}

// routes returns the route of each process.
func (s *soak) routes() (all []route) {
	for _, w := range s.workers {
		all = append(all, managed{w})
	}
	return append(all, s.store.outside)
}

// restart replaces all processes.
func (s *soak) restart() {
	s.Helper()
	for _, w := range s.workers {
		w.kill()
		if err := w.start(); err != nil {
			s.Fatal(err)
		}
	}
}

// The hub is deleted while workers and clients use it. They acknowledge nothing from then on.
// Processes that start later use a new and empty hub.
func TestSoak_NothingIsAcknowledgedAfterTheHubWasDeleted(t *testing.T) {
	t.Parallel()
	s := newLoss(t, "delete")
	s.use()
	hub, closeHub, err := s.store.open(s.store.connection)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = closeHub() }() // the hub is deleted
	if err := hub.(*partitionlog.Hub).Delete(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := range 30 {
		for _, r := range s.routes() {
			ctx, cancel := context.WithTimeout(t.Context(), attemptTimeout)
			id := fmt.Sprint("late-", n, r.name())
			if err := r.start(ctx, "Steps", id, ""); err == nil {
				t.Errorf("%s acknowledged a start after the hub was deleted", r.name())
			}
			if err := r.signal(ctx, "late", id); err == nil {
				t.Errorf("%s acknowledged a signal after the hub was deleted", r.name())
			}
			cancel()
			refused += 2
		}
	}
	s.restart()
	c := &caller{random: rand.New(rand.NewPCG(s.seed, 11)), ledger: newLedger(), routes: func(*rand.Rand) route { return managed{s.workers[0]} }}
	ctx, cancel := context.WithTimeout(t.Context(), *stuckFlag)
	defer cancel()
	id, err := c.start(ctx, request{"Steps", "new", ""})
	if err == nil {
		err = c.await(ctx, id)
	}
	if err != nil {
		t.Fatalf("the new hub: %v", err)
	}
	found, err := managed{s.workers[1]}.read(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for id := range found.Instances {
		if !strings.HasPrefix(id, "new") {
			t.Errorf("the new hub has instance %s of the deleted one", id)
		}
	}
	t.Logf("%d requests were refused after the deletion", refused)
}

// All blobs of a partition vanish while workers and clients use the hub. No process reports an
// acknowledged instance as unknown, and the other partitions work.
func TestSoak_APartitionWhoseBlobsVanishIsNotEmpty(t *testing.T) {
	t.Parallel()
	s := newLoss(t, "vanish")
	s.use()
	c, err := azurestorage.ParseConnectionString(s.store.connection)
	if err != nil {
		t.Fatal(err)
	}
	const lost = 1
	n := s.vanish(lost)
	var ids []string
	for id, start := range s.ledger.starts {
		if start.acknowledged {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	served, failed := s.lookUp(ids)
	s.restart()
	again, refused := s.lookUp(ids)
	if served+again == 0 || failed+refused == 0 {
		t.Errorf("of the instances, %d and %d were served, %d and %d refused; want some of both", served, again, failed, refused)
	}
	report, err := partitionlog.Repair(t.Context(), c, s.store.logConfig(), false)
	if err != nil || report.Remaining() == 0 {
		t.Errorf("the repair reports %+v, %v; want problems", report, err)
	}
	t.Logf("%d blobs vanished; look-ups before and after a restart: %d and %d answered, %d and %d refused", n, served, again, failed, refused)
}

// vanish deletes all blobs of a partition.
func (s *soak) vanish(partition int) (n int) {
	s.Helper()
	client, err := container.NewClientFromConnectionString(s.store.connection, partitionlog.ContainerName(s.store.hub), nil)
	if err != nil {
		s.Fatal(err)
	}
	prefix := fmt.Sprintf("p%02d/", partition)
	for pages := client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: &prefix}); pages.More(); {
		page, err := pages.NextPage(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		for _, b := range page.Segment.BlobItems {
			if err := s.remove(client.NewBlobClient(*b.Name)); err != nil {
				s.Fatal(err)
			}
			n++
		}
	}
	return n
}

// remove deletes a blob although it may have a lease.
func (s *soak) remove(b *blob.Client) error {
	leases, err := lease.NewBlobClient(b, nil)
	if err != nil {
		return err
	}
	_, broken := leases.BreakLease(s.Context(), &lease.BlobBreakOptions{BreakPeriod: new(int32)}) // fails if it has none
	if _, err := b.Delete(s.Context(), nil); err != nil {
		return errors.Join(broken, err)
	}
	return nil
}

// lookUp asks each process for each instance for a while, and starts more. It returns the numbers
// of look-ups that were answered and refused in the last pass.
func (s *soak) lookUp(ids []string) (served, refused int) {
	s.Helper()
	started := map[string]bool{}
	for pass := range 3 {
		served, refused = 0, 0
		for _, r := range s.routes() {
			s.until(r.name()+" does not answer", func(ctx context.Context) ([]string, error) {
				if _, err := r.status(ctx, "unknown"); err != nil && strings.Contains(err.Error(), "listen") {
					return []string{"it does not listen"}, nil
				}
				return nil, nil
			})
			for _, id := range ids {
				ctx, cancel := context.WithTimeout(s.Context(), attemptTimeout)
				status, err := r.status(ctx, id)
				switch {
				case err != nil:
					refused++
				case status == "":
					s.Errorf("%s reports the acknowledged instance %s as unknown", r.name(), id)
				default:
					served++
				}
				cancel()
			}
			for n := range 8 {
				id := fmt.Sprintf("later-%d-%s-%d", pass, r.name(), n)
				ctx, cancel := context.WithTimeout(s.Context(), attemptTimeout)
				if r.start(ctx, "Steps", id, "") == nil {
					started[id] = true
				}
				cancel()
			}
		}
		for id := range started {
			if !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
		pause(s.Context(), 2*time.Second)
	}
	return served, refused
}
