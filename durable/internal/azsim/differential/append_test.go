package differential_test

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/google/go-cmp/cmp"
)

// Lease IDs.
const first, second = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"

// appender records the results of operations on one append blob.
type appender struct {
	*account
	*appendblob.Client
}

func (a *account) appender(ctx context.Context, container, name string) appender {
	_, err := a.blobs.CreateContainer(ctx, container, nil)
	a.note("create the container", err)
	return appender{a, a.blobs.ServiceClient().NewContainerClient(container).NewAppendBlobClient(name)}
}

func (a appender) create(ctx context.Context, step string, c blob.AccessConditions) (etag azcore.ETag) {
	resp, err := a.Create(ctx, &appendblob.CreateOptions{AccessConditions: &c, Metadata: map[string]*string{"n": new("1")}})
	a.note(step, err, resp.ETag != nil, resp.LastModified != nil)
	if resp.ETag == nil {
		return ""
	}
	return *resp.ETag
}

// where is a condition of an append: the position, and the maximum length of the blob
// afterwards; -1 means none.
type where struct{ position, most int64 }

func anywhere() where { return where{-1, -1} }

func (a appender) add(ctx context.Context, step, text string, at where, c blob.AccessConditions) {
	o := &appendblob.AppendBlockOptions{AccessConditions: &c, AppendPositionAccessConditions: &appendblob.AppendPositionAccessConditions{}}
	if at.position >= 0 {
		o.AppendPositionAccessConditions.AppendPosition = &at.position
	}
	if at.most >= 0 {
		o.AppendPositionAccessConditions.MaxSize = &at.most
	}
	resp, err := a.AppendBlock(ctx, streaming.NopCloser(strings.NewReader(text)), o)
	if err != nil {
		a.note(step, err)
		return
	}
	a.note(step, nil, *resp.BlobAppendOffset, *resp.BlobCommittedBlockCount, resp.ETag != nil, resp.LastModified != nil)
}

func (a appender) read(ctx context.Context, step string, from, count int64, c blob.AccessConditions) {
	resp, err := a.DownloadStream(ctx, &blob.DownloadStreamOptions{Range: blob.HTTPRange{Offset: from, Count: count}, AccessConditions: &c})
	if err != nil {
		a.note(step, err)
		return
	}
	content, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	contentRange := ""
	if resp.ContentRange != nil {
		contentRange = *resp.ContentRange
	}
	a.note(step, err, string(content), *resp.ContentLength, contentRange, *resp.BlobType, resp.ETag != nil)
}

func (a appender) properties(ctx context.Context, step string) (azcore.ETag, lease.StateType) {
	resp, err := a.GetProperties(ctx, nil)
	if err != nil {
		a.note(step, err)
		return "", ""
	}
	a.note(step, nil, *resp.BlobType, *resp.ContentLength, *resp.BlobCommittedBlockCount, *resp.LeaseState, *resp.LeaseStatus, *resp.Metadata["N"])
	return *resp.ETag, *resp.LeaseState
}

func (a appender) remove(ctx context.Context, step string, c blob.AccessConditions) {
	_, err := a.Delete(ctx, &blob.DeleteOptions{AccessConditions: &c})
	a.note(step, err)
}

func (a appender) lease(id string) *lease.BlobClient {
	l, err := lease.NewBlobClient(a.Client, &lease.BlobClientOptions{LeaseID: &id})
	a.note("lease client", err)
	return l
}

func (a appender) acquire(ctx context.Context, step, id string, seconds int32) {
	resp, err := a.lease(id).AcquireLease(ctx, seconds, nil)
	a.note(step, err, resp.LeaseID != nil && *resp.LeaseID == id)
}

func (a appender) renew(ctx context.Context, step, id string) {
	resp, err := a.lease(id).RenewLease(ctx, nil)
	a.note(step, err, resp.LeaseID != nil && *resp.LeaseID == id)
}

func (a appender) breakAtOnce(ctx context.Context, step string) {
	resp, err := a.lease(second).BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32(0))})
	a.note(step, err)
	if err == nil {
		a.note(step, nil, *resp.LeaseTime)
	}
}

func ifNewBlob() blob.AccessConditions { return *ifNew.AccessConditions }

