package inbound

import (
	"context"
	"errors"
	"fmt"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// A Decoder decodes received messages.
type Decoder struct {
	*Undecodable
	Blobs *store.Container // of large messages
}

// decode decodes a message and fetches its blob if it has one. The error is a [wire.DamageError] if
// the message cannot be decoded. Any other error means that the blob could not be read.
func (c *Decoder) decode(ctx context.Context, d *inflight.Delivery) error {
	env, err := c.Read(ctx, d.Text())
	if err != nil {
		return err
	}
	d.SetEnvelope(env)
	if d.DequeueCount > 1 && !c.has(d.Queue.Name, d.ID()) {
		c.Log.Info("message redelivered after an earlier receive", d.Attrs("attempt", d.DequeueCount)...)
	}
	return nil
}

// Read decodes a message text and fetches its blob if it has one. It returns the same
// errors as decode.
func (c *Decoder) Read(ctx context.Context, text string) (*wire.Envelope, error) {
	env, err := wire.DecodeEnvelope(text)
	if err != nil {
		return nil, &wire.DamageError{Cause: err}
	}
	if name, batch := env.CompressedBlobName, env.Batch; name != "" {
		content, err := c.Blobs.Read(ctx, name)
		if store.IsNotFound(err) {
			return nil, &wire.DamageError{Cause: fmt.Errorf("fetch large message %s: %w", name, errBlobGone)}
		}
		if err != nil {
			return nil, fmt.Errorf("fetch large message: %w", err)
		}
		if env, err = wire.DecodeEnvelopeJSON(content); err != nil {
			return nil, &wire.DamageError{Cause: fmt.Errorf("large message %s: %w", name, err)}
		}
		env.Batch = batch
	}
	if env.Message == nil {
		return nil, &wire.DamageError{Cause: errors.New("it has no task message")}
	}
	return env, nil
}
