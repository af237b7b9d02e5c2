package azsim

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

type container struct {
	metadata http.Header
	blobs    map[string]*blob
	lease    lease
	etag     string
	changed  time.Time
}

type blob struct {
	name        string
	kind        string // BlockBlob or AppendBlob
	content     []byte
	blocks      int    // of an append blob
	md5         string // of a block blob
	contentType string
	metadata    http.Header
	etag        string
	created     time.Time
	changed     time.Time
	lease       lease
	snapshots   int
}

// The types of blobs.
const (
	blockBlob  = "BlockBlob"
	appendBlob = "AppendBlob"
)

func conditionNotMet() *reply {
	return refuseBlob(http.StatusPreconditionFailed, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
}

func refuseBlob(status int, code, message string) *reply {
	return refusal(BlobService, status, code, message)
}

// etagOf returns the ETag of a blob or a container that was changed at a time.
func etagOf(at time.Time) string { return fmt.Sprintf(`"0x%X"`, at.UnixNano()) }

// matchBlob checks the conditions of a request. It returns a refusal or nil.
func matchBlob(b *blob, r *Request) *reply {
	etag := strings.Trim(b.etag, `"`) // lists return ETags without quotes, and the service accepts these
	wanted, unwanted := strings.Trim(r.header.Get("If-Match"), `"`), strings.Trim(r.header.Get("If-None-Match"), `"`)
	switch {
	case wanted != "" && wanted != "*" && wanted != etag:
		return conditionNotMet()
	case unwanted != "" && (unwanted == "*" || unwanted == etag) && r.method != http.MethodPut && r.method != http.MethodDelete:
		return refuseBlob(http.StatusNotModified, "ConditionNotMet", "")
	case unwanted != "" && (unwanted == "*" || unwanted == etag):
		return conditionNotMet()
	}
	return nil
}

func (b *blob) stamp(at time.Time) { b.changed, b.etag = at, etagOf(at) }

func sum(content []byte) string {
	s := md5.Sum(content)
	return base64.StdEncoding.EncodeToString(s[:])
}

// answer returns a blob's properties and its content or the requested range.
func (b *blob) answer(r *Request) *reply {
	answer := newReply(http.StatusOK, "ETag", b.etag, "Last-Modified", b.changed.UTC().Format(http.TimeFormat),
		"x-ms-blob-type", b.kind, "x-ms-creation-time", b.created.UTC().Format(http.TimeFormat), "Accept-Ranges", "bytes",
		"Content-Length", strconv.Itoa(len(b.content)))
	if b.kind == appendBlob {
		answer.header.Set("x-ms-blob-committed-block-count", strconv.Itoa(b.blocks))
	} else {
		answer.header.Set("Content-MD5", b.md5)
	}
	b.lease.addHeaders(answer)
	copyMetadata(answer.header, b.metadata)
	answer.with(b.contentType, b.content)
	span := r.header.Get("x-ms-range")
	if span == "" {
		span = r.header.Get("Range")
	}
	if span == "" {
		return answer
	}
	first, last := 0, len(b.content)-1
	if n, err := fmt.Sscanf(span, "bytes=%d-%d", &first, &last); n == 0 || err != nil && n < 1 || first >= len(b.content) {
		refused := refuseBlob(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The range specified is invalid for the current size of the resource.")
		refused.header.Set("Content-Range", fmt.Sprintf("bytes */%d", len(b.content)))
		return refused
	}
	last = min(last, len(b.content)-1)
	answer.status, answer.body = http.StatusPartialContent, b.content[first:last+1]
	answer.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(b.content)))
	answer.header.Set("Content-Length", strconv.Itoa(last+1-first))
	answer.header.Del("Content-MD5") // it is the hash of the whole content
	return answer
}

func (b *blob) writeItem(w *bytes.Buffer, withMetadata bool) {
	w.WriteString("<Blob><Name>")
	writeEscaped(w, b.name)
	props := newReply(0)
	b.lease.addHeaders(props)
	fmt.Fprintf(w, "</Name><Properties><Creation-Time>%s</Creation-Time><Last-Modified>%s</Last-Modified><Etag>%s</Etag><Content-Length>%d</Content-Length>"+
		"<Content-Type>%s</Content-Type><BlobType>%s</BlobType><LeaseStatus>%s</LeaseStatus><LeaseState>%s</LeaseState></Properties>",
		b.created.UTC().Format(http.TimeFormat), b.changed.UTC().Format(http.TimeFormat), strings.Trim(b.etag, `"`), len(b.content), b.contentType, b.kind,
		props.header.Get("x-ms-lease-status"), props.header.Get("x-ms-lease-state"))
	if withMetadata {
		w.WriteString("<Metadata>")
		for _, name := range slices.Sorted(maps.Keys(b.metadata)) {
			key := strings.ToLower(name)[len("x-ms-meta-"):]
			fmt.Fprintf(w, "<%s>%s</%[1]s>", key, b.metadata.Get(name))
		}
		w.WriteString("</Metadata>")
	}
	w.WriteString("</Blob>")
}

