package wire

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/google/uuid"
)

// LargeMessageThreshold is how many bytes the JSON of a message may have, before
// Base64, to go to a queue. A longer one goes to a blob
// (DurableTask.AzureStorage/MessageManager.cs, MaxStorageQueuePayloadSizeInBytes).
const LargeMessageThreshold = 45 * 1024

// MaxDecompressed bounds what a blob may decompress to, in bytes, so that a
// small blob cannot fill the memory.
const MaxDecompressed = 256 << 20

// MessageBlobName names the blob of a large message. The instance ID is the
// receiver's and is not escaped; slashes in it make virtual folders
// (DurableTask.AzureStorage/MessageManager.cs, GetNewLargeMessageBlobName).
func MessageBlobName(instanceID string, activityID uuid.UUID, t history.EventType) string {
	return instanceID + "/message-" + hex.EncodeToString(activityID[:]) + "-" + t.String() + ".json.gz"
}

// IsStartMessageBlob reports whether a blob that an instance row's Input refers
// to is a whole start message, whose event has the input, and not the input
// itself (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// ConvertFromAsync).
func IsStartMessageBlob(blobName string) bool {
	return strings.HasSuffix(blobName, "ExecutionStarted.json.gz")
}

// Compress returns text as the content of a blob.
func Compress(text []byte) ([]byte, error) {
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(text); err != nil {
		return nil, fmt.Errorf("compress %d bytes: %w", len(text), err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compress %d bytes: %w", len(text), err)
	}
	return buf.Bytes(), nil
}

// Decompress returns the text that is the content of a blob. It fails for more
// than MaxDecompressed bytes of text.
func Decompress(data []byte) ([]byte, error) { return DecompressUpTo(data, MaxDecompressed) }

// DecompressUpTo is [Decompress] with another limit, in bytes of text.
func DecompressUpTo(data []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	// The text goes to one place of its size, not to ever larger ones.
	text := bytes.NewBuffer(make([]byte, 0, min(TextSize(data), limit, maxRatio*int64(len(data)))+bytes.MinRead))
	if _, err := text.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if int64(text.Len()) > limit {
		return nil, fmt.Errorf("decompress: more than %d bytes", limit)
	}
	return bytes.TrimPrefix(text.Bytes(), []byte("\uFEFF")), nil
}

// maxRatio is more than the best that gzip can do.
const maxRatio = 1100

// TextSize returns how many bytes of text a blob says that it has: gzip ends with that.
func TextSize(data []byte) int64 {
	if len(data) < 4 {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(data[len(data)-4:]))
}

// BlobURL returns the address of a blob as instance rows hold it: each part of
// the name between slashes goes through Uri.EscapeDataString
// (DurableTask.AzureStorage/MessageManager.cs, GetBlobUrl).
func BlobURL(containerURL, blobName string) string {
	var b strings.Builder
	b.WriteString(strings.TrimSuffix(containerURL, "/"))
	b.WriteByte('/')
	for i := range len(blobName) {
		c := blobName[i]
		if c == '/' || isUnreserved(c) {
			b.WriteByte(c)
			continue
		}
		const digits = "0123456789ABCDEF"
		b.WriteByte('%')
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

// isUnreserved reports whether a URL may hold c as it is in any place (RFC 3986).
func isUnreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '.' || c == '_' || c == '~'
}

// BlobNameFromURL returns the name of the blob that an instance row's Input or
// Output refers to; ok is false if it is a value and no reference. .NET takes
// any absolute URI for a reference, whatever it points at. Here it is one only
// if it lies in our own container and is named as DurableTask names its blobs,
// so that no message can make a worker fetch anything else.
func BlobNameFromURL(containerURL, value string) (name string, ok bool) {
	prefix := strings.TrimSuffix(containerURL, "/") + "/"
	if len(value) <= len(prefix) || !strings.HasSuffix(value, ".json.gz") || !hasURLPrefix(value, prefix) {
		return "", false
	}
	rest := value[len(prefix):]
	if strings.ContainsAny(rest, "?# \"\t\r\n") {
		return "", false
	}
	name, err := url.PathUnescape(rest)
	if err != nil {
		return "", false
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "." || part == ".." {
			return "", false
		}
	}
	return name, true
}

// OwnBlobName is blobNameFromURL for the row of an instance. It also knows a blob
// of that very instance under another name of the account, such as a worker
// writes that reaches it by another endpoint: an address of its own, or one that
// has the account's name in its path. The blob is read from our endpoint.
func OwnBlobName(containerURL, instanceID, value string) (name string, ok bool) {
	if name, ok = BlobNameFromURL(containerURL, value); ok {
		return name, true
	}
	scheme, rest, _ := strings.Cut(value, "://")
	if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return "", false
	}
	containerURL = strings.TrimSuffix(containerURL, "/")
	container := containerURL[strings.LastIndexByte(containerURL, '/')+1:]
	parts := strings.SplitN(rest, "/", 4) // host, account perhaps, container, blob
	for at := 1; at < min(3, len(parts)-1); at++ {
		if parts[at] != container {
			continue
		}
		name, ok = BlobNameFromURL(containerURL, containerURL+"/"+strings.Join(parts[at+1:], "/"))
		return name, ok && (strings.HasPrefix(name, instanceID+"/") || strings.HasPrefix(name, EscapeKey(instanceID)+"/"))
	}
	return "", false
}

// hasURLPrefix is strings.HasPrefix, but takes no notice of case in the scheme
// and the host.
func hasURLPrefix(value, prefix string) bool {
	path := len(prefix)
	if i := strings.Index(prefix, "://"); i >= 0 {
		if j := strings.IndexByte(prefix[i+3:], '/'); j >= 0 {
			path = i + 3 + j
		}
	}
	return len(value) >= len(prefix) && strings.EqualFold(value[:path], prefix[:path]) && value[path:len(prefix)] == prefix[path:]
}

// looksLikeURI reports whether .NET could take s for an absolute URI, and so for
// a reference to a blob that every later read of the instance would try to
// fetch and fail at (Uri.IsWellFormedUriString). JSON text never is one.
func looksLikeURI(s string) bool {
	scheme, _, found := strings.Cut(s, ":")
	if !found || len(scheme) < 2 || strings.ContainsAny(s, " \t\r\n") {
		return false
	}
	for i, c := range []byte(scheme) {
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letter && (i == 0 || !('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.')) {
			return false
		}
	}
	return true
}

// A DamageError says that something stored is not what was written.
type DamageError struct{ Cause error }

func (e *DamageError) Error() string { return e.Cause.Error() }
func (e *DamageError) Unwrap() error { return e.Cause }
