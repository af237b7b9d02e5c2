package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"golang.org/x/sync/semaphore"
)

// Container is a blob container of a task hub. [Container.Write] compresses text.
type Container struct {
	Name   string
	URL    string // URL of the container
	Client *container.Client
}

// NewContainer returns the container with the given name, which need not exist. endpoint is the URL of
// the blob service.
func NewContainer(service *azblob.Client, endpoint, name string) *Container {
	return &Container{Name: name, URL: endpoint + "/" + name, Client: service.ServiceClient().NewContainerClient(name)}
}

// Create creates the container if it does not exist.
func (s *Container) Create(ctx context.Context) error {
	return retryCreation(ctx, "create container "+s.Name, func(ctx context.Context) error {
		_, err := s.Client.Create(ctx, nil)
		return ignoreExisting(err)
	})
}

// BreakLease ends the current lease on the container immediately, even if another process holds it.
func (s *Container) BreakLease(ctx context.Context) error {
	c, err := lease.NewContainerClient(s.Client, nil)
	if err != nil {
		return err
	}
	_, err = c.BreakLease(ctx, &lease.ContainerBreakOptions{BreakPeriod: new(int32(0))})
	return Ignore(err, http.StatusConflict) // no lease is active
}

// CreateBlob writes an uncompressed blob, unless it exists.
func (s *Container) CreateBlob(ctx context.Context, name string, content []byte) error {
	return Retry(ctx, "create blob "+s.Name+"/"+name, func(ctx context.Context) error {
		_, err := s.Client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{
			HTTPHeaders: BlobHeaders,
			AccessConditions: &blob.AccessConditions{
				ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
			},
		})
		return Ignore(ignoreExisting(err), http.StatusPreconditionFailed)
	})
}

// ReplaceBlob overwrites a blob that has the given ETag. If it has another ETag, [IsConflict] is true
// for the error. This is also the case if the response to a successful attempt of the same call was
// lost.
func (s *Container) ReplaceBlob(ctx context.Context, name string, content []byte, etag string) error {
	return Retry(ctx, "replace blob "+s.Name+"/"+name, func(ctx context.Context) error {
		_, err := s.Client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{
			HTTPHeaders: BlobHeaders, AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: ifMatch(etag)},
		})
		return err
	})
}

// Write compresses text into a blob. It creates the container with the first blob
// (DurableTask.AzureStorage/MessageManager.cs, UploadToBlobAsync).
func (s *Container) Write(ctx context.Context, name string, text []byte) error {
	content, err := wire.Compress(text)
	if err != nil {
		return err
	}
	upload := func(ctx context.Context) error {
		_, err := s.Client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)),
			&blockblob.UploadOptions{HTTPHeaders: BlobHeaders})
		return err
	}
	what := "write blob " + s.Name + "/" + name
	err = Retry(ctx, what, upload)
	if CodeOf(err) != codeContainerNotFound {
		return err
	}
	if err := s.Create(ctx); err != nil {
		return err
	}
	return Retry(ctx, what, upload)
}

// Read returns the text in a blob that [Container.Write] has written.
func (s *Container) Read(ctx context.Context, name string) (text []byte, err error) {
	return s.ReadUpTo(ctx, name, wire.MaxDecompressed)
}

// errTextTooLong means that a blob contains more text than the caller accepts.
var errTextTooLong = errors.New("the text exceeds the requested size")

// ReadUpTo returns the text in a blob if it has at most limit bytes. Otherwise it returns
// errTextTooLong, without a download of the whole blob if possible.
func (s *Container) ReadUpTo(ctx context.Context, name string, limit int64) (text []byte, err error) {
	isLong := func(n int64) bool { return limit < wire.MaxDecompressed && n > limit }
	var content []byte
	var long bool
	var held int64
	defer func() { DownloadLimit.Release(held) }()
	err = Retry(ctx, "read blob "+s.Name+"/"+name, func(ctx context.Context) error {
		resp, err := s.Client.NewBlobClient(name).DownloadStream(ctx, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if long = isLong(Value(resp.ContentLength)); long {
			return nil
		}
		size := int64(wire.MaxDecompressed) // if the response has no length
		if resp.ContentLength != nil {
			size = min(*resp.ContentLength, size)
		}
		DownloadLimit.Release(held)
		held = 0
		if err := DownloadLimit.Acquire(ctx, size); err != nil {
			return fmt.Errorf("wait for other blobs to be downloaded: %w", err)
		}
		held = size
		content, err = io.ReadAll(io.LimitReader(resp.Body, size))
		return err
	})
	if err == nil && (long || isLong(wire.TextSize(content))) {
		err = errTextTooLong
	}
	if err != nil {
		return nil, err
	}
	if text, err = Decompress(ctx, content); err != nil {
		return nil, fmt.Errorf("read blob %s/%s: %w", s.Name, name, err)
	}
	return text, nil
}

// errTruncated means that a response was incomplete.
var errTruncated = errors.New("the response is incomplete")

// ReadAt fills p with the content of a blob, starting at offset. If the blob is too short, the error
// wraps [io.ErrUnexpectedEOF].
func (s *Container) ReadAt(ctx context.Context, name string, offset int64, p []byte) error {
	what, isShort := "read blob "+s.Name+"/"+name, false
	err := Retry(ctx, what, func(ctx context.Context) error {
		resp, err := s.Client.NewBlobClient(name).DownloadStream(ctx, &blob.DownloadStreamOptions{
			Range: blob.HTTPRange{Offset: offset, Count: int64(len(p))},
		})
		if isShort = StatusOf(err) == http.StatusRequestedRangeNotSatisfiable; isShort || err != nil {
			return Ignore(err, http.StatusRequestedRangeNotSatisfiable)
		}
		defer resp.Body.Close()
		if isShort = Value(resp.ContentLength) < int64(len(p)); isShort {
			return nil
		}
		_, err = io.ReadFull(resp.Body, p)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return errTruncated
		}
		return err
	})
	if err == nil && isShort {
		return fmt.Errorf("%s at %d: %w", what, offset, io.ErrUnexpectedEOF)
	}
	return err
}

