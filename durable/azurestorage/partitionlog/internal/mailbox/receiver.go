package mailbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// Position is up to where mail was taken. The zero position is the beginning.
type Position struct {
	Blob   uint64
	Offset uint64
}

// Code codes a position.
func (p *Position) Code(c *logstore.Coder) {
	c.Uint(&p.Blob)
	c.Uint(&p.Offset)
}

// before reports whether p is before q.
func (p Position) before(q Position) bool {
	return p.Blob < q.Blob || p.Blob == q.Blob && p.Offset < q.Offset
}

// Item is mail.
type Item struct {
	Payload []byte
	After   Position // the position when it was taken
}

// Receiver takes mail, for the partition's owner. Next and Done must not be called at the
// same time.
type Receiver struct {
	cfg     Config
	chain   *chain.Chain
	at      Position
	cleaned uint64 // blobs before this one were deleted
	letters []letter
}

// letter is a blob with the mail before a position.
type letter struct {
	name  string
	after Position
}

// NewReceiver returns a receiver that goes on at a position.
func NewReceiver(cfg Config, from Position) *Receiver {
	cfg.setDefaults()
	from.Blob = max(from.Blob, 1)
	return &Receiver{cfg: cfg, chain: cfg.chain(), at: from, cleaned: 1}
}

// readAtOnce is how much a receiver reads with one request.
const readAtOnce = 16 << 20

// Next returns mail that was not returned before, in order: all that was there when it was
// called, up to some 16 MiB. There may be none. Mail of which a sender was in doubt comes
// twice.
func (r *Receiver) Next(ctx context.Context) ([]Item, error) {
	for {
		items, ended, err := r.more(ctx)
		if err != nil || len(items) > 0 || !ended {
			return items, err
		}
	}
}

// more reads what is in the blob, and goes to the next one at its end. It reads the last byte
// again that it has, since a read at the end of a blob is refused.
func (r *Receiver) more(ctx context.Context) (items []Item, ended bool, err error) {
	name, offset := r.chain.Name(r.at.Blob), int64(r.at.Offset)
	again, count := min(offset, 1), int64(readAtOnce)
	if offset == 0 { // it may be empty
		count = 0
	}
	part, err := r.read(ctx, name, offset-again, count)
	if store.IsNotFound(err) && r.at == (Position{Blob: 1}) { // nobody has sent anything
		return nil, false, nil
	}
	if status := store.StatusOf(err); status == http.StatusNotFound || status == http.StatusRequestedRangeNotSatisfiable {
		err = &chain.DamageError{Blob: name, Offset: offset, Cause: fmt.Errorf("mail up to there was taken: %w", err)}
	}
	if err != nil {
		return nil, false, err
	}
	at := r.at
	for b := part.Content[again:]; len(b) > 0; {
		f, rest, err := r.chain.DecodeFrame(b)
		if errors.Is(err, chain.ErrCut) && int64(at.Offset)+int64(len(b)) < part.Size {
			break
		}
		if err != nil {
			return nil, false, &chain.DamageError{Blob: name, Offset: int64(at.Offset), Cause: err}
		}
		at.Offset += uint64(len(b) - len(rest))
		b = rest
		item := Item{Payload: f.Payload, After: at}
		switch f.Kind {
		case kindEnd:
			r.at = Position{Blob: at.Blob + 1}
			return items, true, nil
		case kindLetter:
			letterName := string(f.Payload)
			part, err := r.read(ctx, letterName, 0, 0)
			if store.IsNotFound(err) { // it was sent twice, and taken before
				continue
			}
			if err != nil {
				return nil, false, err
			}
			item.Payload = part.Content
			r.letters = append(r.letters, letter{letterName, at})
		case kindMail:
		default:
			return nil, false, &chain.DamageError{Blob: name, Offset: int64(at.Offset), Cause: fmt.Errorf("it has frames of kind %d: it was written by a newer version", f.Kind)}
		}
		items = append(items, item)
	}
	r.at = at
	return items, false, nil
}

func (r *Receiver) read(ctx context.Context, name string, offset, count int64) (part store.BlobPart, err error) {
	err = store.Retry(ctx, "read blob "+name, func(ctx context.Context) (err error) {
		part, err = r.cfg.Blobs.AppendBlob(name).Read(ctx, offset, count)
		return err
	})
	return part, err
}

// Done deletes mail up to a position, which must be durable. What cannot be deleted is, the
// next time that a blob has been taken wholly.
func (r *Receiver) Done(ctx context.Context, upTo Position) error {
	var errs []error
	r.letters = slices.DeleteFunc(r.letters, func(l letter) bool {
		if upTo.before(l.after) {
			return false
		}
		errs = append(errs, r.cfg.Blobs.Remove(ctx, l.name))
		return true
	})
	if upTo.Blob <= r.cleaned {
		return errors.Join(errs...)
	}
	all, err := r.chain.List(ctx)
	errs = append(errs, err)
	for _, l := range all {
		if l.Number+1 < upTo.Blob { // see chain
			errs = append(errs, r.remove(ctx, l))
		}
	}
	infos, _, err := r.cfg.Blobs.ListInfo(ctx, r.cfg.letters())
	errs = append(errs, err)
	for _, letter := range infos {
		if letter.Name < r.cfg.lettersOf(upTo.Blob) {
			errs = append(errs, r.cfg.Blobs.Remove(ctx, letter.Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("delete mail that was taken: %w", err)
	}
	r.cleaned = upTo.Blob
	return nil
}

// remove deletes a blob, which is closed, or garbage that was opened or was not.
func (r *Receiver) remove(ctx context.Context, l chain.Link) error {
	ids := []string{closedID(l), openID(l)}
	if !l.Leased {
		ids = []string{""}
	}
	var err error
	for _, id := range ids {
		err = store.Retry(ctx, "delete "+r.chain.Name(l.Number), func(ctx context.Context) error {
			return r.chain.Blob(l.Number).Remove(ctx, id, l.ETag)
		})
		if err = store.Ignore(err, http.StatusNotFound); err == nil {
			return nil
		}
	}
	return err
}
