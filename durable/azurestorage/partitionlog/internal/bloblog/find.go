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
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// Config says where a partition's log is.
type Config struct {
	// Blobs is the hub's container.
	Blobs *store.Container
	// Leases is the same container, by a client whose requests never wait for others: they
	// keep the lease. Default Blobs.
	Leases *store.Container
	// Hub is the hub's ID. Logs of other hubs are refused.
	Hub string
	// Confirm reads again which hub the container holds, and returns an error if its ID is
	// not Hub. Default: the container always holds this hub.
	Confirm func(context.Context) error
	// Missing is called if no log exists. It returns nil if the log was never created. Default:
	// a log that is missing was never created.
	Missing func(context.Context) error
	// Prefix is what the names of the partition's blobs begin with, such as "p00/".
	Prefix string
	// Lease is how long an owner has the log if it does not renew: 15 s to 60 s, which it
	// does every third of it. Default 30 s.
	Lease time.Duration
	// MaxSize and MaxBlocks are the bytes and the appends after which the log goes on in
	// another blob. Default 64 MiB and 40,000, of 50,000 that the service allows.
	MaxSize   int64
	MaxBlocks int
	// MaxBlock is the longest append, in bytes. Default 4 MiB.
	MaxBlock int
	// Log is told of an ownership that is lost. Default: nobody.
	Log *slog.Logger
}

func (cfg *Config) setDefaults() error {
	cfg.Leases = cmp.Or(cfg.Leases, cfg.Blobs)
	cfg.Lease = cmp.Or(cfg.Lease, 30*time.Second)
	cfg.MaxSize = cmp.Or(cfg.MaxSize, 64<<20)
	cfg.MaxBlocks = cmp.Or(cfg.MaxBlocks, 40_000)
	cfg.MaxBlock = cmp.Or(cfg.MaxBlock, chain.MaxPayload+chain.FrameHead)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Lease < 15*time.Second || cfg.Lease > time.Minute || cfg.Lease%time.Second != 0 {
		return fmt.Errorf("lease is %v; want 15s to 60s, in whole seconds", cfg.Lease)
	}
	return nil
}

func (cfg *Config) chain() *chain.Chain {
	return chain.New(cfg.Blobs, cfg.Hub, cfg.Prefix+"log-", cfg.Confirm)
}

// Create creates the log, empty, unless it exists.
func Create(ctx context.Context, cfg Config) error { return cfg.chain().Ensure(ctx) }

// ErrNone is the error of a log that nobody has opened yet.
var ErrNone = errors.New("the partition has no log yet")

// HeldError is the error of a log that somebody owns.
type HeldError struct {
	Blob string
	// Changed is when the owner appended last, by the storage's clock. How long it still
	// has the lease is not known: no longer than its length.
	Changed time.Time
}

// Error says which log it is.
func (e *HeldError) Error() string {
	return fmt.Sprintf("log %s has an owner, who appended last at %s", e.Blob, e.Changed.UTC().Format(time.RFC3339))
}

// Recovered is what a log has.
type Recovered struct {
	Manifest []byte   // the newest that counts, nil if there is none
	Recent   [][]byte // the manifests that counted since the current blob began, Manifest among them
	Base     uint64   // the last group that it has
	Groups   []Frame  // those after it, in order
	Last     uint64   // the number of the last group of all
	Opens    uint64   // how often the log was opened
	Crashes  uint64   // how many owners did not close it
}

// errMoved is the error of who looked while others changed what it looked at.
var errMoved = errors.New("the log went on meanwhile")

// findAttempts is how often somebody starts over because others went on.
const findAttempts = 10

// sealedError is the error of a log that continues in a blob that was not listed.
type sealedError struct{ blob, next string }

func (e *sealedError) Error() string {
	return fmt.Sprintf("the log went on from %s to %s", e.blob, e.next)
}

func (e *sealedError) Unwrap() error { return errMoved }

// settled calls f until nobody else interferes.
func settled(f func() error) error {
	for n := 1; ; n++ {
		err := f()
		if !errors.Is(err, errMoved) {
			return err
		}
		if n == findAttempts {
			if sealed, is := errors.AsType[*sealedError](err); is {
				err = &chain.DamageError{Blob: sealed.next, Cause: fmt.Errorf("it is missing, and %s says that the log continues there", sealed.blob)}
			}
			return err
		}
	}
}

// find returns the blob that is the log, and all that were listed.
func (cfg *Config) find(ctx context.Context, c *chain.Chain) (current chain.Link, all []chain.Link, err error) {
	if all, err = c.List(ctx); err != nil {
		return current, nil, err
	}
	if len(all) == 0 {
		if cfg.Missing != nil {
			err = cfg.Missing(ctx)
		}
		return current, nil, cmp.Or(err, ErrNone)
	}
	newest := all[len(all)-1]
	if newest.Number == 1 {
		return newest, all, nil
	}
	if len(all) == 1 || all[len(all)-2].Number+1 != newest.Number {
		if err := c.Confirm(ctx); err != nil { // this process may have created the newest in another hub
			return current, nil, err
		}
		return current, nil, &chain.DamageError{Blob: c.Name(newest.Number - 1), Cause: fmt.Errorf("it is missing, and there is %s", c.Name(newest.Number))}
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

// sealFrame returns the last frame of a blob, after which the log goes on in the next.
func sealFrame(next chain.Link) chain.Frame {
	return numbered(kindSeal, next.Number, func(c *logstore.Coder) { c.String(&next.Nonce) })
}

// readBlob reads a part of a link's blob; see [store.AppendBlob.Download]. If the blob is gone, or
// another is in its place, the error is errMoved.
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

// readWhole reads a blob from its beginning into s, and returns its size. There must be a
// header, unless it is the first of all.
func (s *scan) readWhole(ctx context.Context, l chain.Link) (int64, error) {
	part, err := readBlob(ctx, s.chain, l, 0, 0)
	if err != nil {
		return 0, err
	}
	if part.Size == 0 && l.Number > 1 { // it was made anew where another was
		return 0, errMoved
	}
	n, err := s.read(l.Number, 0, part.Content)
	if err == nil && n < part.Size && s.sealed == "" {
		err = &chain.DamageError{Blob: s.chain.Name(l.Number), Offset: n, Cause: chain.ErrCut}
	}
	return n, err
}

// movedFrom returns the error of a blob that was read and is sealed.
func (s *scan) movedFrom(l chain.Link) error {
	return &sealedError{s.chain.Name(l.Number), s.chain.Name(l.Number + 1)}
}

// recovered returns what the log has, after the blob that is the log was read into s. It reads
// the blobs before that have groups which the base lacks.
func (s *scan) recovered(ctx context.Context, current chain.Link, all []chain.Link) (*Recovered, error) {
	r := &Recovered{Manifest: s.manifest, Base: s.base, Last: s.last, Opens: s.opens, Crashes: s.deaths}
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
			cause := fmt.Errorf("%w: groups %d to %d are in the blob before, which is gone", errGap, s.base+1, first)
			return nil, &chain.DamageError{Blob: s.chain.Name(next.Number), Cause: cause}
		}
		earlier := scan{chain: s.chain}
		size, err := earlier.readWhole(ctx, all[i])
		if err == nil && (earlier.sealed != next.Nonce || earlier.last != first) {
			err = &chain.DamageError{Blob: s.chain.Name(all[i].Number), Offset: size, Cause: fmt.Errorf("%w: it ends with %d, and the next blob begins after %d", errGap, earlier.last, first)}
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
