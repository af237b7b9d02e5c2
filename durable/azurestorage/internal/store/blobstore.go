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

// Container is one container of the hub. Text is compressed in it.
type Container struct {
	Name   string
	URL    string // the container's address
	Client *container.Client
}

// NewContainer returns the container with the name, which need not exist. endpoint is the
// address of the blob service.
func NewContainer(service *azblob.Client, endpoint, name string) *Container {
	return &Container{Name: name, URL: endpoint + "/" + name, Client: service.ServiceClient().NewContainerClient(name)}
}

// Create makes the container if it is not there.
func (s *Container) Create(ctx context.Context) error {
	return retryCreation(ctx, "create container "+s.Name, func(ctx context.Context) error {
		_, err := s.Client.Create(ctx, nil)
		return ignoreExisting(err)
	})
}

// BreakLease ends the lease on the container at once, whichever process has it.
func (s *Container) BreakLease(ctx context.Context) error {
	c, err := lease.NewContainerClient(s.Client, nil)
	if err != nil {
		return err
	}
	_, err = c.BreakLease(ctx, &lease.ContainerBreakOptions{BreakPeriod: new(int32(0))})
	return Ignore(err, http.StatusConflict) // it has run out
}

// CreateBlob writes a blob as it is, unless it is there already.
func (s *Container) CreateBlob(ctx context.Context, name string, content []byte) error {
	return Retry(ctx, "create blob "+s.Name+"/"+name, func(ctx context.Context) error {
		_, err := s.Client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{
			HTTPHeaders: Octets,
			AccessConditions: &blob.AccessConditions{
				ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
			},
		})
		return Ignore(ignoreExisting(err), http.StatusPreconditionFailed)
	})
}

// ReplaceBlob overwrites a blob that must have the ETag. [IsConflict] is true of the error if it
// has another, also if an earlier attempt of this call succeeded without an answer.
func (s *Container) ReplaceBlob(ctx context.Context, name string, content []byte, etag string) error {
	return Retry(ctx, "replace blob "+s.Name+"/"+name, func(ctx context.Context) error {
		_, err := s.Client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{
			HTTPHeaders: Octets, AccessConditions: &blob.AccessConditions{ModifiedAccessConditions: ifMatch(etag)},
		})
		return err
	})
}

// Write compresses text into a blob. The container comes to be with the first
// blob (DurableTask.AzureStorage/MessageManager.cs, UploadToBlobAsync).
func (s *Container) Write(ctx context.Context, name string, text []byte) error {
	content, err := wire.Compress(text)
	if err != nil {
		return err
	}
	upload := func(ctx context.Context) error {
		_, err := s.Client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)),
			&blockblob.UploadOptions{HTTPHeaders: Octets})
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

// Read returns the text that write put into a blob.
func (s *Container) Read(ctx context.Context, name string) (text []byte, err error) {
	return s.ReadUpTo(ctx, name, wire.MaxDecompressed)
}

// errLongText says that a blob has more text than was asked for.
var errLongText = errors.New("the text is longer than wanted")

// ReadUpTo is read of a text that is wanted if it has no more bytes than limit. Of another
// it reads little, and returns errLongText.
func (s *Container) ReadUpTo(ctx context.Context, name string, limit int64) (text []byte, err error) {
	isLong := func(n int64) bool { return limit < wire.MaxDecompressed && n > limit }
	var content []byte
	var long bool
	var held int64
	defer func() { Downloading.Release(held) }()
	err = Retry(ctx, "read blob "+s.Name+"/"+name, func(ctx context.Context) error {
		resp, err := s.Client.NewBlobClient(name).DownloadStream(ctx, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if long = isLong(Value(resp.ContentLength)); long {
			return nil
		}
		size := int64(wire.MaxDecompressed) // if the answer does not say
		if resp.ContentLength != nil {
			size = min(*resp.ContentLength, size)
		}
		Downloading.Release(held)
		held = 0
		if err := Downloading.Acquire(ctx, size); err != nil {
			return fmt.Errorf("wait for other blobs to be downloaded: %w", err)
		}
		held = size
		content, err = io.ReadAll(io.LimitReader(resp.Body, size))
		return err
	})
	if err == nil && (long || isLong(wire.TextSize(content))) {
		err = errLongText
	}
	if err != nil {
		return nil, err
	}
	if text, err = Unpack(ctx, content); err != nil {
		return nil, fmt.Errorf("read blob %s/%s: %w", s.Name, name, err)
	}
	return text, nil
}

// errCut says that an answer ended in the middle.
var errCut = errors.New("the answer was cut off")

// ReadAt fills p with what a blob has from an offset on. The error wraps
// [io.ErrUnexpectedEOF] if the blob is shorter.
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
			return errCut
		}
		return err
	})
	if err == nil && isShort {
		return fmt.Errorf("%s at %d: %w", what, offset, io.ErrUnexpectedEOF)
	}
	return err
}

