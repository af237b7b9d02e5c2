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

// Sender puts mail into a mailbox, which it makes if there is none. Several goroutines may
// use it at once.
type Sender struct {
	cfg   Config
	chain *chain.Chain

	mu     chain.Lock   // protects the following
	newest []chain.Link // the two newest blobs when they were listed, without those known to be closed
	closed uint64       // up to which number they are
}

// NewSender returns a sender.
func NewSender(cfg Config) *Sender {
	cfg.setDefaults()
	return &Sender{cfg: cfg, chain: cfg.chain(), mu: chain.NewLock()}
}

// lookAttempts is how often a sender looks for the open blob before it gives up.
const lookAttempts = 10

// ErrDoubt is wrapped by errors of mail that may be in the mailbox, now or later. After an error
// without it, the mail of this call is certainly not there.
var ErrDoubt = errors.New("the mail may have arrived")

// errClosed is the error of mail for a blob that is closed.
var errClosed = errors.New("the mailbox went on meanwhile")

// Send returns when the mail is in the mailbox. After an error that wraps [ErrDoubt] it may be
// there, now or later. Mail that is sent after Send returned comes after it. A label without a
// sender is not stored.
func (s *Sender) Send(ctx context.Context, mail []byte, label Label) error {
	doubt := error(nil) // of an earlier attempt
	for range lookAttempts {
		open, err := s.open(ctx)
		if err != nil {
			return errors.Join(fmt.Errorf("look for the mailbox %s: %w", s.cfg.Prefix, err), doubt)
		}
		f := chain.Frame{Kind: kindMail, Payload: mail}
		if len(mail) > s.cfg.MaxBlock-chain.FrameHead {
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
		if errors.Is(err, ErrDoubt) {
			doubt = ErrDoubt
		}
		switch store.StatusOf(err) {
		case http.StatusPreconditionFailed, http.StatusNotFound:
			if err := s.leave(ctx, open); err != nil {
				return errors.Join(err, doubt)
			}
			continue
		}
		if err == nil && (at >= s.cfg.MaxSize || blocks >= s.cfg.MaxBlocks) {
			_ = s.goOn(ctx, open) // else who sends next does
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
		err = fmt.Errorf("%w: %w", ErrDoubt, err)
	}
	return at, blocks, err
}

// open returns the blob that mail goes to: the older of the two newest that is not known to be
// closed. The other is made before that is, and is not used before.
func (s *Sender) open(ctx context.Context) (chain.Link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range lookAttempts {
		if len(s.newest) > 0 {
			return s.newest[0], nil
		}
		all, err := s.chain.List(ctx)
		if err != nil {
			return chain.Link{}, err
		}
		if len(all) == 0 { // whether it is the mailbox is looked for
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
			if err := s.close(ctx, newest[0]); err != nil {
				return chain.Link{}, err
			}
			continue
		}
		switch {
		case len(newest) == 0: // the successor of the closed blob exists, unless the hub was deleted
			err = s.chain.Confirm(ctx)
		case !newest[0].Leased:
			err = s.unlock(ctx, newest[0])
		}
		if err != nil {
			return chain.Link{}, err
		}
		s.newest = newest
	}
	return chain.Link{}, errClosed
}

// unlock opens a blob that nobody has opened since it was listed.
func (s *Sender) unlock(ctx context.Context, l chain.Link) error {
	if err := s.chain.Confirm(ctx); err != nil {
		return err
	}
	err := store.Retry(ctx, "open "+s.chain.Name(l.Number), func(ctx context.Context) error {
		return s.chain.Blob(l.Number).Acquire(ctx, openID(l), store.Forever, l.ETag)
	})
	return store.Ignore(err, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotFound)
}

// close closes a blob that has a successor and has lost its lease: the lease was broken, or the
// container was restored without its leases. The blob may have an end frame already, so mail
// behind it may be lost. mu is locked.
func (s *Sender) close(ctx context.Context, l chain.Link) error {
	if err := s.chain.Confirm(ctx); err != nil {
		return err
	}
	err := store.Retry(ctx, "close "+s.chain.Name(l.Number), func(ctx context.Context) error {
		return s.chain.Blob(l.Number).Acquire(ctx, closedID(l), store.Forever, l.ETag)
	})
	if err == nil {
		_, _, err = s.append(ctx, l, closedID(l), chain.Frame{Kind: kindEnd})
	}
	if err == nil {
		s.closed = max(s.closed, l.Number)
	}
	return store.Ignore(err, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotFound)
}

// goOn makes the blob after l, and closes l. Any number of senders may do that, at any time.
func (s *Sender) goOn(ctx context.Context, l chain.Link) error {
	if _, _, err := s.chain.Create(ctx, l.Number+1); err != nil {
		return err
	}
	next, newest, err := s.chain.Find(ctx, l.Number+1)
	if err == nil && newest { // else l was closed long ago
		if err = s.unlock(ctx, next); err == nil {
			err = s.lock(ctx, l)
		}
	}
	if err != nil {
		return err
	}
	return s.leave(ctx, l)
}

// lock closes a blob.
func (s *Sender) lock(ctx context.Context, l chain.Link) error {
	err := store.Retry(ctx, "close "+s.chain.Name(l.Number), func(ctx context.Context) error {
		return s.chain.Blob(l.Number).Change(ctx, openID(l), closedID(l))
	})
	return store.Ignore(err, http.StatusConflict, http.StatusPreconditionFailed, http.StatusNotFound)
}

// leave makes sure that the receiver goes on from a blob that is closed to the next, before
// there is mail from this sender in that. If the blob is not closed, it is looked for anew.
func (s *Sender) leave(ctx context.Context, l chain.Link) error {
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
