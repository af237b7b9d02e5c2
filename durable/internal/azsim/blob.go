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
	content     []byte
	contentType string
	metadata    http.Header
	etag        string
	created     time.Time
	changed     time.Time
	lease       lease
}

func refuseBlob(status int, code, message string) *reply {
	return refusal(BlobService, status, code, message)
}

// etagOf makes an ETag of a blob or a container of the time of its change.
func etagOf(at time.Time) string { return fmt.Sprintf(`"0x%X"`, at.UnixNano()) }

// matchBlob holds a request's conditions against a blob.
func matchBlob(b *blob, r *Request) *reply {
	wanted, unwanted := r.header.Get("If-Match"), r.header.Get("If-None-Match")
	switch {
	case wanted != "" && wanted != "*" && wanted != b.etag:
		return refuseBlob(http.StatusPreconditionFailed, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	case unwanted != "" && (unwanted == "*" || unwanted == b.etag) && r.method != http.MethodPut && r.method != http.MethodDelete:
		return refuseBlob(http.StatusNotModified, "ConditionNotMet", "")
	case unwanted != "" && (unwanted == "*" || unwanted == b.etag):
		return refuseBlob(http.StatusPreconditionFailed, "ConditionNotMet", "The condition specified using HTTP conditional header(s) is not met.")
	}
	return nil
}

func (b *blob) stamp(at time.Time) { b.changed, b.etag = at, etagOf(at) }

func sum(content []byte) string {
	s := md5.Sum(content)
	return base64.StdEncoding.EncodeToString(s[:])
}

// answer tells of a blob, and what it holds, or the part of that which is asked
// for.
func (b *blob) answer(r *Request) *reply {
	answer := newReply(http.StatusOK, "ETag", b.etag, "Last-Modified", b.changed.UTC().Format(http.TimeFormat),
		"x-ms-blob-type", "BlockBlob", "x-ms-creation-time", b.created.UTC().Format(http.TimeFormat), "Accept-Ranges", "bytes",
		"Content-MD5", sum(b.content), "Content-Length", strconv.Itoa(len(b.content)))
	b.lease.tell(answer)
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
		return refuseBlob(http.StatusRequestedRangeNotSatisfiable, "InvalidRange", "The range specified is invalid for the current size of the resource.")
	}
	last = min(last, len(b.content)-1)
	answer.status, answer.body = http.StatusPartialContent, b.content[first:last+1]
	answer.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, len(b.content)))
	answer.header.Set("Content-Length", strconv.Itoa(last+1-first))
	return answer
}

func (b *blob) writeItem(w *bytes.Buffer, withMetadata bool) {
	w.WriteString("<Blob><Name>")
	writeEscaped(w, b.name)
	props := newReply(0)
	b.lease.tell(props)
	fmt.Fprintf(w, "</Name><Properties><Creation-Time>%s</Creation-Time><Last-Modified>%s</Last-Modified><Etag>%s</Etag><Content-Length>%d</Content-Length>"+
		"<Content-Type>%s</Content-Type><BlobType>BlockBlob</BlobType><LeaseStatus>%s</LeaseStatus><LeaseState>%s</LeaseState></Properties>",
		b.created.UTC().Format(http.TimeFormat), b.changed.UTC().Format(http.TimeFormat), strings.Trim(b.etag, `"`), len(b.content), b.contentType,
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
