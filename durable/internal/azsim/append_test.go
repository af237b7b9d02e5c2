package azsim_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// blobs returns a worker's client for a container that it creates.
func blobs(t *testing.T, a *azsim.Account, w *azsim.Worker) *container.Client {
	t.Helper()
	options := azcore.ClientOptions{Transport: w, Retry: policy.RetryOptions{MaxRetries: -1}}
	c, err := container.NewClientFromConnectionString(a.ConnectionString(), "hub-log", &container.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func create(t *testing.T, c *container.Client, name string) *appendblob.Client {
	t.Helper()
	b := c.NewAppendBlobClient(name)
	if _, err := b.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return b
}

func add(t *testing.T, b *appendblob.Client, text string) error {
	t.Helper()
	_, err := b.AppendBlock(t.Context(), streaming.NopCloser(strings.NewReader(text)), nil)
	return err
}

// Appended blocks contain checksums over GUIDs and times. They must influence neither the time
// of the request nor its fault.
func TestAppendBlob_ContentDoesNotAffectTheTrace(t *testing.T) {
	trace := func(texts ...string) (asked string) {
		synctest.Test(t, func(t *testing.T) {
			a := azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: time.Second})
			defer a.End()
			c := blobs(t, a, a.Worker("w"))
			b := create(t, c, "log")
			for _, text := range texts {
				if err := add(t, b, text); err != nil {
					t.Fatal(err)
				}
				if _, err := c.NewBlockBlobClient("base").Upload(t.Context(), streaming.NopCloser(strings.NewReader("\x00"+text)), nil); err != nil {
					t.Fatal(err)
				}
			}
			asked = a.Trace()
		})
		return asked
	}
	first, second := trace("one", "two"), trace("other", "texts")
	if first != second {
		t.Errorf("the traces differ:\n%s\n%s", first, second)
	}
	if !strings.Contains(first, "CreateAppendBlob") || strings.Count(first, "AppendBlock") != 2 {
		t.Errorf("trace\n%s\nwant one CreateAppendBlob and two AppendBlocks", first)
	}
}

// A skewed clock changes no times in a body that has lengths and checksums.
func TestAppendBlob_IsNotChangedByASkewedClock(t *testing.T) {
	a := azsim.New(azsim.Config{})
	w := a.Worker("w")
	w.Skew(time.Hour)
	const frame = "\x00\x00\x00\x182026-01-02T03:04:05Z"
	if err := add(t, create(t, blobs(t, a, w), "log"), frame); err != nil {
		t.Fatal(err)
	}
	if got := string(a.Blobs()[0].Content); got != frame {
		t.Errorf("content %q; want %q", got, frame)
	}
}

// A loose account may end pages anywhere, but a list still returns each blob once.
func TestAccount_LooseListsFindEveryBlobOnce(t *testing.T) {
	a := azsim.New(azsim.Config{Seed: 3, Loose: true})
	c := blobs(t, a, a.Worker("w"))
	for _, name := range []string{"p00/log-1", "p00/log-2", "p00/log-3", "p00/log-4"} {
		create(t, c, name)
	}
	short := 0
	for range 50 {
		var names strings.Builder
		pages := 0
		for pager := c.NewListBlobsFlatPager(nil); pager.More(); pages++ {
			page, err := pager.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range page.Segment.BlobItems {
				names.WriteString(*b.Name + " ")
			}
		}
		if pages > 1 {
			short++
		}
		if want := "p00/log-1 p00/log-2 p00/log-3 p00/log-4 "; names.String() != want {
			t.Fatalf("blobs %s; want each once", names.String())
		}
	}
	if short == 0 {
		t.Error("no page was short")
	}
}

func TestRestore_KeepsTheContentAndDropsTheLeases(t *testing.T) {
	a := azsim.New(azsim.Config{})
	b := create(t, blobs(t, a, a.Worker("w")), "log")
	if err := add(t, b, "text"); err != nil {
		t.Fatal(err)
	}
	l, err := lease.NewBlobClient(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.AcquireLease(t.Context(), -1, nil); err != nil {
		t.Fatal(err)
	}
	before, err := b.GetProperties(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Restore("")
	after, err := b.GetProperties(t.Context(), nil)
	if err != nil || *after.LeaseState != lease.StateTypeAvailable || *after.ETag == *before.ETag || string(a.Blobs()[0].Content) != "text" {
		t.Errorf("%v, lease %s, ETag %s, formerly %s; want the content, no lease and a new ETag", err, *after.LeaseState, *after.ETag, *before.ETag)
	}
}
