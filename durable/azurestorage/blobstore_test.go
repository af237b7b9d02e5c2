package azurestorage

import (
	"context"
	"testing"
	"time"
)

func TestBlobStore_WaitsWhileTooMuchIsBeingDownloaded(t *testing.T) {
	h := openHub(t, testConfig(t))
	if err := h.largeMessages.write(t.Context(), "blob", []byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := downloading.Acquire(t.Context(), 2*maxDecompressed); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	text, err := h.largeMessages.read(ctx, "blob")
	downloading.Release(2 * maxDecompressed)
	if err == nil {
		t.Errorf("with no room it was read: %q", text)
	}
	if text, err = h.largeMessages.read(t.Context(), "blob"); err != nil || string(text) != "text" {
		t.Errorf("with room: %q, %v", text, err)
	}
}