func ifMatch(etag azcore.ETag) blob.AccessConditions {
	return *ifMatches(string(etag)).AccessConditions
}

func leasedAs(id string) blob.AccessConditions { return *withLease(id).AccessConditions }

func appendScript(ctx context.Context, a *account, name string) {
	never := azcore.ETag(`"0x1"`)
	b := a.appender(ctx, name, "p00/log-0000000001")
	none := blob.AccessConditions{}
	b.add(ctx, "append to what is not there", "x", anywhere(), none)
	b.add(ctx, "append to what is not there, if it matches", "x", anywhere(), ifMatch(never))
	b.read(ctx, "read what is not there", 0, 0, none)
	b.read(ctx, "read what is not there, if it matches", 0, 0, ifMatch(never))
	b.remove(ctx, "delete what is not there", none)
	b.remove(ctx, "delete what is not there, if it matches", ifMatch(never))
	b.acquire(ctx, "acquire what is not there", first, 15)
	b.create(ctx, "create", ifNewBlob())
	b.create(ctx, "create again", ifNewBlob())
	b.properties(ctx, "properties of an empty one")
	b.read(ctx, "read an empty one", 0, 0, none)
	b.read(ctx, "read beyond the end of an empty one", 1, 0, none)

	b.add(ctx, "append", "01234", where{0, -1}, none)
	b.add(ctx, "append at a position that is taken", "x", where{0, -1}, none)
	b.add(ctx, "append beyond the end", "x", where{6, -1}, none)
	b.add(ctx, "append nothing", "", anywhere(), none)
	b.add(ctx, "append up to the limit", "56789", where{5, 10}, none)
	b.add(ctx, "append beyond the limit", "x", where{-1, 10}, none)
	b.add(ctx, "append anywhere", strings.Repeat("a", 5<<20), anywhere(), none)
	for _, span := range [][2]int64{{0, 3}, {3, 4}, {8, 4}, {10 + 5<<20 - 2, 10}, {10 + 5<<20 - 2, 0}, {10 + 5<<20 + 1, 0}, {10 + 5<<20 + 1, 5}} {
		b.read(ctx, "read a range", span[0], span[1], none)
	}
	etag, _ := b.properties(ctx, "properties")
	b.add(ctx, "append if it does not match", "x", anywhere(), ifMatch(never))
	b.add(ctx, "append if it matches", "x", anywhere(), ifMatch(etag))
	b.remove(ctx, "delete if it does not match any more", ifMatch(etag))
	b.read(ctx, "read if it does not match any more", 0, 1, ifMatch(etag))

	b.add(ctx, "append with a lease that is not there", "x", anywhere(), leasedAs(first))
	b.read(ctx, "read with a lease that is not there", 0, 1, leasedAs(first))
	_, err := b.lease(first).AcquireLease(ctx, 15, &lease.BlobAcquireOptions{ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: &etag}})
	b.note("acquire if it does not match any more", err)
	b.acquire(ctx, "acquire for too short", first, 14)
	b.acquire(ctx, "acquire for too long", first, 61)
	b.acquire(ctx, "acquire", first, 60)
	b.acquire(ctx, "acquire what another has", second, 60)
	b.add(ctx, "append without the lease", "x", anywhere(), none)
	b.add(ctx, "append with another lease", "x", anywhere(), leasedAs(second))
	b.add(ctx, "append with the lease at a position that is taken", "x", where{0, -1}, leasedAs(first))
	b.add(ctx, "append without the lease at a position that is taken", "x", where{0, -1}, none)
	b.add(ctx, "append with the lease", "x", anywhere(), leasedAs(first))
	b.read(ctx, "read without the lease", 0, 1, none)
	b.read(ctx, "read with another lease", 0, 1, leasedAs(second))
	b.read(ctx, "read with the lease", 0, 1, leasedAs(first))
	b.create(ctx, "create what is leased", none)
	b.create(ctx, "create what is leased if it is new", ifNewBlob())
	b.remove(ctx, "delete without the lease", none)
	b.remove(ctx, "delete with another lease", leasedAs(second))
	b.renew(ctx, "renew", first)
	b.renew(ctx, "renew another's", second)
	_, err = b.lease(first).ReleaseLease(ctx, nil)
	b.note("release", err)
	b.renew(ctx, "renew what is released", first)
	b.add(ctx, "append with a lease that is released", "x", anywhere(), leasedAs(first))

	b.breakAtOnce(ctx, "break what is released")
	b.acquire(ctx, "acquire for ever", first, -1)
	b.properties(ctx, "properties of what is leased")
	b.breakAtOnce(ctx, "break")
	b.breakAtOnce(ctx, "break again")
	b.properties(ctx, "properties of what is broken")
	b.add(ctx, "append with a broken lease", "x", anywhere(), leasedAs(first))
	b.renew(ctx, "renew what is broken", first)
	b.add(ctx, "append without the broken lease", "x", anywhere(), none)
	b.renew(ctx, "renew what is broken and changed", first)
	etag, _ = b.properties(ctx, "properties at the end")
	b.acquire(ctx, "acquire before it is deleted", second, -1)
	b.remove(ctx, "delete what is leased, if it matches", ifMatch(etag))
	b.breakAtOnce(ctx, "break before it is deleted")
	b.remove(ctx, "delete what was leased, if it matches", ifMatch(etag))
	b.remove(ctx, "delete again", none)

	block := a.blobs.ServiceClient().NewContainerClient(name).NewBlockBlobClient("p00/base-1")
	for range 2 {
		_, err := block.Upload(ctx, streaming.NopCloser(strings.NewReader("sorted")), ifNew)
		a.note("upload a block blob", err)
	}
	appender{a, a.blobs.ServiceClient().NewContainerClient(name).NewAppendBlobClient("p00/base-1")}.add(ctx, "append to a block blob", "x", anywhere(), none)
	for _, other := range []string{"p00/log-0000000002", "p00/log-0000000003", "p00/mail-0000000001", "p01/log-0000000001"} {
		b := a.appender(ctx, name, other)
		b.create(ctx, "create "+other, ifNewBlob())
		b.add(ctx, "append", other, anywhere(), none)
	}
	appender{a, a.blobs.ServiceClient().NewContainerClient(name).NewAppendBlobClient("p00/log-0000000003")}.acquire(ctx, "acquire", first, -1)
	listFlat(ctx, a, name, "p00/log-", 0)
	listFlat(ctx, a, name, "p00/", 2)
	listFlat(ctx, a, name, "p00/", 4)
	listFlat(ctx, a, name, "p02/", 1)
}

