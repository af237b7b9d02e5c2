package chain

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/google/uuid"
)

// Chain is append blobs that follow each other.
type Chain struct {
	blobs  *store.Container
	prefix string
	seed   uint32
}

// New returns the chain of blobs whose names begin with prefix, such as "p00/log-". Frames
// of one hub are not taken for those of another.
func New(blobs *store.Container, hub, prefix string) *Chain {
	return &Chain{blobs: blobs, prefix: prefix, seed: crc32.Checksum([]byte(hub+"\x00"+prefix), checksums)}
}

// Link is a blob of a chain, as a list shows it.
type Link struct {
	Number  uint64
	Nonce   string // a GUID
	Size    int64
	ETag    string
	Leased  bool
	Changed time.Time
}

// Name returns the name of the blob with the number.
func (c *Chain) Name(number uint64) string { return fmt.Sprintf("%s%010d", c.prefix, number) }

// Blob returns the blob with the number, which need not exist.
func (c *Chain) Blob(number uint64) *store.AppendBlob { return c.blobs.AppendBlob(c.Name(number)) }

// nonceKey is the metadata in which a blob has its nonce.
const nonceKey = "nonce"

// Create makes a blob, empty, unless there is one with the number, which it returns then;
// mine is false.
func (c *Chain) Create(ctx context.Context, number uint64) (l Link, mine bool, err error) {
	l = Link{Number: number, Nonce: uuid.NewString()}
	err = store.Retry(ctx, "create blob "+c.Name(number), func(ctx context.Context) (err error) {
		l.ETag, err = c.Blob(number).Create(ctx, map[string]string{nonceKey: l.Nonce})
		return err
	})
	if err == nil || !store.IsConflict(err) {
		return l, err == nil, err
	}
	there, _, err := c.Find(ctx, number)
	return there, there.Nonce == l.Nonce, err
}

// Find returns the blob with the number, zero if there is none, and whether it is the newest.
func (c *Chain) Find(ctx context.Context, number uint64) (l Link, newest bool, err error) {
	all, err := c.List(ctx)
	for i, l := range all {
		if l.Number == number {
			return l, i == len(all)-1, nil
		}
	}
	return Link{}, false, err
}

// Is reports whether a part was read of the link's blob, and not of another in its place.
func (l Link) Is(p store.BlobPart) bool { return p.Metadata[nonceKey] == l.Nonce }

// List returns the blobs that there are, in order, garbage too, as they were at one moment:
// a list of several pages counts if nothing came or went until it was read again.
func (c *Chain) List(ctx context.Context) ([]Link, error) {
	var before []Link
	for first := true; ; first = false {
		infos, pages, err := c.blobs.ListInfo(ctx, c.prefix)
		if err != nil {
			return nil, err
		}
		var links, seen []Link
		for _, b := range infos {
			number, err := strconv.ParseUint(strings.TrimPrefix(b.Name, c.prefix), 10, 64)
			if err != nil || number == 0 || b.Metadata[nonceKey] == "" {
				return nil, &DamageError{Blob: b.Name, Cause: fmt.Errorf("want a number in its name after %s, and metadata %s: it was not made by a task hub", c.prefix, nonceKey)}
			}
			l := Link{Number: number, Nonce: b.Metadata[nonceKey], Size: b.Size, ETag: b.ETag, Leased: b.Leased, Changed: b.Changed}
			links = append(links, l)
			seen = append(seen, Link{Nonce: l.Nonce, Size: min(l.Size, 1)})
		}
		if pages == 1 || !first && slices.Equal(before, seen) {
			return links, nil
		}
		before = seen
	}
}

// Lock is a lock that may be held during requests: who waits for it in a simulation waits for
// the requests' time to pass.
type Lock chan struct{}

// NewLock returns a lock that nobody has.
func NewLock() Lock { return make(Lock, 1) }

// Lock implements [sync.Locker].
func (l Lock) Lock() { l <- struct{}{} }

// Unlock implements [sync.Locker].
func (l Lock) Unlock() { <-l }
