package bloblog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// Config defines where a partition's log is stored and how it is written.
type Config struct {
	// Blobs is the hub's container.
	Blobs *store.Container
	// Leases is a client of the same container that acquires and renews leases. Its requests must
	// not queue behind other requests, or leases would expire. Default: Blobs.
	Leases *store.Container
	// Hub is the hub's ID. Open refuses the log of another hub.
	Hub string
	// Confirm reads again which hub the container holds. It returns an error if its ID is not Hub.
	// Default: no check. Blobs of another hub are then reported as damage.
	Confirm func(context.Context) error
	// Missing is called if the log has no blobs. It returns nil if the log was never created.
	// Default: a missing log was never created.
	Missing func(context.Context) error
	// Prefix is the start of the names of the partition's blobs, such as "p00/".
	Prefix string
	// Lease is the lease duration: whole seconds, 15 s to 60 s. The owner renews the lease every
	// third of it. Default 30 s.
	Lease time.Duration
	// Clock counts the duration of leases. Default: the clocks of this machine.
	Clock *clocks.Clock
	// MaxSize (bytes) and MaxBlocks (appends) limit a blob. Beyond either, the log continues in the
	// next blob. Defaults 64 MiB and 40,000; the service allows 50,000 appends.
	MaxSize   int64
	MaxBlocks int
	// MaxBlock is the maximum size of one append, in bytes. Default 4 MiB.
	MaxBlock int
	// Log receives a warning when the ownership is lost. Default: none.
	Log *slog.Logger
}

func (cfg *Config) setDefaults() error {
	cfg.Leases = cmp.Or(cfg.Leases, cfg.Blobs)
	cfg.Lease = cmp.Or(cfg.Lease, 30*time.Second)
	cfg.MaxSize = cmp.Or(cfg.MaxSize, 64<<20)
	cfg.MaxBlocks = cmp.Or(cfg.MaxBlocks, 40_000)
	cfg.MaxBlock = cmp.Or(cfg.MaxBlock, chain.MaxPayload+chain.FrameHeaderSize)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Lease < 15*time.Second || cfg.Lease > time.Minute || cfg.Lease%time.Second != 0 {
		return fmt.Errorf("lease is %v; want 15s to 60s, in whole seconds", cfg.Lease)
	}
	return nil
}

func (cfg *Config) chain() *chain.Chain {
	return chain.New(cfg.Blobs, cfg.Hub, cfg.Prefix+"log-", cfg.Confirm)
}

// Create creates an empty log unless it exists.
func Create(ctx context.Context, cfg Config) error { return cfg.chain().EnsureFirst(ctx) }

// ErrNoLog is returned for a log that has never been opened.
var ErrNoLog = errors.New("the partition has no log yet")

// HeldError is the error of [Open] if another process owns the log.
type HeldError struct {
	Blob string
	// Changed is the time of the owner's last append, by the storage's clock. The remaining time of
	// its lease is unknown; it is at most the lease duration.
	Changed time.Time
}

// Error names the log's current blob and the time of the last append.
func (e *HeldError) Error() string {
	return fmt.Sprintf("log %s is owned by another process; its last append was at %s", e.Blob, e.Changed.UTC().Format(time.RFC3339))
}

// Recovered is the content of a log when it is opened.
type Recovered struct {
	Manifest   []byte   // newest manifest; nil if none
	Recent     [][]byte // the manifest at the start of the current blob, and all since then (Manifest too)
	Base       uint64   // last group that the base contains
	Groups     []Frame  // groups after Base, in order
	Last       uint64   // number of the last group
	OpenCount  uint64   // number of this opening, higher than all earlier numbers
	CrashCount uint64   // number of owners that did not close it
}

// errMoved means that another process changed the log during the operation.
var errMoved = errors.New("another process changed the log meanwhile")

// findAttempts is the maximum number of attempts if other processes keep changing the log.
const findAttempts = 10

// sealedError means that the log continues in a blob that was not in the list.
type sealedError struct{ blob, next string }

func (e *sealedError) Error() string {
	return fmt.Sprintf("the log continued from %s in %s", e.blob, e.next)
}

func (e *sealedError) Unwrap() error { return errMoved }

// retryMoved calls f until it no longer fails with errMoved, up to findAttempts times.
func retryMoved(f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if !errors.Is(err, errMoved) {
			return err
		}
		if n == findAttempts {
			if sealed, is := errors.AsType[*sealedError](err); is {
				err = &chain.DamageError{Blob: sealed.next, Cause: fmt.Errorf("it is missing, but %s says that the log continues there", sealed.blob)}
			}
			return err
		}
	}
}

