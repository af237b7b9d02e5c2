package runs

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/google/uuid"
)

// lossy is a transport that loses or truncates a set number of responses.
type lossy struct {
	answers atomic.Int32
	cuts    atomic.Int32 // responses to truncate
}

func (l *lossy) Do(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultClient.Do(req)
	if err == nil && l.answers.Add(-1) >= 0 {
		resp.Body.Close()
		return nil, errFault
	}
	if err == nil && l.cuts.Add(-1) >= 0 {
		half := io.LimitReader(resp.Body, resp.ContentLength/2)
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(half, cutOff{}), resp.Body}
	}
	return resp, err
}

// cutOff is the end of a truncated response body.
type cutOff struct{}

func (cutOff) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// onAzurite returns a new container and its transport, which can lose responses.
func onAzurite(t testing.TB) (*store.Container, *lossy) {
	account, err := store.ParseAccount(azuritetest.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	transport := &lossy{}
	services, err := store.NewServices(account, account, transport, nil, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	c := store.NewContainer(services.Blobs, services.BlobEndpoint, "runs-"+uuid.NewString())
	if err := c.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c, transport
}

func TestBlobs_AreCreatedOnceAndReadInParts(t *testing.T) {
	t.Parallel()
	c, transport := onAzurite(t)
	files, ctx := Blobs(c, "p07/"), t.Context()
	content := []byte(strings.Repeat("0123456789", 1000))
	transport.answers.Store(1)
	if err := files.Create(ctx, "a", content); err != nil || transport.answers.Load() >= 0 {
		t.Fatalf("create with a lost response: %v", err)
	}
	if names, err := c.List(ctx, "p07/"); err != nil || !slices.Equal(names, []string{"p07/a"}) {
		t.Fatalf("got %q, %v", names, err)
	}
	for _, at := range []int64{0, 1, 5000, 9000, 9999} {
		p := make([]byte, min(1000, len(content)-int(at)))
		transport.answers.Store(1)
		if err := files.ReadAt(ctx, "a", at, p); err != nil || !bytes.Equal(p, content[at:][:len(p)]) {
			t.Errorf("read at %d: %q, %v", at, p, err)
		}
	}
	for _, at := range []int64{9500, 10_000, 20_000} {
		if err := files.ReadAt(ctx, "a", at, make([]byte, 1000)); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("read beyond the end, at %d: %v", at, err)
		}
	}
	p := make([]byte, 1000)
	transport.cuts.Store(1)
	if err := files.ReadAt(ctx, "a", 0, p); err != nil || !bytes.Equal(p, content[:1000]) {
		t.Errorf("read with a truncated response: %q, %v", p, err)
	}
	transport.cuts.Store(100)
	if err := files.ReadAt(ctx, "a", 0, p); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("read with truncated responses: %v; want an error other than ErrUnexpectedEOF", err)
	}
	transport.cuts.Store(0)
	if err := files.ReadAt(ctx, "b", 0, p); !errors.Is(err, ErrGone) {
		t.Errorf("read of a missing file: %v", err)
	}
	for range 2 {
		if err := files.Remove(ctx, "a"); err != nil {
			t.Error(err)
		}
	}
	if err := files.ReadAt(ctx, "a", 0, p); !errors.Is(err, ErrGone) {
		t.Errorf("read of a deleted file: %v", err)
	}
}

// The test stores a base with default sizes and a large record.
func TestBlobs_StoreABase(t *testing.T) {
	t.Parallel()
	c, _ := onAzurite(t)
	s := newStage(t, 1)
	cfg := s.config()
	cfg.Files, cfg.BlockSize, cfg.FileSize, cfg.Cache = Blobs(c, "p00/"), 0, 0, nil
	reopen := func() {
		t.Helper()
		var err error
		if s.Base, err = Open(t.Context(), cfg, s.manifest); err != nil {
			t.Fatal(err)
		}
	}
	reopen()
	for range 12 {
		if err := s.write(500, false); err != nil {
			t.Fatal(err)
		}
	}
	s.settle()
	if err := s.write(10, true); err != nil {
		t.Fatal(err)
	}
	l := s.layer(0)
	large := strings.Repeat("large", testshare.Amount(8, 2)<<20)
	l.Set(plain, "large", []byte(large))
	s.truth[s.last+1][plain]["large"] = large
	if err := s.Write(l, true); err != nil {
		t.Fatal(err)
	}
	s.last++
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reopen()
	if err := s.View(func(r logstore.Reader) error { return s.hasAll(r, s.truth[s.last]) }); err != nil {
		t.Fatal(strings.ReplaceAll(err.Error(), large, "…"))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
