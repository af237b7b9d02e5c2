package mailbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// Position is a place in the mailbox; all mail before it has been received. The zero value is the
// start.
type Position struct {
	Blob   uint64
	Offset uint64
}

// Code encodes or decodes a position.
func (p *Position) Code(c *logstore.Coder) {
	c.Uint(&p.Blob)
	c.Uint(&p.Offset)
}

// before reports whether p is before q.
func (p Position) before(q Position) bool {
	return p.Blob < q.Blob || p.Blob == q.Blob && p.Offset < q.Offset
}

// Item is one mail.
type Item struct {
	Payload []byte
	// Missing is the label of a letter whose blob is missing. The letter was received before and
	// arrived twice, or it is lost.
	Missing *Label
	// MayBeDuplicate means that the mail may have been received before. The receiver reads a blob
	// again from its start if the blob has become shorter or has no mail at the receiver's
	// position. After a failover of the account, a blob can lack its last appends.
	MayBeDuplicate bool
	End            Position // position after this mail
}

// Batch is the result of one call of [Receiver.Next].
type Batch struct {
	Items []Item
	// Read is the number of downloaded bytes. It can be positive without items: the bytes are then
	// the start of longer mail.
	Read int
	// Seen is the moment of a call of Next. This batch and the previous ones contain all mail that
	// was in the mailbox at that moment. Seen is 0 unless that moment is later than the last
	// one returned.
	Seen int64
}

// unlessRead returns err if the call downloaded nothing or the blob is damaged, else nil.
func (b *Batch) unlessRead(err error) error {
	if b.Read > 0 && !errors.As(err, new(*chain.DamageError)) {
		return nil
	}
	return err
}

// Receiver reads a mailbox for the partition's owner. Do not call Next and DeleteUpTo concurrently.
type Receiver struct {
	cfg     Config
	chain   *chain.Chain
	at      Position
	buf     []byte // downloaded bytes after at
	letter  []byte // downloaded bytes of the letter that the frame at buf's start names
	goal    answer // first answer since the last batch with Seen
	last    answer // last answer
	again   int64  // mail up to this offset may have been received before; negative until the blob's new size is known
	floor   uint64 // smaller offsets are reported as this one in Item.End
	newest  uint64 // blob without a successor when the receiver first reached its end
	cleaned uint64 // blobs before this one are deleted
	letters []letter
	ends    map[uint64]int64 // by blob: offset after its end frame and the reported mail behind it
}

// answer describes a response to a download of the current blob.
type answer struct {
	size   int64 // of the blob
	moment int64 // moment of the call of Next; 0 without a response
}

// letter is a letter whose mail was received.
type letter struct {
	name  string
	after Position
}

// NewReceiver returns a receiver that continues at from.
func NewReceiver(cfg Config, from Position) *Receiver {
	cfg.setDefaults()
	from.Blob = max(from.Blob, 1)
	return &Receiver{cfg: cfg, chain: cfg.chain(), at: from, cleaned: 1, ends: map[uint64]int64{}}
}

// maxRead limits the bytes of one download, and the size of the mail in a batch except for its last
// item.
const maxRead = 4 << 20

// Next returns the next mail, in order. Mail whose first send had an unknown result can be returned
// twice. moment identifies the call for [Batch.Seen]; it must increase with each call.
//
// The receiver keeps the downloaded bytes when a call fails, and the next call continues after
// them. So it makes progress however slow the downloads are and however early ctx ends. Next
// returns no error together with items. It also returns no error if a download was interrupted
// after at least one new byte, unless the blob is damaged.
func (r *Receiver) Next(ctx context.Context, moment int64) (b Batch, err error) {
	for asked := false; ; {
		ended, err := r.decode(ctx, &b)
		switch {
		case len(b.Items) > 0:
			b.Seen = r.seen()
			return b, nil
		case err != nil:
			return b, b.unlessRead(err)
		case ended:
			asked = false
			continue
		case asked && int64(r.at.Offset) == r.last.size:
			switch isNewest, err := r.endIfReplaced(ctx); {
			case err != nil:
				return b, b.unlessRead(err)
			case isNewest:
				b.Seen = r.seen()
				return b, nil
			}
		}
		n, err := r.download(ctx, moment)
		b.Read += n
		switch {
		case store.IsNotFound(err) && r.at == (Position{Blob: 1}): // no mail was ever sent
			if err := r.cfg.missing(); err != nil {
				return b, b.unlessRead(err)
			}
			b.Seen = moment
			return b, nil
		case err != nil && n == 0:
			return b, b.unlessRead(err)
		}
		asked = r.last != answer{} // else the blob is read again from its start
	}
}

