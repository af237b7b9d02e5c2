package leases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// A BlobLease is the lease on a partition as the blob partition managers keep it: a blob
// of the partition's name with a lease on it. Its text names the owner and the ID of the
// lease, by which another worker can take it over
// (DurableTask.AzureStorage/Partitioning/BlobPartitionLease.cs, Lease.cs).
type BlobLease struct {
	Partition string // the control queue's name
	Owner     string // empty if there is none
	Token     string // the lease's ID
	Epoch     int64  // how often it was taken
	Leased    bool   // whether there is a lease on the blob
}

// blobLeaseText is the text of a lease blob, its members in .NET's order.
type blobLeaseText struct {
	PartitionID string `json:"PartitionId"`
	Owner       *string
	Token       *string
	Epoch       int64
}

func (l BlobLease) text() []byte {
	t := blobLeaseText{PartitionID: l.Partition, Epoch: l.Epoch}
	if l.Owner != "" {
		t.Owner, t.Token = &l.Owner, &l.Token
	}
	raw, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and a number
	}
	return raw
}

func parseBlobLease(raw []byte) (BlobLease, error) {
	var t blobLeaseText
	if err := json.Unmarshal(raw, &t); err != nil {
		return BlobLease{}, err
	}
	l := BlobLease{Partition: t.PartitionID, Epoch: t.Epoch}
	if t.Owner != nil {
		l.Owner = *t.Owner
	}
	if t.Token != nil {
		l.Token = *t.Token
	}
	return l, nil
}

// isOwnedBy reports whether a worker owns the lease, without regard to case
// (DurableTask.AzureStorage/Partitioning/LeaseCollectionBalancer.cs).
func (l BlobLease) isOwnedBy(worker string) bool { return strings.EqualFold(l.Owner, worker) }

// Folders of lease blobs.
const (
	defaultLeases   = "default"   // of the legacy partition manager
	intentLeases    = "intent"    // of the safe one: who is to have a partition
	ownershipLeases = "ownership" // of the safe one: who has it
)

// leaseSet is the lease blobs in one folder, and what can be done with them
// (DurableTask.AzureStorage/Partitioning/BlobPartitionLeaseManager.cs).
type leaseSet struct {
	store    *store.Container
	folder   string
	worker   string
	duration time.Duration
}

func (s *leaseSet) blob(partition string) *blockblob.Client {
	return s.store.Client.NewBlockBlobClient(s.folder + "/" + partition)
}

// create makes the blobs of partitions that are not there yet.
func (s *leaseSet) create(ctx context.Context, partitions []string) error {
	return store.Each(ctx, -1, partitions, func(ctx context.Context, _ int, p string) error {
		return s.store.CreateBlob(ctx, s.folder+"/"+p, BlobLease{Partition: p}.text())
	})
}

// list returns the leases in the order of their names. Those that are in held,
// which are ours, are not read again.
func (s *leaseSet) list(ctx context.Context, held map[string]BlobLease) ([]BlobLease, error) {
	var leases []BlobLease
	pages := s.store.Client.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{Prefix: new(s.folder + "/")})
	for pages.More() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list leases %s: %w", s.folder, err)
		}
		for _, item := range page.Segment.BlobItems {
			l := BlobLease{Partition: path.Base(*item.Name)}
			l.Leased = item.Properties != nil && item.Properties.LeaseState != nil && *item.Properties.LeaseState == lease.StateTypeLeased
			leases = append(leases, l)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	for i, l := range leases {
		if mine, ok := held[l.Partition]; ok {
			leases[i] = mine
			continue
		}
		group.Go(func() error {
			read, err := s.read(ctx, l.Partition)
			if err != nil {
				return fmt.Errorf("read lease %s/%s: %w", s.folder, l.Partition, err)
			}
			read.Partition, read.Leased = l.Partition, l.Leased
			leases[i] = read
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(leases, func(a, b BlobLease) int { return strings.Compare(a.Partition, b.Partition) })
	return leases, nil
}

func (s *leaseSet) read(ctx context.Context, partition string) (BlobLease, error) {
	resp, err := s.blob(partition).DownloadStream(ctx, nil)
	if err != nil {
		return BlobLease{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return BlobLease{}, err
	}
	return parseBlobLease(raw)
}

// take acquires a lease without an owner, or takes over that of another worker by the ID
// that its blob names, and writes the new owner into the blob. A conflict means that
// another worker was faster.
func (s *leaseSet) take(ctx context.Context, l BlobLease) (BlobLease, error) {
	token := uuid.NewString()
	if l.Leased {
		c, err := s.leaseClient(l.Partition, l.Token)
		if err != nil {
			return l, err
		}
		if _, err := c.ChangeLease(ctx, token, nil); err != nil {
			return l, fmt.Errorf("take lease %s/%s over from %s: %w", s.folder, l.Partition, l.Owner, err)
		}
	} else {
		c, err := s.leaseClient(l.Partition, token)
		if err != nil {
			return l, err
		}
		if _, err := c.AcquireLease(ctx, int32(s.duration/time.Second), nil); err != nil {
			return l, fmt.Errorf("acquire lease %s/%s: %w", s.folder, l.Partition, err)
		}
	}
	l.Owner, l.Token, l.Leased, l.Epoch = s.worker, token, true, l.Epoch+1
	return l, s.write(ctx, l, token)
}

func (s *leaseSet) renew(ctx context.Context, l BlobLease) error {
	c, err := s.leaseClient(l.Partition, l.Token)
	if err != nil {
		return err
	}
	if _, err := c.RenewLease(ctx, nil); err != nil {
		return fmt.Errorf("renew lease %s/%s: %w", s.folder, l.Partition, err)
	}
	return nil
}

// release releases a lease of ours.
func (s *leaseSet) release(ctx context.Context, l BlobLease) error {
	token := l.Token
	l.Owner, l.Token = "", ""
	if err := s.write(ctx, l, token); err != nil {
		return err
	}
	c, err := s.leaseClient(l.Partition, token)
	if err != nil {
		return err
	}
	if _, err := c.ReleaseLease(ctx, nil); err != nil {
		return fmt.Errorf("release lease %s/%s: %w", s.folder, l.Partition, err)
	}
	return nil
}

func (s *leaseSet) write(ctx context.Context, l BlobLease, token string) error {
	_, err := s.blob(l.Partition).Upload(ctx, streaming.NopCloser(bytes.NewReader(l.text())), &blockblob.UploadOptions{
		HTTPHeaders:      store.Octets,
		AccessConditions: &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &token}},
	})
	if err != nil {
		return fmt.Errorf("write lease %s/%s: %w", s.folder, l.Partition, err)
	}
	return nil
}

func (s *leaseSet) leaseClient(partition, token string) (*lease.BlobClient, error) {
	return lease.NewBlobClient(s.blob(partition), &lease.BlobClientOptions{LeaseID: &token})
}

// leaseKeeper holds leases of a set for a worker.
type leaseKeeper struct {
	set *leaseSet

	mu   sync.Mutex // protects held
	held map[string]heldLease
}

// heldLease is a lease of ours.
type heldLease struct {
	BlobLease
	until time.Time
}

func newLeaseKeeper(s *leaseSet) *leaseKeeper {
	return &leaseKeeper{set: s, held: map[string]heldLease{}}
}

// has reports whether a partition's lease is ours, and until when.
func (k *leaseKeeper) has(partition string) (until time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.held[partition]
	return l.until, ok
}

// partitions returns those whose leases are ours, in order.
func (k *leaseKeeper) partitions() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return sortedKeys(k.held)
}

func (k *leaseKeeper) leases() map[string]BlobLease {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := make(map[string]BlobLease, len(k.held))
	for p, l := range k.held {
		all[p] = l.BlobLease
	}
	return all
}

func (k *leaseKeeper) keep(l BlobLease, until time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[l.Partition] = heldLease{l, until}
}

func (k *leaseKeeper) forget(partition string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, partition)
}

