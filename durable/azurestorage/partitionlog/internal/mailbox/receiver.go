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
	// Missing is the label of a letter whose blob is gone. Its mail was taken before and came
	// twice, or is lost.
	Missing *Label
	// Again means that the mail may have been taken before, because the mailbox has become shorter
	// than the position. After a failover of the account a blob can lack its last appends.
	Again bool
	After Position // the position when it was taken
}

// Batch is the result of a look into the mailbox.
type Batch struct {
	Items []Item
	// Read is the number of bytes that the look downloaded. A batch without items can have
	// them: they are the start of longer mail.
	Read int
	// Seen is the moment of a look: this batch and those before it have all mail that was in
	// the mailbox then. It is 0 if no look has ended since the last batch with a moment.
	Seen int64
}

// unlessRead returns the error of a look that brought nothing, or of a damaged blob.
func (b *Batch) unlessRead(err error) error {
	if b.Read > 0 && !errors.As(err, new(*chain.DamageError)) {
		return nil
	}
	return err
}

// Receiver takes mail, for the partition's owner. Next and Done must not be called at the
// same time.
type Receiver struct {
	cfg     Config
	chain   *chain.Chain
	at      Position
	buf     []byte // downloaded bytes after at
	letter  []byte // downloaded bytes of the letter that the frame after at names
	goal    answer // the first answer since the last batch with Seen
	last    answer // the last answer
	again   int64  // the mail up to this offset may have been taken before; negative, with the offset, if the blob is yet to be read again
	floor   uint64 // the position of mail before this offset is this offset
	cleaned uint64 // blobs before this one were deleted
	letters []letter
	ends    map[uint64]int64 // by blob, the offset behind its end frame and the mail that was reported
}

// answer is the answer to a request for the blob that is being read.
type answer struct {
	size   int64 // of the blob
	moment int64 // of the look; 0 without an answer
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
	return &Receiver{cfg: cfg, chain: cfg.chain(), at: from, cleaned: 1, ends: map[uint64]int64{}}
}

// readAtOnce bounds the bytes that a receiver downloads before it decodes them, and the bytes
// of the mail that it returns together, but for the last.
const readAtOnce = 4 << 20

// Next returns mail that was not returned before, in order. Mail that a sender
// was in doubt about is returned twice. The caller numbers its looks with rising moments, for [Batch.Seen].
//
// The receiver keeps downloaded bytes when a look fails, and the next look continues after
// them. So it reads any mailbox, however slow the downloads are and however early ctx ends.
// Next returns no error with items, nor when a download breaks off that brought bytes.
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
			b.Seen = r.seen()
			return b, nil
		}
		n, err := r.download(ctx, moment)
		b.Read += n
		switch {
		case store.IsNotFound(err) && r.at == (Position{Blob: 1}): // no sender has sent anything
			if err := r.cfg.missing(); err != nil {
				return b, b.unlessRead(err)
			}
			b.Seen = moment
			return b, nil
		case err != nil && n == 0:
			return b, b.unlessRead(err)
		}
		asked = r.last != answer{} // else the blob is read again
	}
}

// seen returns the moment of the last look whose mail was returned completely, 0 if a batch
// had it before.
func (r *Receiver) seen() (moment int64) {
	switch at := int64(r.at.Offset); {
	case r.last.moment > 0 && at >= r.last.size:
		moment, r.goal = r.last.moment, answer{}
	case r.goal.moment > 0 && at >= r.goal.size:
		moment, r.goal = r.goal.moment, r.last
	}
	return moment
}

// download reads more of the blob, and returns the number of new bytes. It reads the last
// byte again, since the service refuses a read at the end of a blob.
func (r *Receiver) download(ctx context.Context, moment int64) (n int, err error) {
	name, from := r.chain.Name(r.at.Blob), int64(r.at.Offset)+int64(len(r.buf))
	again := min(from, 1)
	part, err := r.cfg.Blobs.AppendBlob(name).Download(ctx, from-again, readAtOnce)
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
		r.restart("it is shorter than the mail that was taken from it")
		return 0, nil
	}
	if status == http.StatusRequestedRangeNotSatisfiable || status == http.StatusNotFound && r.at != (Position{Blob: 1}) {
		err = r.damage(fmt.Errorf("mail up to there was taken: %w", err))
	}
	return len(fresh), err
}

