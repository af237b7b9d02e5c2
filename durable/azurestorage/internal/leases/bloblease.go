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
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
)

// A BlobLease is the lease on a partition in the format of the blob partition managers: a blob with
// the partition's name, and a lease on this blob. The content of the blob names the owner and the
// lease ID, which another worker needs to take over the lease
// (DurableTask.AzureStorage/Partitioning/BlobPartitionLease.cs, Lease.cs).
type BlobLease struct {
	Partition string // name of the control queue
	Owner     string // empty if the partition has no owner
	Token     string // lease ID
	Epoch     int64  // number of acquisitions
	Leased    bool   // the blob has an active lease
}

// blobLeaseText is the content of a lease blob, with its members in .NET's order.
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
		panic(err) // cannot fail for strings and a number
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

// isOwnedBy reports whether a worker owns the lease. It ignores case
// (DurableTask.AzureStorage/Partitioning/LeaseCollectionBalancer.cs).
func (l BlobLease) isOwnedBy(worker string) bool { return strings.EqualFold(l.Owner, worker) }

// Folders of lease blobs.
const (
	defaultLeases   = "default"   // legacy manager: the owner of a partition
	intentLeases    = "intent"    // safe manager: the next owner of a partition
	ownershipLeases = "ownership" // safe manager: the current owner of a partition
)

// leaseSet reads and changes the lease blobs in one folder
// (DurableTask.AzureStorage/Partitioning/BlobPartitionLeaseManager.cs).
type leaseSet struct {
	store    *store.Container
	folder   string
	worker   string
	duration time.Duration
	clock    *clocks.Clock
}

func (s *leaseSet) blob(partition string) *blockblob.Client {
	return s.store.Client.NewBlockBlobClient(s.folder + "/" + partition)
}

// create creates the missing blobs of partitions.
func (s *leaseSet) create(ctx context.Context, partitions []string) error {
	return store.ForEach(ctx, -1, partitions, func(ctx context.Context, _ int, p string) error {
		return s.store.CreateBlob(ctx, s.folder+"/"+p, BlobLease{Partition: p}.text())
	})
}

// list returns the leases, ordered by partition. It does not read the blobs of this worker's own
// leases, held.
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

// take acquires a free lease, or takes over another worker's lease with the ID in its blob, and writes
// the new owner into the blob. A conflict means that another worker was faster.
func (s *leaseSet) take(ctx context.Context, l BlobLease) (BlobLease, error) {
	token := uuid.NewString()
	if l.Leased {
		c, err := s.leaseClient(l.Partition, l.Token)
		if err != nil {
			return l, err
		}
		if _, err := c.ChangeLease(ctx, token, nil); err != nil {
			return l, fmt.Errorf("take over lease %s/%s from %s: %w", s.folder, l.Partition, l.Owner, err)
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

// release releases a lease of this worker.
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
		HTTPHeaders:      store.BlobHeaders,
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

// leaseKeeper holds this worker's leases in a set.
type leaseKeeper struct {
	set *leaseSet

	mu   sync.Mutex // guards held
	held map[string]heldLease
}

// heldLease is a lease of this worker.
type heldLease struct {
	BlobLease
	until clocks.Moment
}

func newLeaseKeeper(s *leaseSet) *leaseKeeper {
	return &leaseKeeper{set: s, held: map[string]heldLease{}}
}

// has reports whether this worker holds the lease of a partition, and when the lease expires.
func (k *leaseKeeper) has(partition string) (until clocks.Moment, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l, ok := k.held[partition]
	return l.until, ok
}

// partitions returns the partitions whose leases this worker holds, in order.
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

func (k *leaseKeeper) keep(l BlobLease, until clocks.Moment) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held[l.Partition] = heldLease{l, until}
}

func (k *leaseKeeper) forget(partition string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, partition)
}

// renew renews all held leases and returns the partitions whose lease is lost: another worker has
// taken it over, or it expired while the storage was unreachable. .NET treats every failure but the
// first as a success (LeaseCollectionBalancer.cs, RenewLeaseAsync).
func (k *leaseKeeper) renew(ctx context.Context) (lost []string, err error) {
	began := k.set.clock.Now()
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
			case store.IsConflict(failure) || store.IsNotFound(failure) || until.HasPassed(k.set.clock.Now()):
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

// balance acquires the leases that planLeases selects among the partitions for which admit returns
// true. It returns the partitions that it took over from other workers.
func (k *leaseKeeper) balance(ctx context.Context, admit func(partition string) bool, steals bool) (stolen []string, err error) {
	all, err := k.set.list(ctx, k.leases())
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(l BlobLease) bool { return !admit(l.Partition) })
	for _, l := range planLeases(all, k.set.worker, steals) {
		began := k.set.clock.Now()
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

// drop releases the lease of a partition and removes it from the held leases.
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

// planLeases selects the leases that a worker should acquire now. With stealing, it selects free
// leases up to the worker's fair share. Without free leases, it selects one lease of the worker with the
// most leases (LeaseCollectionBalancer.cs, TakeLeasesAsync). Without stealing, it selects all free
// leases.
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