// ReadPart reads a part of a blob as it is, see [AppendBlob.Download].
func (s *Container) ReadPart(ctx context.Context, name string, offset, count int64) (BlobPart, error) {
	return s.AppendBlob(name).Download(ctx, offset, count)
}

// Delete deletes the container with all blobs.
func (s *Container) Delete(ctx context.Context) error {
	return Retry(ctx, "delete container "+s.Name, func(ctx context.Context) error {
		_, err := s.Client.Delete(ctx, nil)
		return err
	})
}

// Remove deletes a blob if it is there.
func (s *Container) Remove(ctx context.Context, name string) error {
	return Retry(ctx, "delete blob "+s.Name+"/"+name, func(ctx context.Context) error {
		_, err := s.Client.NewBlobClient(name).Delete(ctx, &blob.DeleteOptions{DeleteSnapshots: withSnapshots})
		return Ignore(err, http.StatusNotFound)
	})
}

// withSnapshots deletes a blob together with its snapshots. Without it, the service refuses to
// delete a blob that has any.
var withSnapshots = new(blob.DeleteSnapshotsOptionTypeInclude)

// isDirectory reports whether an entry of a flat list is a directory. Accounts with a
// hierarchical namespace list directories among the blobs.
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

// Octets is the content type of blobs.
var Octets = &blob.HTTPHeaders{BlobContentType: new("application/octet-stream")}

// Unpacking bounds the bytes of text that all hubs of the process unpack at a time.
var Unpacking = semaphore.NewWeighted(2 * wire.MaxDecompressed)

// Downloading bounds the bytes of packed blobs that all hubs of the process have at a
// time. Acquire it before the room for unpacking, never after, so that no two wait for each other.
var Downloading = semaphore.NewWeighted(2 * wire.MaxDecompressed)

// Unpack is [wire.Decompress] of a blob that another program may have written. It waits while
// too much is being unpacked, and fails if there is more text than the blob says.
func Unpack(ctx context.Context, data []byte) ([]byte, error) {
	size := min(wire.TextSize(data), wire.MaxDecompressed)
	if err := Unpacking.Acquire(ctx, size); err != nil {
		return nil, fmt.Errorf("wait for other blobs to be unpacked: %w", err)
	}
	defer Unpacking.Release(size)
	text, err := wire.DecompressUpTo(data, size)
	if err != nil {
		return nil, &wire.DamageError{Cause: err}
	}
	return text, nil
}

// List returns the names that begin with prefix and have no slash after that.
func (s *Container) List(ctx context.Context, prefix string) (names []string, err error) {
	options := &container.ListBlobsHierarchyOptions{Prefix: &prefix}
	for {
		var page container.ListBlobsHierarchyResponse
		err := Retry(ctx, "list blobs of "+s.Name, func(ctx context.Context) (err error) {
			page, err = s.Client.NewListBlobsHierarchyPager("/", options).NextPage(ctx)
			return Ignore(err, http.StatusNotFound) // the container comes to be with the first blob
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
	return Each(ctx, blobDeletesAtOnce, names, func(ctx context.Context, _ int, name string) error { return s.Remove(ctx, name) })
}

// blobDeletesAtOnce is how many blobs of a list are deleted at a time.
const blobDeletesAtOnce = 16
