package mailbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/google/uuid"
)

// Sender sends mail to a mailbox. It creates the mailbox if necessary. It is safe for concurrent
// use.
type Sender struct {
	cfg   Config
	chain *chain.Chain

	mu     chain.Lock   // protects the fields below
	newest []chain.Link // the two newest listed blobs, without those known to be closed
	closed uint64       // blobs up to this number are closed
}

// NewSender returns a sender.
func NewSender(cfg Config) *Sender {
	cfg.setDefaults()
	return &Sender{cfg: cfg, chain: cfg.chain(), mu: chain.NewLock()}
}

// maxAttempts limits the attempts to find the open blob.
const maxAttempts = 10

// ErrUncertain is wrapped by the error of a send with unknown result: the mail may be in the
// mailbox, now or later. After any other error the mail of that call is not in the mailbox.
var ErrUncertain = errors.New("the mail may have arrived")

// errClosed means that the blobs were closed faster than the sender could find an open one.
var errClosed = errors.New("the blob was closed meanwhile")

// Send stores mail in the mailbox. After an error that wraps [ErrUncertain] the mail may be stored,
// now or later. Mail that is sent after Send returned is received after this mail. A label without
// a sender is not stored.
func (s *Sender) Send(ctx context.Context, mail []byte, label Label) error {
	doubt := error(nil) // from an earlier attempt
	for range maxAttempts {
		open, err := s.open(ctx)
		if err != nil {
			return errors.Join(fmt.Errorf("find the open blob of mailbox %s: %w", s.cfg.Prefix, err), doubt)
		}
		f := chain.Frame{Kind: kindMail, Payload: mail}
		if len(mail) > s.cfg.MaxBlock-chain.FrameHeaderSize {
			letter := s.cfg.lettersOf(open.Number) + uuid.NewString()
			f = chain.Frame{Kind: kindLetter, Payload: []byte(letter)}
			if label.Sender != "" {
				f = chain.Frame{Kind: kindLabeled, Payload: labeled(letter, label)}
			}
			if err := s.cfg.Blobs.CreateBlob(ctx, letter, mail); err != nil {
				return errors.Join(err, doubt)
			}
		}
		at, blocks, err := s.append(ctx, open, openID(open), f)
		if errors.Is(err, ErrUncertain) {
			doubt = ErrUncertain
		}
		switch store.StatusOf(err) {
		case http.StatusPreconditionFailed, http.StatusNotFound:
			if err := s.appendEnd(ctx, open); err != nil {
				return errors.Join(err, doubt)
			}
			continue
		}
		if err == nil && (at >= s.cfg.MaxSize || blocks >= s.cfg.MaxBlocks) {
			_ = s.rollOver(ctx, open) // else the next sender repeats it
		}
		if err != nil && !errors.Is(err, ErrUncertain) {
			err = errors.Join(err, doubt)
		}
		return err
	}
	return errors.Join(fmt.Errorf("send to mailbox %s: %w", s.cfg.Prefix, errClosed), doubt)
}

func (s *Sender) append(ctx context.Context, l chain.Link, leaseID string, f chain.Frame) (at int64, blocks int, err error) {
	block := s.chain.AppendFrame(nil, f)
	doubt := false
	err = store.Retry(ctx, "append to "+s.chain.Name(l.Number), func(ctx context.Context) (err error) {
		at, blocks, err = s.chain.Blob(l.Number).Append(ctx, block, leaseID, store.AnyPosition)
		doubt = doubt || err != nil && !store.WasNotApplied(err)
		return err
	})
	if err != nil && doubt {
		err = fmt.Errorf("%w: %w", ErrUncertain, err)
	}
	return at, blocks, err
}

// open returns the blob to append to: the older one of the two newest blobs unless it is known to
// be closed. The newest may be open before the older one is closed, but is not used until then.
func (s *Sender) open(ctx context.Context) (chain.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range maxAttempts {
		if len(s.newest) > 0 {
			return s.newest[0], nil
		}
		all, err := s.chain.List(ctx)
		if err != nil {
			return chain.Link{}, err
		}
		if len(all) == 0 { // create the mailbox, then list again
			if err := s.cfg.missing(); err != nil {
				return chain.Link{}, errors.Join(s.chain.Confirm(ctx), err)
			}
			if _, _, err := s.chain.Create(ctx, 1); err != nil {
				return chain.Link{}, err
			}
			continue
		}
		newest := slices.DeleteFunc(all[max(0, len(all)-2):], func(l chain.Link) bool { return l.Number <= s.closed })
		if len(newest) == 2 && !newest[0].Leased {
			if err := s.closeUnleased(ctx, newest[0]); err != nil {
				return chain.Link{}, err
			}
			continue
		}
		if len(newest) == 2 {
			ended, err := s.isEnded(ctx, newest[0])
			if err != nil {
				return chain.Link{}, err
			}
			if ended {
				s.closed, newest = newest[0].Number, newest[1:]
			}
		}
		switch {
		case len(newest) == 0: // the successor of the closed blob exists, unless the hub was deleted
			err = s.chain.Confirm(ctx)
		case !newest[0].Leased:
			err = s.openBlob(ctx, newest[0])
		}
		if err != nil {
			return chain.Link{}, err
		}
		s.newest = newest
	}
	return chain.Link{}, errClosed
}

