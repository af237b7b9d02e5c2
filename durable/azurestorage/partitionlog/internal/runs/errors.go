package runs

import (
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

var (
	// ErrGone is the error of a file that does not exist. A reader that gets it needs a newer
	// manifest ([Base.Rebase]). For a base with [Config.Commit], it is the cause of a [DamageError].
	ErrGone = errors.New("file does not exist")

	errChecksum = errors.New("checksum does not match")
	errShort    = errors.New("file is too short")
	errForm     = errors.New("content is malformed")
)

// DamageError reports a file whose content is not valid, or a file of the current manifest that does
// not exist.
type DamageError struct {
	File   string
	Offset int64 // of the invalid part, in bytes
	Cause  error
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("base file %s is damaged at byte %d: %v", e.File, e.Offset, e.Cause)
}

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Cause }

// ManifestError reports a manifest that cannot be decoded.
type ManifestError struct{ Cause error }

func (e *ManifestError) Error() string {
	return "the base's manifest cannot be read: " + e.Cause.Error()
}

// Unwrap returns the cause.
func (e *ManifestError) Unwrap() error { return e.Cause }

func isUncertain(err error) bool { return errors.As(err, new(*logstore.UncertainError)) }