// ReadPart reads a part of a blob without decompressing it, see [AppendBlob.Download].
func (s *Container) ReadPart(ctx context.Context, name string, offset, count int64) (BlobPart, error) {
	return s.AppendBlob(name).Download(ctx, offset, count)
}

// Delete deletes the container with all its blobs.
func (s *Container) Delete(ctx context.Context) error {
	return Retry(ctx, "delete container "+s.Name, func(ctx context.Context) error {
		_, err := s.Client.Delete(ctx, nil)
		return err
	})
}

// Remove deletes a blob if it exists.
func (s *Container) Remove(ctx context.Context, name string) error {
	return Retry(ctx, "delete blob "+s.Name+"/"+name, func(ctx context.Context) error {
		_, err := s.Client.NewBlobClient(name).Delete(ctx, &blob.DeleteOptions{DeleteSnapshots: withSnapshots})
		return Ignore(err, http.StatusNotFound)
	})
}

// withSnapshots deletes a blob together with its snapshots. Without this option, the service rejects
// the deletion of a blob with snapshots.
var withSnapshots = new(blob.DeleteSnapshotsOptionTypeInclude)

// isDirectory reports whether an entry of a flat list is a directory. Accounts with a hierarchical
// namespace list directories as blobs.
func isDirectory(item *container.BlobItem) bool {
	if item.Properties != nil && Value(item.Properties.ResourceType) == "directory" {
		return true
	}
	for key, value := range item.Metadata {
		if strings.EqualFold(key, "hdi_isfolder") && strings.EqualFold(Value(value), "true") {
			return true
		}
	}
	return false
}

// BlobHeaders is the content type of all blobs.
var BlobHeaders = &blob.HTTPHeaders{BlobContentType: new("application/octet-stream")}

// DecompressionLimit limits the bytes of text that all hubs of the process decompress at the same
// time.
var DecompressionLimit = semaphore.NewWeighted(2 * wire.MaxDecompressed)

// DownloadLimit limits the bytes of compressed blobs that all hubs of the process hold at the same
// time. To prevent a deadlock, acquire DownloadLimit before DecompressionLimit.
var DownloadLimit = semaphore.NewWeighted(2 * wire.MaxDecompressed)

// Decompress decompresses a blob that another program may have written, as [wire.Decompress] does. It
// waits while too much text is being decompressed. It fails if the blob contains more text than its
// header says.
func Decompress(ctx context.Context, data []byte) ([]byte, error) {
	size := min(wire.TextSize(data), wire.MaxDecompressed)
	if err := DecompressionLimit.Acquire(ctx, size); err != nil {
		return nil, fmt.Errorf("wait for other blobs to be unpacked: %w", err)
	}
	defer DecompressionLimit.Release(size)
	text, err := wire.DecompressUpTo(data, size)
	if err != nil {
		return nil, &wire.DamageError{Cause: err}
	}
	return text, nil
}

// List returns the blob names that start with prefix and contain no slash after it.
func (s *Container) List(ctx context.Context, prefix string) (names []string, err error) {
	options := &container.ListBlobsHierarchyOptions{Prefix: &prefix}
	for {
		var page container.ListBlobsHierarchyResponse
		err := Retry(ctx, "list blobs of "+s.Name, func(ctx context.Context) (err error) {
			page, err = s.Client.NewListBlobsHierarchyPager("/", options).NextPage(ctx)
			return Ignore(err, http.StatusNotFound) // the first Write creates the container
		})
		if err != nil || page.Segment == nil {
			return names, err
		}
		for _, item := range page.Segment.BlobItems {
			if name := Value(item.Name); strings.HasPrefix(name, prefix) {
				names = append(names, name)
			}
		}
		if Value(page.NextMarker) == "" {
			return names, nil
		}
		options.Marker = page.NextMarker
	}
}

// RemoveAll deletes blobs.
func (s *Container) RemoveAll(ctx context.Context, names []string) error {
	return ForEach(ctx, blobDeletesAtOnce, names, func(ctx context.Context, _ int, name string) error { return s.Remove(ctx, name) })
}

// blobDeletesAtOnce is the maximum number of concurrent deletes of one call.
const blobDeletesAtOnce = 16