// isEnded reports whether a blob ends with an end frame. Senders append such a frame only to a closed
// blob, and only further end frames after it. If each new sender appended one, the service would refuse
// further appends at its limit.
func (s *Sender) isEnded(ctx context.Context, l chain.Link) (bool, error) {
	const size = int64(chain.FrameHeaderSize)
	if l.Size < size {
		return false, nil
	}
	part, err := s.chain.Blob(l.Number).Download(ctx, l.Size-size, size)
	if err != nil {
		return false, store.Ignore(err, http.StatusNotFound, http.StatusRequestedRangeNotSatisfiable)
	}
	f, _, err := s.chain.DecodeFrame(part.Content)
	return err == nil && f.Kind == kindEnd, nil
}

// openBlob opens a blob by acquiring its lease. It does nothing if the blob has changed since it
// was listed.
func (s *Sender) openBlob(ctx context.Context, l chain.Link) error {
	if err := s.chain.Confirm(ctx); err != nil {
		return err
	}
	err := store.Retry(ctx, "open "+s.chain.Name(l.Number), func(ctx context.Context) error {
		return s.chain.Blob(l.Number).Acquire(ctx, openID(l), store.InfiniteLease, l.ETag)
	})
	return store.Ignore(err, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotFound)
}

// closeUnleased closes a blob that has a successor and has lost its lease: the lease was broken, or
// the container was restored without leases. The blob may already have an end frame; mail behind it
// would be lost. mu is locked.
func (s *Sender) closeUnleased(ctx context.Context, l chain.Link) error {
	err := s.end(ctx, l)
	if err == nil {
		s.closed = max(s.closed, l.Number)
	}
	return store.Ignore(err, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotFound)
}

// end closes a blob that has a successor, and appends an end frame. The blob can be open or closed, or can
// have lost its lease.
func (s *Sender) end(ctx context.Context, l chain.Link) error {
	if err := s.chain.Confirm(ctx); err != nil {
		return err
	}
	err := store.Retry(ctx, "close "+s.chain.Name(l.Number), func(ctx context.Context) error {
		if l.Leased {
			return s.chain.Blob(l.Number).Change(ctx, openID(l), closedID(l))
		}
		return s.chain.Blob(l.Number).Acquire(ctx, closedID(l), store.InfiniteLease, l.ETag)
	})
	if err == nil {
		_, _, err = s.append(ctx, l, closedID(l), chain.Frame{Kind: kindEnd})
	}
	return err
}

// rollOver creates and opens the blob after l, and closes l. Several senders may do so
// concurrently.
func (s *Sender) rollOver(ctx context.Context, l chain.Link) error {
	if _, _, err := s.chain.Create(ctx, l.Number+1); err != nil {
		return err
	}
	next, newest, err := s.chain.Find(ctx, l.Number+1)
	if err == nil && newest { // else l was closed long ago
		if err = s.openBlob(ctx, next); err == nil {
			err = s.closeBlob(ctx, l)
		}
	}
	if err != nil {
		return err
	}
	return s.appendEnd(ctx, l)
}

// closeBlob closes a blob by changing the ID of its lease.
func (s *Sender) closeBlob(ctx context.Context, l chain.Link) error {
	err := store.Retry(ctx, "close "+s.chain.Name(l.Number), func(ctx context.Context) error {
		return s.chain.Blob(l.Number).Change(ctx, openID(l), closedID(l))
	})
	return store.Ignore(err, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotFound)
}

// appendEnd appends the end frame to a closed blob, before this sender sends mail to the next one.
// If the blob is not closed, appendEnd forgets the listed blobs, and the next send lists them
// again.
func (s *Sender) appendEnd(ctx context.Context, l chain.Link) error {
	_, _, err := s.append(ctx, l, closedID(l), chain.Frame{Kind: kindEnd})
	s.mu.Lock()
	defer s.mu.Unlock()
	switch status := store.StatusOf(err); {
	case err == nil, status == http.StatusNotFound:
		s.closed = max(s.closed, l.Number)
		s.newest = slices.DeleteFunc(s.newest, func(o chain.Link) bool { return o.Number <= s.closed })
	case status == http.StatusPreconditionFailed:
		s.newest = nil
	default:
		return err
	}
	return nil
}
