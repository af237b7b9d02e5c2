package bloblog

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
)

// Reader follows a partition's log without owning it. It is not safe for concurrent use.
type Reader struct {
	scan scan
	at   chain.Link // current blob of the reader
	pos  int64      // offset of the next read
}

// ErrReopen is returned if the log was deleted at the reader's position. Open another reader: it
// gets a newer manifest.
var ErrReopen = errors.New("the log was deleted at the reader's position; open another reader")

// OpenReader returns a reader at the end of the log, and the content of the log up to there. The
// error is [ErrNoLog] if the log was never opened.
func OpenReader(ctx context.Context, cfg Config) (*Reader, *Recovered, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, nil, err
	}
	r := &Reader{}
	var recovered *Recovered
	err := retryMoved(func() error {
		r.scan = scan{chain: cfg.chain()}
		current, all, err := cfg.find(ctx, r.scan.chain)
		if err == nil && current.Size == 0 && current.Number == 1 {
			err = ErrNoLog
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

// maxRead is the maximum size of one read request, in bytes.
const maxRead = 16 << 20

// Next returns the groups and manifests after those already returned. It includes every group that
// was acknowledged before the call. The result may be empty. Its byte slices may share a large
// buffer; copy what you keep for long.
func (r *Reader) Next(ctx context.Context) ([]Frame, error) {
	for {
		size, err := r.readMore(ctx)
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

// readMore reads up to maxRead bytes and returns the size of the blob. It reads the last known byte
// again, so that the response is never empty and identifies the blob.
func (r *Reader) readMore(ctx context.Context) (size int64, err error) {
	again := min(r.pos, 1)
	count := int64(maxRead)
	part, err := readBlob(ctx, r.scan.chain, r.at, r.pos-again, count)
	if err != nil {
		return 0, err
	}
	n, err := r.scan.read(r.at.Number, r.pos, part.Content[again:])
	r.pos += n
	if err == nil && n == 0 && r.pos < part.Size {
		err = &chain.DamageError{Blob: r.scan.chain.Name(r.at.Number), Offset: r.pos, Cause: chain.ErrTruncated}
	}
	return part.Size, err
}