// listFlat lists blobs with their metadata and properties.
func listFlat(ctx context.Context, a *account, name, prefix string, most int32) {
	o := &container.ListBlobsFlatOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true}}
	if most > 0 {
		o.MaxResults = &most
	}
	for pages := a.blobs.ServiceClient().NewContainerClient(name).NewListBlobsFlatPager(o); pages.More(); {
		page, err := pages.NextPage(ctx)
		a.note("list "+prefix, err)
		if err != nil {
			return
		}
		for _, b := range page.Segment.BlobItems {
			p, metadata := b.Properties, ""
			for name, value := range b.Metadata {
				metadata += name + "=" + *value
			}
			resp, err := a.blobs.ServiceClient().NewContainerClient(name).NewBlobClient(*b.Name).GetProperties(ctx, &blob.GetPropertiesOptions{AccessConditions: new(ifMatch(*p.ETag))})
			a.note("properties if it matches the ETag of a list, which has no quotes", err, resp.ETag != nil && *resp.ETag != *p.ETag)
			a.note("list "+prefix, nil, *b.Name, *p.BlobType, *p.ContentLength, *p.LeaseState, *p.LeaseStatus, p.ETag != nil, p.LastModified != nil, p.CreationTime != nil, metadata)
		}
	}
}

// expiryScript waits until leases expire.
func expiryScript(ctx context.Context, a *account, name string) {
	none := blob.AccessConditions{}
	blobs := map[string]appender{}
	for _, what := range []string{"renewed", "written", "taken", "broken"} {
		b := a.appender(ctx, name, what)
		b.create(ctx, "create", none)
		b.acquire(ctx, "acquire", first, 15)
		blobs[what] = b
	}
	for _, what := range []string{"renewed", "written", "taken", "broken"} {
		for state := lease.StateTypeLeased; state == lease.StateTypeLeased; { // unrecorded: the number of attempts varies
			time.Sleep(100 * time.Millisecond) // real time: Azurite's leases expire in real time
			if resp, err := blobs[what].GetProperties(ctx, nil); err == nil {
				state = *resp.LeaseState
			}
		}
		blobs[what].properties(ctx, what)
		blobs[what].add(ctx, "append with a lease that ran out", "x", anywhere(), leasedAs(first))
	}
	b := blobs["renewed"]
	b.renew(ctx, "renew what ran out", first)
	b.add(ctx, "append with a lease that was renewed after it ran out", "x", anywhere(), leasedAs(first))
	b = blobs["written"]
	b.add(ctx, "append after a lease ran out", "x", anywhere(), none)
	b.renew(ctx, "renew what ran out and was written", first)
	b.acquire(ctx, "acquire what ran out and was written", first, 15)
	b = blobs["taken"]
	b.acquire(ctx, "acquire another's that ran out", second, 60)
	b.renew(ctx, "renew what another has by now", first)
	b.add(ctx, "append to what another has by now", "x", anywhere(), leasedAs(first))
	b.add(ctx, "append to what was another's", "x", anywhere(), leasedAs(second))
	b = blobs["broken"]
	b.breakAtOnce(ctx, "break what ran out")
	b.properties(ctx, "properties of what ran out and was broken")
	b.renew(ctx, "renew what ran out and was broken", first)
}