// endIfReplaced reports whether the current blob is the newest. Otherwise it closes the blob and appends
// an end frame. endIfReplaced lists the blobs only when the receiver first reaches the end of the blob.
func (r *Receiver) endIfReplaced(ctx context.Context) (bool, error) {
	if r.newest == r.at.Blob {
		return true, nil
	}
	all, err := r.chain.List(ctx)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(all, func(l chain.Link) bool { return l.Number == r.at.Blob })
	if i < 0 || i == len(all)-1 {
		r.newest = r.at.Blob
		return true, nil
	}
	return false, NewSender(r.cfg).end(ctx, all[i])
}

// seen returns the latest moment whose mail has been returned completely, or 0 if a previous batch
// reported it.
func (r *Receiver) seen() (moment int64) {
	switch at := int64(r.at.Offset); {
	case r.last.moment > 0 && at >= r.last.size:
		moment, r.goal = r.last.moment, answer{}
	case r.goal.moment > 0 && at >= r.goal.size:
		moment, r.goal = r.goal.moment, r.last
	}
	return moment
}

// download reads more of the blob and returns the number of new bytes. It reads the last known byte
// again, because the service refuses a read at the end of a blob.
func (r *Receiver) download(ctx context.Context, moment int64) (n int, err error) {
	name, from := r.chain.Name(r.at.Blob), int64(r.at.Offset)+int64(len(r.buf))
	again := min(from, 1)
	part, err := r.cfg.Blobs.AppendBlob(name).Download(ctx, from-again, maxRead)
	if err == nil || len(part.Content) > 0 {
		r.last = answer{part.Size, moment}
		if r.goal.moment == 0 {
			r.goal = r.last
		}
		if r.again < 0 {
			r.again = min(part.Size, -r.again)
		}
	}
	fresh := part.Content[min(again, int64(len(part.Content))):]
	if len(r.buf) == 0 {
		r.buf = fresh
	} else {
		r.buf = slices.Concat(r.buf, fresh)
	}
	status := store.StatusOf(err)
	if status == http.StatusRequestedRangeNotSatisfiable && r.at.Offset > 0 && len(r.buf) == 0 {
		r.restart("the blob is shorter than the mail that was received from it")
		return 0, nil
	}
	if status == http.StatusRequestedRangeNotSatisfiable || status == http.StatusNotFound && r.at != (Position{Blob: 1}) {
		err = r.damage(fmt.Errorf("mail up to this offset was received before: %w", err))
	}
	return len(fresh), err
}

// restart continues at the start of a blob that has lost its end.
func (r *Receiver) restart(reason string) {
	r.cfg.Log.Error("reading the mail of a mailbox blob again; requests that were received before have no effect",
		"blob", r.chain.Name(r.at.Blob), "offset", r.at.Offset, "reason", reason)
	r.again, r.at.Offset, r.buf, r.goal, r.last, r.newest = -int64(r.at.Offset), 0, nil, answer{}, answer{}, 0
}

// damage returns the error for a blob that is damaged at the receiver's position. The next call
// downloads the content again.
func (r *Receiver) damage(cause error) error {
	r.buf, r.letter = nil, nil
	return &chain.DamageError{Blob: r.chain.Name(r.at.Blob), Offset: int64(r.at.Offset), Cause: cause}
}

