package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/appendblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

// AppendBlob is an append blob of a container. Each method sends one request, because only the caller
// can decide whether it may be repeated.
type AppendBlob struct {
	Name   string
	client *appendblob.Client
}

// AppendBlob returns the append blob with the given name. The blob need not exist.
func (s *Container) AppendBlob(name string) *AppendBlob {
	return &AppendBlob{Name: name, client: s.Client.NewAppendBlobClient(name)}
}

// InfiniteLease is the duration of a lease that does not expire.
const InfiniteLease time.Duration = -time.Second

// AnyPosition appends at the end of the blob, whatever its length is.
const AnyPosition = -1

// Create creates an empty blob and returns its ETag. If the blob exists, [IsConflict] is true for the
// error.
func (b *AppendBlob) Create(ctx context.Context, metadata map[string]string) (etag string, err error) {
	options := &appendblob.CreateOptions{
		HTTPHeaders: BlobHeaders, Metadata: map[string]*string{},
		AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
		},
	}
	for key, value := range metadata {
		options.Metadata[key] = &value
	}
	resp, err := b.client.Create(ctx, options)
	return string(Value(resp.ETag)), err
}

// Append appends a block under a lease. The length of the blob must be position. Append returns the
// position of the block, and the number of blocks including it.
func (b *AppendBlob) Append(ctx context.Context, block []byte, leaseID string, position int64) (at int64, blocks int, err error) {
	options := &appendblob.AppendBlockOptions{
		AccessConditions: &blob.AccessConditions{LeaseAccessConditions: &blob.LeaseAccessConditions{LeaseID: &leaseID}},
	}
	if position != AnyPosition {
		options.AppendPositionAccessConditions = &appendblob.AppendPositionAccessConditions{AppendPosition: &position}
	}
	resp, err := b.client.AppendBlock(ctx, streaming.NopCloser(bytes.NewReader(block)), options)
	if err != nil {
		return 0, 0, err
	}
	at, _ = strconv.ParseInt(Value(resp.BlobAppendOffset), 10, 64)
	return at, int(Value(resp.BlobCommittedBlockCount)), nil
}

// AppendTo appends a block to an append blob without a lease, and returns the number of blocks. If the
// response to an attempt is lost, the blob may contain the block twice. If the blob does not exist,
// [IsBlobGone] is true for the error.
func (s *Container) AppendTo(ctx context.Context, name string, block []byte) (blocks int, err error) {
	err = Retry(ctx, "append to blob "+s.Name+"/"+name, func(ctx context.Context) error {
		resp, err := s.Client.NewAppendBlobClient(name).AppendBlock(ctx, streaming.NopCloser(bytes.NewReader(block)), nil)
		blocks = int(Value(resp.BlobCommittedBlockCount))
		return err
	})
	return blocks, err
}

// ReplaceAppendBlob creates an empty append blob and replaces any blob with this name.
func (s *Container) ReplaceAppendBlob(ctx context.Context, name string, metadata map[string]string) error {
	options := &appendblob.CreateOptions{HTTPHeaders: BlobHeaders, Metadata: map[string]*string{}}
	for key, value := range metadata {
		options.Metadata[key] = &value
	}
	return Retry(ctx, "create blob "+s.Name+"/"+name, func(ctx context.Context) error {
		_, err := s.Client.NewAppendBlobClient(name).Create(ctx, options)
		return err
	})
}

// BlobPart is a part of a blob, with the properties of the blob.
type BlobPart struct {
	Content  []byte
	Size     int64 // size of the whole blob
	ETag     string
	Metadata map[string]string
}