// blobService serves the blobs of an account.
type blobService struct{ *Account }

func (a blobService) serveBlob(r *Request) *reply {
	if r.Operation == "ListContainers" {
		return a.listContainers(r)
	}
	c := a.containers[r.Target]
	if r.Operation == "CreateContainer" {
		return a.createContainer(c, r)
	}
	if c == nil {
		return refuseBlob(http.StatusNotFound, "ContainerNotFound", "The specified container does not exist.")
	}
	name := r.rest()
	switch {
	case name == "":
		return a.serveContainer(c, r)
	case r.Operation == "PutBlob", r.Operation == "CreateAppendBlob":
		return a.putBlob(c, name, r)
	}
	b := c.blobs[name]
	switch {
	case b == nil && r.header.Get("If-Match") != "" && r.Operation != "AppendBlock":
		return conditionNotMet()
	case b == nil:
		return refuseBlob(http.StatusNotFound, "BlobNotFound", "The specified blob does not exist.")
	case r.Operation == "AppendBlock":
		return appendBlock(a, b, r)
	}
	if failure := matchBlob(b, r); failure != nil {
		return failure
	}
	if strings.HasSuffix(r.Operation, "Lease") {
		return a.serveLease(&b.lease, r, b.etag, b.changed)
	}
	switch r.Operation {
	case "GetBlob", "GetBlobProperties":
		if r.header.Get("x-ms-lease-id") != "" { // reads need no lease ID, but a wrong one is refused
			if failure := b.lease.allowsWrite(r); failure != nil {
				return failure
			}
		}
		return b.answer(r)
	case "DeleteBlob":
		if failure := b.lease.allowsWrite(r); failure != nil {
			return failure
		}
		if b.snapshots > 0 && r.header.Get("x-ms-delete-snapshots") == "" {
			return refuseBlob(http.StatusConflict, "SnapshotsPresent", "This operation is not permitted because the blob has snapshots.")
		}
		delete(c.blobs, name)
		return newReply(http.StatusAccepted)
	case "SetBlobMetadata":
		if failure := b.lease.allowsWrite(r); failure != nil {
			return failure
		}
		b.metadata = metadataOf(r.header)
		b.stamp(a.tick())
		return newReply(http.StatusOK, "ETag", b.etag, "Last-Modified", b.changed.Format(http.TimeFormat))
	}
	return refuseBlob(http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The resource doesn't support the specified Http Verb.")
}

func (a blobService) createContainer(c *container, r *Request) *reply {
	if c != nil {
		return refuseBlob(http.StatusConflict, "ContainerAlreadyExists", "The specified container already exists.")
	}
	if !validQueueName(r.Target) { // containers have the same rules
		return refuseBlob(http.StatusBadRequest, "InvalidResourceName", "The specified resource name contains invalid characters.")
	}
	if refused := a.beingDeleted(BlobService, r.Target); refused != nil {
		return refused
	}
	at := a.tick()
	c = &container{metadata: metadataOf(r.header), blobs: map[string]*blob{}, etag: etagOf(at), changed: at}
	a.containers[r.Target] = c
	return newReply(http.StatusCreated, "ETag", c.etag, "Last-Modified", at.Format(http.TimeFormat))
}

func (a blobService) serveContainer(c *container, r *Request) *reply {
	if strings.HasSuffix(r.Operation, "Lease") {
		return a.serveLease(&c.lease, r, c.etag, c.changed)
	}
	switch r.Operation {
	case "DeleteContainer":
		if failure := c.lease.allowsWrite(r); failure != nil {
			return failure
		}
		delete(a.containers, r.Target)
		return newReply(http.StatusAccepted)
	case "GetContainerProperties":
		answer := newReply(http.StatusOK, "ETag", c.etag, "Last-Modified", c.changed.Format(http.TimeFormat))
		c.lease.addHeaders(answer)
		copyMetadata(answer.header, c.metadata)
		return answer
	case "SetContainerMetadata":
		c.metadata = metadataOf(r.header)
		c.changed = a.tick()
		c.etag = etagOf(c.changed)
		return newReply(http.StatusOK, "ETag", c.etag, "Last-Modified", c.changed.Format(http.TimeFormat))
	case "ListBlobs":
		return listBlobs(a, c, r)
	}
	return refuseBlob(http.StatusMethodNotAllowed, "UnsupportedHttpVerb", "The resource doesn't support the specified Http Verb.")
}

func (a blobService) putBlob(c *container, name string, r *Request) *reply {
	kind := r.header.Get("x-ms-blob-type")
	if kind != blockBlob && kind != appendBlob {
		return refuseBlob(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: x-ms-blob-type")
	}
	b := c.blobs[name]
	switch {
	case b != nil && r.header.Get("If-None-Match") == "*":
		return refuseBlob(http.StatusConflict, "BlobAlreadyExists", "The specified blob already exists.")
	case b == nil && r.header.Get("If-Match") != "":
		return conditionNotMet()
	case b == nil && r.header.Get("x-ms-lease-id") != "":
		return refuseBlob(http.StatusPreconditionFailed, "LeaseNotPresentWithBlobOperation", "There is currently no lease on the blob.")
	case b != nil:
		if failure := matchBlob(b, r); failure != nil {
			return failure
		}
		if failure := b.lease.allowsWrite(r); failure != nil {
			return failure
		}
	default:
		b = &blob{name: name, created: time.Now()}
		c.blobs[name] = b
	}
	b.kind, b.content, b.blocks, b.metadata = kind, r.Body, 0, metadataOf(r.header)
	b.contentType = "application/octet-stream"
	for _, name := range []string{"Content-Type", "x-ms-blob-content-type"} {
		if v := r.header.Get(name); v != "" {
			b.contentType = v
		}
	}
	b.stamp(a.tick())
	answer := newReply(http.StatusCreated, "ETag", b.etag, "Last-Modified", b.changed.Format(http.TimeFormat), "x-ms-request-server-encrypted", "true")
	if kind == blockBlob {
		b.md5 = sum(b.content)
		answer.header.Set("Content-MD5", b.md5)
	}
	return answer
}

func (a blobService) listContainers(r *Request) *reply {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8" standalone="yes"?><EnumerationResults><Containers>`)
	for _, name := range slices.Sorted(maps.Keys(a.containers)) {
		if strings.HasPrefix(name, r.query.Get("prefix")) {
			c := a.containers[name]
			fmt.Fprintf(&b, "<Container><Name>%s</Name><Properties><Last-Modified>%s</Last-Modified><Etag>%s</Etag></Properties></Container>",
				name, c.changed.Format(http.TimeFormat), strings.Trim(c.etag, `"`))
		}
	}
	b.WriteString("</Containers><NextMarker/></EnumerationResults>")
	return newReply(http.StatusOK).with("application/xml", []byte(b.String()))
}

func (a blobService) serveLease(l *lease, r *Request, etag string, changed time.Time) *reply {
	now := time.Now()
	answer := newReply(http.StatusOK, "ETag", etag, "Last-Modified", changed.UTC().Format(http.TimeFormat))
	given, proposed := r.header.Get("x-ms-lease-id"), r.header.Get("x-ms-proposed-lease-id")
	state := l.state(now)
	switch r.Operation {
	case "AcquireLease":
		return l.acquire(r, answer, state, now)
	case "RenewLease":
		switch {
		case state == available || given != l.id:
			return leaseMismatch()
		case state == broken || state == breaking:
			return refuseBlob(http.StatusConflict, "LeaseIsBrokenAndCannotBeRenewed", "The lease ID matched, but the lease has been broken explicitly and cannot be renewed.")
		}
		l.extend(now)
	case "ChangeLease":
		switch {
		case state == available || state == expired || state == broken:
			return refuseBlob(http.StatusConflict, "LeaseNotPresentWithLeaseOperation", "There is currently no lease on the blob.")
		case given != l.id && proposed != l.id:
			return leaseMismatch()
		case state == breaking:
			return refuseBlob(http.StatusConflict, "LeaseIsBreakingAndCannotBeChanged", "The lease ID matched, but the lease is currently in breaking state and cannot be changed.")
		}
		l.id = proposed
	case "ReleaseLease":
		if state == available || given != l.id {
			return leaseMismatch()
		}
		*l = lease{}
		return answer
	case "BreakLease":
		return l.breakUp(r, answer, state, now)
	default:
		return refuseBlob(http.StatusBadRequest, "InvalidHeaderValue", "The value for one of the HTTP headers is not in the correct format: x-ms-lease-action")
	}
	answer.header.Set("x-ms-lease-id", l.id)
	return answer
}
