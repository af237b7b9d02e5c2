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

// Config defines where a partition's mailbox is stored and how it is written.
type Config struct {
	// Blobs is the hub's container.
	Blobs *store.Container
	// Hub is the hub's ID. Mail for another hub is refused.
	Hub string
	// Confirm reads again which hub the container holds. It returns an error if its ID is not Hub.
	// Default: no check. Blobs of another hub are then reported as damage.
	Confirm func(context.Context) error
	// MustExist means that the mailbox was created with the hub, so that a mailbox without blobs is
	// damaged. Default: the first sender creates the mailbox.
	MustExist bool
	// Prefix is the start of the names of the partition's blobs, such as "p00/".
	Prefix string
	// MaxSize (bytes) and MaxBlocks (mails) limit a blob. A sender that reaches either creates the
	// next blob. Defaults 32 MiB and 40,000; the service allows 50,000 appends.
	MaxSize   int64
	MaxBlocks int
	// MaxBlock is the maximum size of one append, in bytes. Longer mail becomes a letter.
	// Default 4 MiB.
	MaxBlock int
	// Log receives an error when mail is lost or read again. Default: none.
	Log *slog.Logger
}

func (c *Config) setDefaults() {
	c.MaxSize = cmp.Or(c.MaxSize, 32<<20)
	c.MaxBlocks = cmp.Or(c.MaxBlocks, 40_000)
	c.MaxBlock = cmp.Or(c.MaxBlock, chain.MaxPayload+chain.FrameHeaderSize)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
}

func (c *Config) chain() *chain.Chain { return chain.New(c.Blobs, c.Hub, c.Prefix+"mail-", c.Confirm) }

// Create creates an empty mailbox unless it exists.
func Create(ctx context.Context, cfg Config) error { return cfg.chain().EnsureFirst(ctx) }

// missing returns the error of a mailbox without blobs, or nil if the mailbox was not created with
// the hub.
func (c *Config) missing() error {
	if !c.MustExist {
		return nil
	}
	return &chain.DamageError{Blob: c.chain().Name(1), Cause: errors.New("all blobs of the mailbox are missing")}
}

// letters returns the prefix of the names of all letters.
func (c *Config) letters() string { return c.Prefix + "letter-" }

// lettersOf returns the prefix of the names of the letters whose mail is in the given blob.
func (c *Config) lettersOf(blob uint64) string { return fmt.Sprintf("%s%010d-", c.letters(), blob) }

// Kinds of frames.
const (
	kindMail    byte = iota + 1
	kindLetter       // mail in a letter; the payload is the letter's name
	kindEnd          // end of the blob; the next blob continues
	kindLabeled      // mail in a letter; the payload is its name and label
)

// Label identifies the requests in a letter. If the letter is missing, the owner knows from its label
// whether it was received before or is lost. Older versions sent letters without labels.
type Label struct {
	Sender      string
	First, Last uint64 // numbers of the requests
}

// labeled returns the payload of a kindLabeled frame.
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

// openID and closedID return the IDs of the lease on an open and on a closed blob.
func openID(l chain.Link) string { return l.Nonce }

func closedID(l chain.Link) string {
	return uuid.NewSHA1(uuid.NameSpaceOID, []byte(l.Nonce)).String()
}