// decode adds downloaded mail to the batch, up to maxRead bytes. At the end of the blob it switches
// to the next blob and returns true.
func (r *Receiver) decode(ctx context.Context, b *Batch) (ended bool, err error) {
	for size := 0; len(r.buf) > 0 && size < maxRead; {
		f, rest, err := r.chain.DecodeFrame(r.buf)
		if errors.Is(err, chain.ErrTruncated) && int64(r.at.Offset)+int64(len(r.buf)) < r.last.size {
			break
		}
		if err != nil && r.at.Offset > 0 && r.again == 0 { // new mail can be at the place of lost mail
			r.floor = r.at.Offset // a later receiver continues there, too
			r.restart("no mail starts where the last received mail ended")
			return true, nil
		}
		if err != nil {
			return false, r.damage(err)
		}
		next := Position{r.at.Blob, r.at.Offset + uint64(len(r.buf)-len(rest))}
		after, again := Position{next.Blob, max(next.Offset, r.floor)}, int64(next.Offset) <= r.again
		switch f.Kind {
		case kindMail:
			b.Items = append(b.Items, Item{Payload: f.Payload, End: after, MayBeDuplicate: again})
			size += len(f.Payload)
		case kindLetter, kindLabeled:
			name, label := string(f.Payload), Label{}
			if f.Kind == kindLabeled {
				c := &logstore.Coder{Buf: f.Payload, Reading: true}
				codeLabeled(c, &name, &label)
				if err := c.End(); err != nil {
					return false, r.damage(err)
				}
			}
			n, err := r.downloadLetter(ctx, name)
			b.Read += n
			switch {
			case err == nil:
				b.Items = append(b.Items, Item{Payload: r.letter, End: after, MayBeDuplicate: again})
				r.letters = append(r.letters, letter{name, after})
				size += len(r.letter)
			case !store.IsBlobGone(err):
				return false, err
			case f.Kind == kindLabeled:
				b.Items = append(b.Items, Item{Missing: &label, End: after})
			default: // it arrived twice and was received before
			}
			r.letter = nil
		case kindEnd:
			r.ends[next.Blob] = r.reportLost(next.Blob, int64(next.Offset), rest)
			r.at, r.buf, r.goal, r.last, r.again, r.floor = Position{Blob: r.at.Blob + 1}, nil, answer{}, answer{}, 0, 0
			return true, nil
		default:
			return false, r.damage(fmt.Errorf("unknown frame kind %d: a newer version wrote the blob", f.Kind))
		}
		r.at, r.buf = next, rest
	}
	return false, nil
}

// reportLost logs mail behind the end frame of a blob; no receiver looks there. Older versions
// appended such mail after the blob had lost its lease. b is the content from offset on. reportLost
// returns the offset after the complete frames in b.
func (r *Receiver) reportLost(blob uint64, offset int64, b []byte) (end int64) {
	mails := 0
	end = offset
	for len(b) > 0 {
		f, rest, err := r.chain.DecodeFrame(b)
		if err != nil {
			break
		}
		if f.Kind != kindEnd {
			mails++
		}
		end += int64(len(b) - len(rest))
		b = rest
	}
	if mails > 0 {
		r.cfg.Log.Error("mail is lost: it was written after the end of a mailbox blob", "blob", r.chain.Name(blob), "offset", offset, "mails", mails)
	}
	return end
}

// reportLate calls reportLost for mail that was appended after the receiver had left the blob.
func (r *Receiver) reportLate(ctx context.Context, l chain.Link) error {
	end, known := r.ends[l.Number]
	if !known || l.Size <= end {
		return nil
	}
	part, err := r.chain.Blob(l.Number).Download(ctx, end, l.Size-end)
	if err == nil {
		r.ends[l.Number] = r.reportLost(l.Number, end, part.Content)
	}
	return store.Ignore(err, http.StatusNotFound, http.StatusRequestedRangeNotSatisfiable)
}

// downloadLetter reads the rest of a letter and returns the number of new bytes.
func (r *Receiver) downloadLetter(ctx context.Context, name string) (n int, err error) {
	part, err := r.cfg.Blobs.AppendBlob(name).Download(ctx, int64(len(r.letter)), 0)
	if r.letter == nil {
		r.letter = part.Content
	} else {
		r.letter = append(r.letter, part.Content...)
	}
	return len(part.Content), err
}

// DeleteUpTo deletes the mail before upTo. Call it only when that position is durable. The next
// call retries the deletion of blobs that failed. The deletion of a letter is retried when its
// mailbox blob has been received completely.
func (r *Receiver) DeleteUpTo(ctx context.Context, upTo Position) error {
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
		if l.Number+1 < upTo.Blob { // the previous blob stays, see package chain
			err := r.reportLate(ctx, l)
			if err == nil {
				err = r.remove(ctx, l)
			}
			errs = append(errs, err)
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
		return fmt.Errorf("delete received mail: %w", err)
	}
	r.cleaned = upTo.Blob
	maps.DeleteFunc(r.ends, func(blob uint64, _ int64) bool { return blob+1 < upTo.Blob })
	return nil
}

// remove deletes a blob that is closed, or a leftover blob, opened or not.
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
