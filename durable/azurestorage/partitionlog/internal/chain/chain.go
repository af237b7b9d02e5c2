package chain

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/google/uuid"
)

// Chain is append blobs that follow each other.
type Chain struct {
	blobs   *store.Container
	hub     string
	prefix  string
	seed    uint32
	confirm func(context.Context) error
}

// New returns the chain of blobs whose names begin with prefix, such as "p00/log-". Frames
// carry the hub's ID, so that a blob of another hub is detected. confirm reads again which hub the container
// holds, and returns an error if that is not this one; nil means that it cannot be known.
func New(blobs *store.Container, hub, prefix string, confirm func(context.Context) error) *Chain {
	return &Chain{
		blobs: blobs, hub: hub, prefix: prefix, confirm: confirm,
		seed: crc32.Checksum([]byte(hub+"\x00"+prefix), checksums),
	}
}

// Confirm returns an error if the container holds another hub or none. Call it after a blob was
// created or listed, and before the first append to it or the first lease on it. The chain may
// have been deleted and created again before that blob was created, but not after.
func (c *Chain) Confirm(ctx context.Context) error {
	if c.confirm == nil {
		return nil
	}
	return c.confirm(ctx)
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

// The metadata of a blob.
const (
	nonceKey = "nonce"
	HubKey   = "hub" // the ID of the hub whose process wrote the blob; older versions wrote none
)

// Create makes a blob, empty, unless there is one with the number, which it returns then;
// mine is false.
func (c *Chain) Create(ctx context.Context, number uint64) (l Link, mine bool, err error) {
	l = Link{Number: number, Nonce: uuid.NewString()}
	err = store.Retry(ctx, "create blob "+c.Name(number), func(ctx context.Context) (err error) {
		l.ETag, err = c.Blob(number).Create(ctx, map[string]string{nonceKey: l.Nonce, HubKey: c.hub})
		return err
	})
	if err == nil || !store.IsConflict(err) {
		return l, err == nil, err
	}
	there, _, err := c.Find(ctx, number)
	return there, there.Nonce == l.Nonce, err
}

// Ensure creates the first blob of a chain that has none.
func (c *Chain) Ensure(ctx context.Context) error {
	for range ensureAttempts {
		// Another process may have created the blob, for this hub or for an earlier one.
		if l, _, err := c.Create(ctx, 1); err != nil || l.Number > 0 {
			return err
		}
	}
	return fmt.Errorf("create blob %s: other processes create and delete it", c.Name(1))
}

const ensureAttempts = 10

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
// a list of several pages counts if nothing came or went until it was read again. It deletes
// blobs that processes of another hub created, see the package's documentation.
func (c *Chain) List(ctx context.Context) ([]Link, error) {
	var before []Link
	for first := true; ; first = false {
		infos, pages, err := c.blobs.ListInfo(ctx, c.prefix)
		if store.IsContainerMissing(err) {
			err = errors.Join(c.Confirm(ctx), err)
		}
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(infos, func(b store.BlobInfo) bool { return b.Metadata[HubKey] != c.hub }) {
			if err := c.Confirm(ctx); err != nil {
				return nil, err
			}
		}
		if infos, err = c.removeForeign(ctx, infos); err != nil {
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

// removeForeign deletes blobs that processes of another hub created, and returns the others.
func (c *Chain) removeForeign(ctx context.Context, infos []store.BlobInfo) (ours []store.BlobInfo, err error) {
	for _, b := range infos {
		hub := b.Metadata[HubKey]
		switch {
		case hub == "" || hub == c.hub:
			ours = append(ours, b)
		case c.confirm == nil:
			return nil, &DamageError{Blob: b.Name, Cause: fmt.Errorf("it belongs to the task hub with the ID %s; want %s", hub, c.hub)}
		default:
			err := c.remove(ctx, b.Name, b.ETag, b.Leased)
			if err := store.Ignore(err, http.StatusNotFound, http.StatusPreconditionFailed); err != nil {
				return nil, err
			}
		}
	}
	return ours, nil
}

// Remove deletes a blob as it was listed, and breaks its lease first. It fails with status 412 if the
// blob has changed since.
func (c *Chain) Remove(ctx context.Context, l Link) error {
	return c.remove(ctx, c.Name(l.Number), l.ETag, l.Leased)
}

func (c *Chain) remove(ctx context.Context, name, etag string, leased bool) error {
	b := c.blobs.AppendBlob(name)
	return store.Retry(ctx, "delete "+name, func(ctx context.Context) error {
		if leased {
			if err := store.Ignore(b.Break(ctx, etag), http.StatusConflict); err != nil { // 409: the lease has expired
				return err
			}
		}
		return b.Remove(ctx, "", etag)
	})
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
