package differential_test

import (
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

var ifNew = &blockblob.UploadOptions{AccessConditions: &blob.AccessConditions{
	ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
}}

func ifMatches(etag string) *blockblob.UploadOptions {
	return &blockblob.UploadOptions{AccessConditions: &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: new(azcore.ETag(etag))},
	}}
}

func withLease(id string) *blockblob.UploadOptions {
	return &blockblob.UploadOptions{AccessConditions: &blob.AccessConditions{
		LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &id},
	}}
}

// listBlobs lists the blobs of a container: flat, by folder and in pages.
func listBlobs(ctx context.Context, a *account, name string) {
	c := a.blobs.ServiceClient().NewContainerClient(name)
	for pages := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{MaxResults: new(int32(2))}); pages.More(); {
		page, err := pages.NextPage(ctx)
		a.note("list", err)
		if err != nil {
			break
		}
		for _, b := range page.Segment.BlobItems {
			a.note("list", nil, *b.Name, *b.Properties.ContentLength, *b.Properties.LeaseState, *b.Properties.LeaseStatus)
		}
	}
	for _, prefix := range []string{"", "i1/", "i1/message-", "nothing"} {
		pages := c.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{Prefix: &prefix})
		page, err := pages.NextPage(ctx)
		a.note("list "+prefix, err)
		if err != nil {
			continue
		}
		for _, p := range page.Segment.BlobPrefixes {
			a.note("folder", nil, *p.Name)
		}
		for _, b := range page.Segment.BlobItems {
			a.note("blob", nil, *b.Name)
		}
	}
}

func leaseScript(ctx context.Context, a *account, name string) {
	_, err := a.blobs.CreateContainer(ctx, name, nil)
	a.note("create", err)
	c := a.blobs.ServiceClient().NewContainerClient(name)
	b := c.NewBlockBlobClient("default/control-00")
	write := func(step string, o *blockblob.UploadOptions) {
		_, err := b.Upload(ctx, streaming.NopCloser(strings.NewReader("x")), o)
		a.note(step, err)
	}
	client := func(id string) *lease.BlobClient {
		l, err := lease.NewBlobClient(b, &lease.BlobClientOptions{LeaseID: &id})
		a.note("client", err)
		return l
	}
	mine, others := client(first), client(second)
	_, err = mine.AcquireLease(ctx, 30, nil)
	a.note("acquire what is not there", err)
	write("write", nil)
	_, err = mine.RenewLease(ctx, nil)
	a.note("renew what was not acquired", err)
	for _, seconds := range []int32{14, 61, 30, 30} {
		_, err = mine.AcquireLease(ctx, seconds, nil)
		a.note("acquire", err)
	}
	_, err = others.AcquireLease(ctx, 30, nil)
	a.note("acquire what another has", err)
	_, err = others.RenewLease(ctx, nil)
	a.note("renew another's", err)
	_, err = others.ReleaseLease(ctx, nil)
	a.note("release another's", err)
	write("write without the lease", nil)
	write("write with another lease", withLease(second))
	write("write with the lease", withLease(first))
	_, err = a.blobs.DeleteBlob(ctx, name, "default/control-00", nil)
	a.note("delete without the lease", err)
	_, err = mine.RenewLease(ctx, nil)
	a.note("renew", err)
	props, err := b.GetProperties(ctx, nil)
	a.note("properties", err, *props.LeaseState, *props.LeaseStatus, *props.LeaseDuration)
	_, err = mine.ChangeLease(ctx, second, nil)
	a.note("change", err)
	_, err = client(first).ReleaseLease(ctx, nil)
	a.note("release by the old ID", err)
	_, err = others.ReleaseLease(ctx, nil)
	a.note("release", err)
	_, err = others.ReleaseLease(ctx, nil)
	a.note("release again", err)
	_, err = others.RenewLease(ctx, nil)
	a.note("renew what was released", err)
	write("write with a lease that is not there", withLease(second))
	_, err = mine.AcquireLease(ctx, -1, nil)
	a.note("acquire for ever", err)
	_, err = mine.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32(0))})
	a.note("break", err)
	_, err = client(first).RenewLease(ctx, nil)
	a.note("renew what is broken", err)
	props, err = b.GetProperties(ctx, nil)
	a.note("properties of what is broken", err, *props.LeaseState, *props.LeaseStatus)

	whole, err := lease.NewContainerClient(c, &lease.ContainerClientOptions{LeaseID: new(first)})
	a.note("client of the container", err)
	_, err = whole.AcquireLease(ctx, 60, nil)
	a.note("acquire the container", err)
	_, err = whole.RenewLease(ctx, nil)
	a.note("renew the container", err)
	_, err = c.Delete(ctx, nil)
	a.note("delete a leased container", err)
	_, err = whole.ReleaseLease(ctx, nil)
	a.note("release the container", err)
	_, err = c.Delete(ctx, nil)
	a.note("delete the container", err)
}