// Read returns up to count bytes from offset, or all bytes from offset if count is 0. The service
// answers an offset at the end of the blob with status 416, except for offset 0. If the response is
// incomplete, Read returns the received bytes and an error.
func (b *AppendBlob) Read(ctx context.Context, offset, count int64) (BlobPart, error) {
	span := blob.HTTPRange{Offset: offset, Count: count}
	if offset == 0 {
		span.Count = 0 // no range is valid for an empty blob
	}
	resp, err := b.client.DownloadStream(ctx, &blob.DownloadStreamOptions{Range: span})
	if err != nil {
		return BlobPart{}, err
	}
	defer resp.Body.Close()
	part := BlobPart{Size: Value(resp.ContentLength), ETag: string(Value(resp.ETag)), Metadata: plain(resp.Metadata)}
	length := part.Size
	if count > 0 {
		length = min(length, count)
	}
	if _, size, found := strings.Cut(Value(resp.ContentRange), "/"); found {
		if part.Size, err = strconv.ParseInt(size, 10, 64); err != nil {
			return BlobPart{}, err
		}
	}
	part.Content = make([]byte, length)
	n, err := io.ReadFull(resp.Body, part.Content)
	part.Content = part.Content[:n]
	return part, err
}

// errReplaced means that the blob was deleted and created again during a download.
var errReplaced = errors.New("the blob was replaced during the download")

// Download is [AppendBlob.Read] with retries. After an incomplete response it continues at the next
// byte; an attempt that returns bytes does not count as failed. After an error it returns the received
// bytes.
func (b *AppendBlob) Download(ctx context.Context, offset, count int64) (got BlobPart, err error) {
	for {
		have := int64(len(got.Content))
		replaced := false
		err = Retry(ctx, "read blob "+b.Name, func(ctx context.Context) error {
			rest := count
			if count > 0 {
				rest -= have
			}
			part, err := b.Read(ctx, offset+have, rest)
			switch {
			case have == 0:
				got = part
			case len(part.Content) > 0:
				replaced = !maps.Equal(part.Metadata, got.Metadata)
				got.Content = append(got.Content, part.Content...)
			}
			if len(part.Content) > 0 {
				return nil
			}
			return err
		})
		all := got.Size - offset
		if count > 0 {
			all = min(all, count)
		}
		switch {
		case replaced:
			return BlobPart{}, errReplaced
		case err != nil || int64(len(got.Content)) >= all:
			return got, err
		}
	}
}

// plain returns metadata with keys in lower case, because HTTP headers do not preserve case.
func plain(metadata map[string]*string) map[string]string {
	m := make(map[string]string, len(metadata))
	for key, value := range metadata {
		m[strings.ToLower(key)] = Value(value)
	}
	return m
}

// Remove deletes the blob. If leaseID or etag is not empty, the blob must have this lease or ETag.
func (b *AppendBlob) Remove(ctx context.Context, leaseID, etag string) error {
	conditions := &blob.AccessConditions{ModifiedAccessConditions: ifMatch(etag)}
	if leaseID != "" {
		conditions.LeaseAccessConditions = &blob.LeaseAccessConditions{LeaseID: &leaseID}
	}
	_, err := b.client.Delete(ctx, &blob.DeleteOptions{AccessConditions: conditions, DeleteSnapshots: withSnapshots})
	return err
}

func ifMatch(etag string) *blob.ModifiedAccessConditions {
	if etag == "" {
		return nil
	}
	return &blob.ModifiedAccessConditions{IfMatch: new(azcore.ETag(etag))}
}

// Acquire acquires a lease for 15 to 60 seconds, or [InfiniteLease]. If etag is not empty, the blob
// must have this ETag. If the lease with this ID is active already, Acquire renews it for d.
func (b *AppendBlob) Acquire(ctx context.Context, leaseID string, d time.Duration, etag string) error {
	return b.lease(leaseID, func(c *lease.BlobClient) error {
		_, err := c.AcquireLease(ctx, int32(d/time.Second), &lease.BlobAcquireOptions{ModifiedAccessConditions: ifMatch(etag)})
		return err
	})
}

