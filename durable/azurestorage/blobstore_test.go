package azurestorage

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

func TestBlobStore_LimitsConcurrentDownloads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		if err := h.largeMessages.Write(t.Context(), "blob", []byte("text")); err != nil {
			t.Fatal(err)
		}
		if err := store.DownloadLimit.Acquire(t.Context(), 2*wire.MaxDecompressed); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		text, err := h.largeMessages.Read(ctx, "blob")
		store.DownloadLimit.Release(2 * wire.MaxDecompressed)
		if err == nil {
			t.Errorf("Read returned %q while downloads are at their limit; want an error", text)
		}
		if text, err = h.largeMessages.Read(t.Context(), "blob"); err != nil || string(text) != "text" {
			t.Errorf("Read returned %q, %v; want the text", text, err)
		}
	})
}

// The size of each blob is limited, and so is the total of all concurrent ones.
func TestUnpack_LimitsConcurrentUnpacking(t *testing.T) {
	data, err := wire.Compress(make([]byte, 1<<20))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.DecompressionLimit.Acquire(t.Context(), 2*wire.MaxDecompressed); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = store.Decompress(ctx, data)
	store.DecompressionLimit.Release(2 * wire.MaxDecompressed)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("at the limit, Unpack returned %v; want it to wait until it is canceled", err)
	}
	if got, err := store.Decompress(t.Context(), data); err != nil || len(got) != 1<<20 {
		t.Errorf("Unpack returned %d bytes, %v; want all bytes", len(got), err)
	}
	binary.LittleEndian.PutUint32(data[len(data)-4:], 10)
	if got, err := store.Decompress(t.Context(), data); err == nil || !strings.Contains(err.Error(), "more than 10 bytes") {
		t.Errorf("a blob with more bytes than its header says: %d bytes, %v; want an error", len(got), err)
	}
}
