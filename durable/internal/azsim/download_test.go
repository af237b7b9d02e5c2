package azsim_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

func TestDownload_ArrivesAtTheBandwidthAndEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := azsim.New(azsim.Config{Bandwidth: func(r azsim.Request) int { return map[bool]int{true: 100}[r.Operation == "GetBlob"] }})
		b := create(t, blobs(t, a, a.Worker("w")), "log")
		if err := add(t, b, strings.Repeat("x", 1000)); err != nil {
			t.Fatal(err)
		}
		read := func(within time.Duration) (int, error) {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			resp, err := b.DownloadStream(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			content, err := io.ReadAll(resp.Body)
			return len(content), err
		}
		began := time.Now()
		if n, err := read(time.Minute); n != 1000 || err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("read %d bytes in %v, %v; want 1000 in 10s", n, time.Since(began), err)
		}
		if n, err := read(5500 * time.Millisecond); n != 550 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read %d bytes, %v; want 550 and %v", n, err, context.DeadlineExceeded)
		}
	})
}

func TestDownload_IsCutOff(t *testing.T) {
	a := azsim.New(azsim.Config{Seed: 1, Decide: func(r azsim.Request) azsim.Fault {
		if r.Operation == "GetBlob" || string(r.Body) == "lost" {
			return azsim.Cut
		}
		return azsim.None
	}})
	b := create(t, blobs(t, a, a.Worker("w")), "log")
	if err := add(t, b, strings.Repeat("x", 1000)); err != nil {
		t.Fatal(err)
	}
	if err := add(t, b, "lost"); err == nil || len(a.Blobs()[0].Content) != 1004 {
		t.Errorf("append: %v, and the blob has %d bytes; want a lost answer and 1004", err, len(a.Blobs()[0].Content))
	}
	resp, err := b.DownloadStream(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if content, err := io.ReadAll(resp.Body); err == nil || len(content) == 0 || len(content) >= 1004 {
		t.Errorf("read %d bytes, %v; want some of 1004 and an error", len(content), err)
	}
}

func TestUpload_ArrivesAtTheBandwidthOrHasNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := azsim.New(azsim.Config{Bandwidth: func(r azsim.Request) int { return map[bool]int{true: 100}[r.Operation == "AppendBlock"] }})
		b := create(t, blobs(t, a, a.Worker("w")), "log")
		appendWithin := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := b.AppendBlock(ctx, streaming.NopCloser(strings.NewReader(strings.Repeat("x", 1000))), nil)
			return err
		}
		if err := appendWithin(9 * time.Second); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a transfer of 10s within 9s: %v; want %v", err, context.DeadlineExceeded)
		}
		began := time.Now()
		if err := appendWithin(time.Minute); err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("took %v, %v; want 10s", time.Since(began), err)
		}
		if found := a.Blobs(); len(found) != 1 || len(found[0].Content) != 1000 {
			t.Errorf("the account has %d blobs, want one of 1000 bytes", len(found))
		}
	})
}