// Where Azurite differs from the service's documentation, the simulated account follows the
// documentation. If this test fails, Azurite has changed and the step can move to a script.
func TestAccount_FollowsTheDocumentationWhereAzuriteDiffers(t *testing.T) {
	azurite, container := azuritetest.Start(t), fmt.Sprint("documented", runNumber.Add(1))
	none := blob.AccessConditions{}
	for _, tt := range []struct {
		name               string
		step               func(context.Context, appender)
		azurite, simulated string
	}{
		{
			// "Get Blob", range: a range that starts at the end of the blob is invalid.
			"a read from exactly the end", func(ctx context.Context, a appender) { a.read(ctx, "step", 5, 0, none) },
			"step: 0 bytes 5-4/5 AppendBlob true", "step: 416 InvalidRange ",
		},
		{
			// "Put Blob", x-ms-lease-id: without an active lease with this ID, the write fails.
			"a blob that is created with a lease", func(ctx context.Context, a appender) {
				a.remove(ctx, "delete", none)
				a.create(ctx, "step", leasedAs(first))
			}, "step: true true", "step: 412 LeaseNotPresentWithBlobOperation false false",
		},
		{
			// "Lease Blob", x-ms-proposed-lease-id: must be a GUID, else 400.
			"a lease ID that is no GUID", func(ctx context.Context, a appender) { a.acquire(ctx, "step", "mine", 15) },
			"step: true", "step: 400 InvalidHeaderValue false",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sim := azsim.New(azsim.Config{Seed: 1})
			for want, a := range map[string]*account{
				tt.azurite: newAccount(t, azurite, nil), tt.simulated: newAccount(t, sim.ConnectionString(), sim.Worker("w")),
			} {
				b := a.appender(t.Context(), container, strings.ReplaceAll(tt.name, " ", "-"))
				b.create(t.Context(), "create", none)
				b.add(t.Context(), "append", "01234", anywhere(), none)
				tt.step(t.Context(), b)
				if got := a.notes[len(a.notes)-1]; got != want {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
}

// The leases expire in parallel, because Azurite needs real time for it.
func TestAccount_ExpiresLeasesLikeAzurite(t *testing.T) {
	t.Parallel()
	want, name := newAccount(t, azuritetest.Start(t), nil), fmt.Sprint("expiry", runNumber.Add(1))
	expiryScript(t.Context(), want, name)
	synctest.Test(t, func(t *testing.T) {
		sim := azsim.New(azsim.Config{Seed: 1})
		got := newAccount(t, sim.ConnectionString(), sim.Worker("w"))
		expiryScript(t.Context(), got, name)
		if diff := cmp.Diff(want.notes, got.notes); diff != "" {
			t.Errorf("answers (-Azurite +simulated):\n%s", diff)
		}
	})
}