// Renew renews a lease for its full duration.
func (b *AppendBlob) Renew(ctx context.Context, leaseID string) error {
	return b.lease(leaseID, func(c *lease.BlobClient) error {
		_, err := c.RenewLease(ctx, nil)
		return err
	})
}

// Change changes the ID of a lease. The lease may have the new ID already.
func (b *AppendBlob) Change(ctx context.Context, leaseID, to string) error {
	return b.lease(leaseID, func(c *lease.BlobClient) error {
		_, err := c.ChangeLease(ctx, to, nil)
		return err
	})
}

// Release ends a lease.
func (b *AppendBlob) Release(ctx context.Context, leaseID string) error {
	return b.lease(leaseID, func(c *lease.BlobClient) error {
		_, err := c.ReleaseLease(ctx, nil)
		return err
	})
}

// Break ends the current lease immediately, even if another process holds it. The blob must have the
// ETag.
func (b *AppendBlob) Break(ctx context.Context, etag string) error {
	return b.lease("", func(c *lease.BlobClient) error {
		_, err := c.BreakLease(ctx, &lease.BlobBreakOptions{BreakPeriod: new(int32(0)), ModifiedAccessConditions: ifMatch(etag)})
		return err
	})
}

func (b *AppendBlob) lease(id string, ask func(*lease.BlobClient) error) error {
	c, err := lease.NewBlobClient(b.client, &lease.BlobClientOptions{LeaseID: &id})
	if err != nil {
		return err
	}
	return ask(c)
}

// quoted returns an ETag in quotes, the form of conditions. Lists omit the quotes.
func quoted(etag string) string { return `"` + strings.Trim(etag, `"`) + `"` }

// BlobInfo is the entry of a blob in a list.
type BlobInfo struct {
	Name     string
	Size     int64
	ETag     string
	Leased   bool
	Changed  time.Time
	Metadata map[string]string
}

// ListInfo lists the blobs with the given name prefix, ordered by name. pages is the number of
// requests; a list of several pages is not a consistent snapshot. If the container does not exist,
// [IsContainerMissing] is true for the error.
func (s *Container) ListInfo(ctx context.Context, prefix string) (blobs []BlobInfo, pages int, err error) {
	blobs, pages, _, err = s.list(ctx, prefix)
	return blobs, pages, err
}

// ListAt is [Container.ListInfo] that also returns the time of the list by the service's clock.
func (s *Container) ListAt(ctx context.Context, prefix string) (blobs []BlobInfo, at time.Time, err error) {
	blobs, _, at, err = s.list(ctx, prefix)
	return blobs, at, err
}

func (s *Container) list(ctx context.Context, prefix string) (blobs []BlobInfo, pages int, at time.Time, err error) {
	options := &container.ListBlobsFlatOptions{Prefix: &prefix, Include: container.ListBlobsInclude{Metadata: true}}
	for {
		var page container.ListBlobsFlatResponse
		err := Retry(ctx, "list blobs of "+s.Name, func(ctx context.Context) (err error) {
			page, err = s.Client.NewListBlobsFlatPager(options).NextPage(ctx)
			return err
		})
		pages++
		if at.IsZero() {
			at = Value(page.Date)
		}
		if err != nil || page.Segment == nil {
			return blobs, pages, at, err
		}
		for _, item := range page.Segment.BlobItems {
			if isDirectory(item) {
				continue
			}
			state := Value(item.Properties.LeaseState)
			blobs = append(blobs, BlobInfo{
				Name: Value(item.Name), Size: Value(item.Properties.ContentLength), ETag: quoted(string(Value(item.Properties.ETag))),
				Leased:  state == lease.StateTypeLeased || state == lease.StateTypeBreaking,
				Changed: Value(item.Properties.LastModified), Metadata: plain(item.Metadata),
			})
		}
		if Value(page.NextMarker) == "" {
			return blobs, pages, at, nil
		}
		options.Marker = page.NextMarker
	}
}