// renew renews our leases and returns the partitions whose lease is lost:
// another worker took it over, or it ended before the storage answered again.
// .NET takes any failure but the first for a success
// (LeaseCollectionBalancer.cs, RenewLeaseAsync).
func (k *leaseKeeper) renew(ctx context.Context) (lost []string, err error) {
	began := time.Now()
	var mu sync.Mutex
	var group sync.WaitGroup
	for partition, l := range k.leases() {
		group.Go(func() {
			failure := k.set.renew(ctx, l)
			mu.Lock()
			defer mu.Unlock()
			until, _ := k.has(partition)
			switch {
			case failure == nil:
				k.keep(l, began.Add(k.set.duration))
				return
			case store.IsConflict(failure) || store.IsNotFound(failure) || !time.Now().Before(until):
				lost = append(lost, partition)
				k.forget(partition)
			}
			if !store.IsConflict(failure) {
				err = failure
			}
		})
	}
	group.Wait()
	slices.Sort(lost)
	return lost, err
}

// balance acquires the leases that planLeases names, of the partitions for which admit is
// true, and returns those that it stole.
func (k *leaseKeeper) balance(ctx context.Context, admit func(partition string) bool, steals bool) (stolen []string, err error) {
	all, err := k.set.list(ctx, k.leases())
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(l BlobLease) bool { return !admit(l.Partition) })
	for _, l := range planLeases(all, k.set.worker, steals) {
		began := time.Now()
		got, failure := k.set.take(ctx, l)
		switch {
		case failure == nil:
			k.keep(got, began.Add(k.set.duration))
			if l.Leased {
				stolen = append(stolen, got.Partition)
			}
		case !store.IsConflict(failure):
			err = failure
		}
	}
	return stolen, err
}

// drop releases a lease of ours and forgets it.
func (k *leaseKeeper) drop(ctx context.Context, partition string) error {
	l, ok := k.leases()[partition]
	if !ok {
		return nil
	}
	err := k.set.release(ctx, l)
	if err == nil || store.IsConflict(err) || store.IsNotFound(err) {
		k.forget(partition)
		return nil
	}
	return err
}

// planLeases returns the leases that a worker is to take now, of all that there are:
// those without an owner, until it has its share, or else, if it steals, one of the worker
// that has most (LeaseCollectionBalancer.cs, TakeLeasesAsync). Without stealing it takes
// all that have no owner.
func planLeases(leases []BlobLease, worker string, steals bool) []BlobLease {
	var free []BlobLease
	counts := map[string]int{worker: 0}
	for _, l := range leases {
		switch {
		case !l.Leased || l.Owner == "":
			free = append(free, l)
		case l.isOwnedBy(worker):
			counts[worker]++
		default:
			counts[l.Owner]++
		}
	}
	if !steals {
		return free
	}
	target := 1
	if len(leases) > len(counts) {
		target = (len(leases) + len(counts) - 1) / len(counts)
	}
	need := target - counts[worker]
	switch {
	case need <= 0:
		return nil
	case len(free) > 0:
		return free[:min(need, len(free))]
	}
	richest := ""
	for _, owner := range sortedKeys(counts) {
		if richest == "" || counts[owner] > counts[richest] {
			richest = owner
		}
	}
	if spare := min(need-1, 1); counts[richest] <= target-spare {
		return nil
	}
	i := slices.IndexFunc(leases, func(l BlobLease) bool { return l.Leased && l.Owner == richest })
	return leases[i : i+1]
}
