package azsim

import (
	"context"
	"io"
	"time"
)

// download is the body of a response in transfer to a worker.
type download struct {
	ctx  context.Context
	rest []byte
	rate int   // bytes per second; 0 means unlimited
	err  error // returned after rest
}

// newDownload returns the body of the exchange's response. It arrives with the account's
// bandwidth.
func newDownload(ctx context.Context, x *exchange, body []byte) io.ReadCloser {
	d := &download{ctx: ctx, rest: body, err: io.EOF}
	if x.a.cfg.Bandwidth != nil {
		d.rate = x.a.cfg.Bandwidth(*x.r)
	}
	if x.fault == Cut {
		d.rest, d.err = body[:int(fraction(mix(x.r.Roll, 6))*float64(len(body)))], errLost
	}
	return d
}

// Read implements [io.Reader]. With a bandwidth, it returns at most the bytes of 0.1 s.
func (d *download) Read(p []byte) (int, error) {
	if d.ctx.Err() != nil {
		return 0, context.Cause(d.ctx)
	}
	if len(d.rest) == 0 {
		return 0, d.err
	}
	n := min(len(p), len(d.rest))
	if d.rate > 0 && n > 0 {
		n = min(n, max(d.rate/10, 1))
		timer := time.NewTimer(time.Duration(n) * time.Second / time.Duration(d.rate))
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-d.ctx.Done():
			return 0, context.Cause(d.ctx)
		}
	}
	copy(p, d.rest[:n])
	d.rest = d.rest[n:]
	return n, nil
}

// Close implements [io.Closer].
func (d *download) Close() error { return nil }