// find returns the current blob of the log and all listed blobs.
func (cfg *Config) find(ctx context.Context, c *chain.Chain) (current chain.Link, all []chain.Link, err error) {
	if all, err = c.List(ctx); err != nil {
		return current, nil, err
	}
	if len(all) == 0 {
		if cfg.Missing != nil {
			err = cfg.Missing(ctx)
		}
		return current, nil, cmp.Or(err, ErrNoLog)
	}
	newest := all[len(all)-1]
	if newest.Number == 1 {
		return newest, all, nil
	}
	if len(all) == 1 || all[len(all)-2].Number+1 != newest.Number {
		if err := c.Confirm(ctx); err != nil { // this process may have created the newest in another hub
			return current, nil, err
		}
		return current, nil, &chain.DamageError{Blob: c.Name(newest.Number - 1), Cause: fmt.Errorf("it is missing, but the next blob %s exists", c.Name(newest.Number))}
	}
	before := all[len(all)-2]
	seal := int64(len(c.AppendFrame(nil, sealFrame(newest))))
	if newest.Size == 0 || before.Size < seal {
		return before, all, nil
	}
	part, err := readBlob(ctx, c, before, before.Size-seal, seal)
	if err != nil {
		return current, nil, err
	}
	f, _, err := c.DecodeFrame(part.Content)
	if err == nil && f.Kind == kindSeal && string(f.Payload) == string(sealFrame(newest).Payload) {
		return newest, all, nil
	}
	return before, all, nil
}

// sealFrame returns the seal for next, the last frame of a blob.
func sealFrame(next chain.Link) chain.Frame {
	return numbered(kindSeal, next.Number, func(c *logstore.Coder) { c.String(&next.Nonce) })
}

// readBlob reads a part of l, see [store.AppendBlob.Download]. It returns errMoved if the blob is
// gone or was replaced.
func readBlob(ctx context.Context, c *chain.Chain, l chain.Link, offset, count int64) (store.BlobPart, error) {
	part, err := c.Blob(l.Number).Download(ctx, offset, count)
	switch status := store.StatusOf(err); {
	case status == http.StatusNotFound, status == http.StatusRequestedRangeNotSatisfiable:
		return part, fmt.Errorf("%w: %w", errMoved, err)
	case err != nil:
		return part, err
	case !l.Is(part):
		return part, errMoved
	}
	return part, nil
}

// readWhole reads all of l into s and returns its size. The blob must start with a header unless it
// is number 1, which may be empty.
func (s *scan) readWhole(ctx context.Context, l chain.Link) (int64, error) {
	part, err := readBlob(ctx, s.chain, l, 0, 0)
	if err != nil {
		return 0, err
	}
	if part.Size == 0 && l.Number > 1 { // the blob was recreated after it had been deleted
		return 0, errMoved
	}
	n, err := s.read(l.Number, 0, part.Content)
	if err == nil && n < part.Size && s.sealed == "" {
		err = &chain.DamageError{Blob: s.chain.Name(l.Number), Offset: n, Cause: chain.ErrTruncated}
	}
	return n, err
}

// movedFrom returns the error of a blob that turned out to be sealed.
func (s *scan) movedFrom(l chain.Link) error {
	return &sealedError{s.chain.Name(l.Number), s.chain.Name(l.Number + 1)}
}

// recovered returns the content of the log after the current blob has been read into s. It also
// reads the older blobs with groups that the base lacks.
func (s *scan) recovered(ctx context.Context, current chain.Link, all []chain.Link) (*Recovered, error) {
	r := &Recovered{Manifest: s.manifest, Base: s.base, Last: s.last, OpenCount: s.opens, CrashCount: s.crashes}
	if len(r.Manifest) == 0 {
		r.Manifest = nil
	}
	r.Recent = [][]byte{s.first}
	for _, f := range s.out {
		if f.Manifest != nil {
			r.Recent = append(r.Recent, f.Manifest)
		}
	}
	parts := [][]Frame{s.out}
	for next, first := current, s.before; first > s.base; {
		i := slices.IndexFunc(all, func(l chain.Link) bool { return l.Number+1 == next.Number })
		if i < 0 {
			cause := fmt.Errorf("%w: groups %d to %d are in the previous blob, which is missing", errGap, s.base+1, first)
			return nil, &chain.DamageError{Blob: s.chain.Name(next.Number), Cause: cause}
		}
		earlier := scan{chain: s.chain}
		size, err := earlier.readWhole(ctx, all[i])
		if err == nil && (earlier.sealed != next.Nonce || earlier.last != first) {
			err = &chain.DamageError{Blob: s.chain.Name(all[i].Number), Offset: size, Cause: fmt.Errorf("%w: it ends with group %d, but the next blob starts after group %d", errGap, earlier.last, first)}
		}
		if err != nil {
			return nil, err
		}
		parts = append(parts, earlier.out)
		next, first = all[i], earlier.before
	}
	for _, part := range slices.Backward(parts) {
		for _, f := range part {
			if f.Manifest == nil && f.Number > s.base {
				r.Groups = append(r.Groups, f)
			}
		}
	}
	s.out = nil
	return r, nil
}
