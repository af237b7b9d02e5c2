package azsim

import (
	"cmp"
	"net/http"
	"strconv"
)

const (
	maxBlocks   = 50_000
	maxBlock    = 100 << 20
	maxOldBlock = 4 << 20      // for service versions before longBlocks
	longBlocks  = "2022-11-02" // a service version; versions are dates
)

// appendBlock appends to a blob. The order of its checks is the same as in Azurite.
func appendBlock(a blobService, b *blob, r *Request) *reply {
	longest := maxBlock
	if r.header.Get("x-ms-version") < longBlocks {
		longest = maxOldBlock
	}
	switch {
	case len(r.Body) > longest:
		return refuseBlob(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.")
	case len(r.Body) == 0:
		return refuseBlob(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: Content-Length")
	case b.kind != appendBlob:
		return refuseBlob(http.StatusConflict, "InvalidBlobType", "The blob type is invalid for this operation.")
	case b.blocks >= cmp.Or(a.cfg.MaxBlocks, maxBlocks):
		return refuseBlob(http.StatusConflict, "BlockCountExceedsLimit", "The committed block count cannot exceed the maximum limit of 50,000 blocks.")
	}
	if failure := matchBlob(b, r); failure != nil {
		return failure
	}
	if failure := b.lease.allowsWrite(r); failure != nil {
		return failure
	}
	position := strconv.Itoa(len(b.content))
	if wanted := r.header.Get("x-ms-blob-condition-appendpos"); wanted != "" && wanted != position {
		return refuseBlob(http.StatusPreconditionFailed, "AppendPositionConditionNotMet", "The append position condition specified was not met.")
	}
	if most, err := strconv.Atoi(r.header.Get("x-ms-blob-condition-maxsize")); err == nil && len(b.content)+len(r.Body) > most {
		return refuseBlob(http.StatusPreconditionFailed, "MaxBlobSizeConditionNotMet", "The max blob size condition specified was not met.")
	}
	b.content = append(b.content, r.Body...)
	b.blocks++
	b.stamp(a.tick())
	return newReply(http.StatusCreated, "ETag", b.etag, "Last-Modified", b.changed.Format(http.TimeFormat),
		"x-ms-blob-append-offset", position, "x-ms-blob-committed-block-count", strconv.Itoa(b.blocks), "x-ms-request-server-encrypted", "true")
}