// restart goes back to the start of the blob, which has lost its end.
func (r *Receiver) restart(reason string) {
	r.cfg.Log.Error("the mail of a mailbox blob is read again; requests that were received before have no effect",
		"blob", r.chain.Name(r.at.Blob), "offset", r.at.Offset, "reason", reason)
	r.again, r.at.Offset, r.buf, r.goal, r.last = -int64(r.at.Offset), 0, nil, answer{}, answer{}
}

// damage returns the error of a blob that is damaged at the receiver's position. The next look
// downloads again what is there.
func (r *Receiver) damage(cause error) error {
	r.buf, r.letter = nil, nil
	return &chain.DamageError{Blob: r.chain.Name(r.at.Blob), Offset: int64(r.at.Offset), Cause: cause}
}

// decode adds the mail of downloaded bytes to a batch, up to a bound, and goes to the next
// blob at the end of this one.
func (r *Receiver) decode(ctx context.Context, b *Batch) (ended bool, err error) {
	for size := 0; len(r.buf) > 0 && size < readAtOnce; {
		f, rest, err := r.chain.DecodeFrame(r.buf)
		if errors.Is(err, chain.ErrCut) && int64(r.at.Offset)+int64(len(r.buf)) < r.last.size {
			break
		}
		if err != nil && r.at.Offset > 0 && r.again == 0 { // new mail can be in the place of lost mail
			r.floor = r.at.Offset // a later receiver continues there, too
			r.restart("no mail begins where the last one ended")
			return true, nil
		}
		if err != nil {
			return false, r.damage(err)
		}
		next := Position{r.at.Blob, r.at.Offset + uint64(len(r.buf)-len(rest))}
		after, again := Position{next.Blob, max(next.Offset, r.floor)}, int64(next.Offset) <= r.again
		switch f.Kind {
		case kindMail:
			b.Items = append(b.Items, Item{Payload: f.Payload, After: after, Again: again})
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
				b.Items = append(b.Items, Item{Payload: r.letter, After: after, Again: again})
				r.letters = append(r.letters, letter{name, after})
				size += len(r.letter)
			case !store.IsBlobGone(err):
				return false, err
			case f.Kind == kindLabeled:
				b.Items = append(b.Items, Item{Missing: &label, After: after})
			default: // it was sent twice, and taken before
			}
			r.letter = nil
		case kindEnd:
			r.ends[next.Blob] = r.reportLost(next.Blob, int64(next.Offset), rest)
			r.at, r.buf, r.goal, r.last, r.again, r.floor = Position{Blob: r.at.Blob + 1}, nil, answer{}, answer{}, 0, 0
			return true, nil
		default:
			return false, r.damage(fmt.Errorf("it has frames of kind %d: it was written by a newer version", f.Kind))
		}
		r.at, r.buf = next, rest
	}
	return false, nil
}

// reportLost logs mail that is behind the end frame of a blob, where no receiver looks for it:
// older programs appended there after the blob had lost its lease. It returns the offset
// behind the whole frames in b, which begins at the given offset.
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
		r.cfg.Log.Error("mail is lost to its partition: it is behind the end of a mailbox blob", "blob", r.chain.Name(blob), "offset", offset, "mails", mails)
	}
	return end
}

// reportLate is reportLost of mail that came after the receiver had left the blob.
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

// downloadLetter reads the rest of a letter, and returns the number of new bytes.
func (r *Receiver) downloadLetter(ctx context.Context, name string) (n int, err error) {
	part, err := r.cfg.Blobs.AppendBlob(name).Download(ctx, int64(len(r.letter)), 0)
	if r.letter == nil {
		r.letter = part.Content
	} else {
		r.letter = append(r.letter, part.Content...)
	}
	return len(part.Content), err
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
		return fmt.Errorf("delete mail that was taken: %w", err)
	}
	r.cleaned = upTo.Blob
	maps.DeleteFunc(r.ends, func(blob uint64, _ int64) bool { return blob+1 < upTo.Blob })
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
