package azurestorage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
)

// blobStore is one container of the hub. Text is compressed in it.
type blobStore struct {
	name   string
	url    string // the container's address
	client *container.Client
}

func newBlobStore(service *azblob.Client, endpoint, name string) *blobStore {
	return &blobStore{name: name, url: endpoint + "/" + name, client: service.ServiceClient().NewContainerClient(name)}
}

// create makes the container if it is not there.
func (s *blobStore) create(ctx context.Context) error {
	return retry(ctx, "create container "+s.name, func(ctx context.Context) error {
		_, err := s.client.Create(ctx, nil)
		return ignoreExisting(err)
	})
}

// breakLease ends the lease on the container at once, whoever has it.
func (s *blobStore) breakLease(ctx context.Context) error {
	c, err := lease.NewContainerClient(s.client, nil)
	if err != nil {
		return err
	}
	_, err = c.BreakLease(ctx, &lease.ContainerBreakOptions{BreakPeriod: new(int32(0))})
	return ignore(err, http.StatusConflict) // it has run out
}

// createBlob writes a blob as it is, unless it is there already.
func (s *blobStore) createBlob(ctx context.Context, name string, content []byte) error {
	return retry(ctx, "create blob "+s.name+"/"+name, func(ctx context.Context) error {
		_, err := s.client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)), &blockblob.UploadOptions{
			HTTPHeaders: octets,
			AccessConditions: &blob.AccessConditions{
				ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: new(azcore.ETagAny)},
			},
		})
		return ignore(err, http.StatusConflict, http.StatusPreconditionFailed)
	})
}

// write compresses text into a blob. The container comes to be with the first
// blob (DurableTask.AzureStorage/MessageManager.cs, UploadToBlobAsync).
func (s *blobStore) write(ctx context.Context, name string, text []byte) error {
	content, err := compress(text)
	if err != nil {
		return err
	}
	upload := func(ctx context.Context) error {
		_, err := s.client.NewBlockBlobClient(name).Upload(ctx, streaming.NopCloser(bytes.NewReader(content)),
			&blockblob.UploadOptions{HTTPHeaders: octets})
		return err
	}
	what := "write blob " + s.name + "/" + name
	err = retry(ctx, what, upload)
	if codeOf(err) != codeContainerNotFound {
		return err
	}
	if err := s.create(ctx); err != nil {
		return err
	}
	return retry(ctx, what, upload)
}

// read returns the text that write put into a blob.
func (s *blobStore) read(ctx context.Context, name string) (text []byte, err error) {
	return s.readUpTo(ctx, name, maxDecompressed)
}

// errLongText says that a blob has more text than was asked for.
var errLongText = errors.New("the text is longer than wanted")

// readUpTo is read of a text that is wanted if it has no more bytes than limit. Of another
// it reads little, and returns errLongText.
func (s *blobStore) readUpTo(ctx context.Context, name string, limit int64) (text []byte, err error) {
	isLong := func(n int64) bool { return limit < maxDecompressed && n > limit }
	var content []byte
	var long bool
	var held int64
	defer func() { downloading.Release(held) }()
	err = retry(ctx, "read blob "+s.name+"/"+name, func(ctx context.Context) error {
		resp, err := s.client.NewBlobClient(name).DownloadStream(ctx, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if long = isLong(value(resp.ContentLength)); long {
			return nil
		}
		size := int64(maxDecompressed) // if the answer does not say
		if resp.ContentLength != nil {
			size = min(*resp.ContentLength, size)
		}
		downloading.Release(held)
		held = 0
		if err := downloading.Acquire(ctx, size); err != nil {
			return fmt.Errorf("wait for other blobs to be downloaded: %w", err)
		}
		held = size
		content, err = io.ReadAll(io.LimitReader(resp.Body, size))
		return err
	})
	if err == nil && (long || isLong(textSize(content))) {
		err = errLongText
	}
	if err != nil {
		return nil, err
	}
	if text, err = unpack(ctx, content); err != nil {
		return nil, fmt.Errorf("read blob %s/%s: %w", s.name, name, err)
	}
	return text, nil
}

// remove deletes a blob if it is there.
func (s *blobStore) remove(ctx context.Context, name string) error {
	return retry(ctx, "delete blob "+s.name+"/"+name, func(ctx context.Context) error {
		_, err := s.client.NewBlobClient(name).Delete(ctx, nil)
		return ignore(err, http.StatusNotFound)
	})
}

var octets = &blob.HTTPHeaders{BlobContentType: new("application/octet-stream")}
