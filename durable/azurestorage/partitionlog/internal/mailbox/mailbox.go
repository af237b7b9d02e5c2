package mailbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/google/uuid"
)

// Config says where a partition's mailbox is.
type Config struct {
	// Blobs is the hub's container.
	Blobs *store.Container
	// Hub is the hub's ID. Mail for another hub is refused.
	Hub string
	// Confirm reads again which hub the container holds, and returns an error if its ID is
	// not Hub. Default: the container always holds this hub.
	Confirm func(context.Context) error
	// Created means that the mailbox was created with the hub: one without blobs is damaged.
	// Default: the first sender creates it.
	Created bool
	// Prefix is what the names of the partition's blobs begin with, such as "p00/".
	Prefix string
	// MaxSize and MaxBlocks are the bytes and the mails after which a sender makes the next
	// blob. Default 32 MiB and 40,000, of 50,000 that the service allows.
	MaxSize   int64
	MaxBlocks int
	// MaxBlock is the longest append, in bytes. Default 4 MiB.
	MaxBlock int
	// Log gets mail that is lost. By default it is discarded.
	Log *slog.Logger
}

func (c *Config) setDefaults() {
	c.MaxSize = cmp.Or(c.MaxSize, 32<<20)
	c.MaxBlocks = cmp.Or(c.MaxBlocks, 40_000)
	c.MaxBlock = cmp.Or(c.MaxBlock, chain.MaxPayload+chain.FrameHead)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
}

func (c *Config) chain() *chain.Chain { return chain.New(c.Blobs, c.Hub, c.Prefix+"mail-", c.Confirm) }

// Create creates the mailbox, empty, unless it exists.
func Create(ctx context.Context, cfg Config) error { return cfg.chain().Ensure(ctx) }

// missing returns the error of a mailbox without blobs, nil if it was never created.
func (c *Config) missing() error {
	if !c.Created {
		return nil
	}
	return &chain.DamageError{Blob: c.chain().Name(1), Cause: errors.New("all blobs of the mailbox are missing")}
}

// letters is what the names of letters begin with.
func (c *Config) letters() string { return c.Prefix + "letter-" }

// lettersOf is what the names of those letters begin with that mail in a blob names.
func (c *Config) lettersOf(blob uint64) string { return fmt.Sprintf("%s%010d-", c.letters(), blob) }

// The kinds of frames.
const (
	kindMail    byte = iota + 1
	kindLetter       // mail that is in a blob of its own, whose name this is
	kindEnd          // there is nothing after it; the next blob has more
	kindLabeled      // a letter with a label
)

// Label names the requests that mail has. With it the receiver's owner can distinguish a letter that is
// missing from one that was taken before and came twice. Older versions sent letters without labels.
type Label struct {
	Sender      string
	First, Last uint64 // numbers of requests
}

// labeled returns the payload of a frame of kindLabeled.
func labeled(letter string, l Label) []byte {
	c := &logstore.Coder{}
	codeLabeled(c, &letter, &l)
	return c.Buf
}

func codeLabeled(c *logstore.Coder, letter *string, l *Label) {
	c.String(letter)
	c.String(&l.Sender)
	c.Uint(&l.First)
	c.Uint(&l.Last)
}

// openID and closedID return the IDs of the lease on a blob that is open and on one that is
// closed.
func openID(l chain.Link) string { return l.Nonce }

func closedID(l chain.Link) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(l.Nonce)).String()
}
