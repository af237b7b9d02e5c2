package bloblog

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
)

// Reader reads a partition's log, whoever owns it. Not for several goroutines at once.
type Reader struct {
	scan scan
	at   chain.Link // the blob that it reads
	pos  int64      // up to where it has read
}

// ErrReopen is the error of a reader whose place in the log was deleted. There is a newer
// manifest, which another reader gets.
var ErrReopen = errors.New("the log was deleted where it was to be read; open another reader")

// OpenReader returns a reader at the end of the log, and what the log has up to there. The
// error is [ErrNone] if there is no log yet.
func OpenReader(ctx context.Context, cfg Config) (*Reader, *Recovered, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, nil, err
	}
	r := &Reader{}
	var recovered *Recovered
	err := settled(func() error {
		r.scan = scan{chain: cfg.chain()}
		current, all, err := cfg.find(ctx, r.scan.chain)
		if err == nil && current.Size == 0 && current.Number == 1 {
			err = ErrNone
		}
		if err != nil {
			return err
		}
		r.at = current
		if r.pos, err = r.scan.readWhole(ctx, current); err != nil {
			return err
		}
		if r.scan.sealed != "" {
			return r.scan.movedFrom(current)
		}
		recovered, err = r.scan.recovered(ctx, current, all)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open a reader of log %s: %w", cfg.Prefix, err)
	}
	return r, recovered, nil
}

// readAtOnce is how much a reader reads with one request.
const readAtOnce = 16 << 20

// Next returns the groups and manifests that follow those that it returned before: all that
// were acknowledged when it was called. There may be none. What they hold must be copied by
// who keeps it for long.
func (r *Reader) Next(ctx context.Context) ([]Frame, error) {
	for {
		size, err := r.more(ctx)
		switch {
		case errors.Is(err, errMoved):
			return nil, fmt.Errorf("%w: %w", ErrReopen, err)
		case err != nil:
			return nil, err
		case r.scan.sealed != "":
			r.at = chain.Link{Number: r.at.Number + 1, Nonce: r.scan.sealed}
			r.pos, r.scan.sealed = 0, ""
		case r.pos >= size:
			out := r.scan.out
			r.scan.out = nil
			return out, nil
		}
	}
}

// more reads what there is, up to a bound, and returns the size of the blob. It reads the
// last byte again that it has: so there is an answer that says which blob it is.
func (r *Reader) more(ctx context.Context) (size int64, err error) {
	again := min(r.pos, 1)
	count := int64(readAtOnce)
	part, err := readBlob(ctx, r.scan.chain, r.at, r.pos-again, count)
	if err != nil {
		return 0, err
	}
	n, err := r.scan.read(r.at.Number, r.pos, part.Content[again:])
	r.pos += n
	if err == nil && n == 0 && r.pos < part.Size {
		err = &chain.DamageError{Blob: r.scan.chain.Name(r.at.Number), Offset: r.pos, Cause: chain.ErrCut}
	}
	return part.Size, err
}
