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

// Chain is a sequence of numbered append blobs, see the package documentation. It is safe for
// concurrent use.
type Chain struct {
	blobs   *store.Container
	hub     string
	prefix  string
	seed    uint32
	confirm func(context.Context) error
}

// New returns the chain of the blobs whose names start with prefix, such as "p00/log-". hub is the
// ID of the hub; the checksums of frames include it. confirm reads hub.json again and returns an
// error if the container holds another hub. If confirm is nil, this is not checked, and List reports
// the blobs of other hubs as damage instead of deleting them.
func New(blobs *store.Container, hub, prefix string, confirm func(context.Context) error) *Chain {
	return &Chain{
		blobs: blobs, hub: hub, prefix: prefix, confirm: confirm,
		seed: crc32.Checksum([]byte(hub+"\x00"+prefix), checksums),
	}
}

// Confirm returns an error if the container holds another hub or none. Call it after a blob was
// created or listed, and before the first append to it or the first lease on it. Success proves that
// the blob belongs to this hub. If the hub had been replaced before the blob was created, Confirm
// would fail. If it had been replaced later, the blob would be gone.
func (c *Chain) Confirm(ctx context.Context) error {
	if c.confirm == nil {
		return nil
	}
	return c.confirm(ctx)
}

// Link is a blob of a chain, as returned by a list.
type Link struct {
	Number  uint64
	Nonce   string // a GUID
	Size    int64
	ETag    string
	Leased  bool
	Changed time.Time
}

// Name returns the name of the blob with the given number.
func (c *Chain) Name(number uint64) string { return fmt.Sprintf("%s%010d", c.prefix, number) }

// Blob returns a client for the blob with the given number. The blob need not exist.
func (c *Chain) Blob(number uint64) *store.AppendBlob { return c.blobs.AppendBlob(c.Name(number)) }

// Metadata keys of a blob.
const (
	nonceKey = "nonce"
	HubKey   = "hub" // ID of the hub whose process created the blob; older versions did not set it
)

// Create creates an empty blob with the given number. If another process has created it, Create
// returns that blob, and mine is false. The Link is then zero if the blob was deleted meanwhile.
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

// EnsureFirst creates the first blob of the chain if the chain has none.
func (c *Chain) EnsureFirst(ctx context.Context) error {
	for range ensureAttempts {
		// Another process may have created the blob, for this hub or for an earlier one.
		if l, _, err := c.Create(ctx, 1); err != nil || l.Number > 0 {
			return err
		}
	}
	return fmt.Errorf("create blob %s: other processes create and delete it", c.Name(1))
}

const ensureAttempts = 10

// Find returns the blob with the given number and whether it is the newest. The Link is zero if the
// blob does not exist.
func (c *Chain) Find(ctx context.Context, number uint64) (l Link, newest bool, err error) {
	all, err := c.List(ctx)
	for i, l := range all {
		if l.Number == number {
			return l, i == len(all)-1, nil
		}
	}
	return Link{}, false, err
}

// Is reports whether p was read from this blob, and not from a later blob of the same name.
func (l Link) Is(p store.BlobPart) bool { return p.Metadata[nonceKey] == l.Nonce }

// List returns all blobs in order, including leftovers, as a consistent snapshot. If a list has
// several pages, List repeats it until two lists in a row show the same blobs. It deletes blobs
// that processes of another hub created, see the package documentation. Without confirm it returns a
// *[DamageError] for such a blob.
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
				return nil, &DamageError{Blob: b.Name, Cause: fmt.Errorf("the name has no number after %s, or the metadata %s is missing: no task hub created this blob", c.prefix, nonceKey)}
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

// removeForeign deletes the blobs of other hubs and returns the remaining ones.
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

// Remove breaks the lease on a listed blob and deletes the blob. It fails with status 412 if the blob
// has changed since it was listed.
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

// Lock is a mutex that may be held during requests. It is a channel because synctest does not treat
// a blocked sync.Mutex as idle: virtual time would not advance.
type Lock chan struct{}

// NewLock returns an unlocked lock.
func NewLock() Lock { return make(Lock, 1) }

// Lock implements [sync.Locker].
func (l Lock) Lock() { l <- struct{}{} }

// Unlock implements [sync.Locker].
func (l Lock) Unlock() { <-l }
