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

// LargeMessageThreshold is the maximum size of a message in a queue: bytes of JSON, before Base64.
// Longer messages are stored in blobs (DurableTask.AzureStorage/MessageManager.cs,
// MaxStorageQueuePayloadSizeInBytes).
const LargeMessageThreshold = 45 * 1024

// MaxDecompressed is the maximum size of a decompressed blob, in bytes. It protects the process from
// small blobs with huge content.
const MaxDecompressed = 256 << 20

// MessageBlobName returns the name of the blob for a large message. instanceID is the receiver's ID
// and is not escaped; slashes in it create virtual folders
// (DurableTask.AzureStorage/MessageManager.cs, GetNewLargeMessageBlobName).
func MessageBlobName(instanceID string, activityID uuid.UUID, t history.EventType) string {
	return instanceID + "/message-" + hex.EncodeToString(activityID[:]) + "-" + t.String() + ".json.gz"
}

// IsStartMessageBlob reports whether a blob that an instance row's Input refers to contains a whole
// start message. Otherwise it contains the input itself
// (DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs, ConvertFromAsync).
func IsStartMessageBlob(blobName string) bool {
	return strings.HasSuffix(blobName, "ExecutionStarted.json.gz")
}

// Compress returns the content of a blob with text.
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

// Decompress returns the text in the content of a blob. It fails if the text has more than
// MaxDecompressed bytes.
func Decompress(data []byte) ([]byte, error) { return DecompressUpTo(data, MaxDecompressed) }

// DecompressUpTo is [Decompress] with another limit, in bytes of text.
func DecompressUpTo(data []byte, limit int64) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	// Allocate the buffer once, in the size of the text.
	text := bytes.NewBuffer(make([]byte, 0, min(TextSize(data), limit, maxRatio*int64(len(data)))+bytes.MinRead))
	if _, err := text.ReadFrom(io.LimitReader(r, limit+1)); err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if int64(text.Len()) > limit {
		return nil, fmt.Errorf("decompress: more than %d bytes", limit)
	}
	return bytes.TrimPrefix(text.Bytes(), []byte("\uFEFF")), nil
}

// maxRatio is higher than the maximum compression ratio of gzip.
const maxRatio = 1100

// TextSize returns the size of the text in a blob according to its gzip trailer, in bytes.
func TextSize(data []byte) int64 {
	if len(data) < 4 {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(data[len(data)-4:]))
}

// BlobURL returns the URL of a blob in the form of instance rows: each part of the name between
// slashes is escaped as by Uri.EscapeDataString (DurableTask.AzureStorage/MessageManager.cs,
// GetBlobUrl).
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

// isUnreserved reports whether c needs no escaping in a URL (RFC 3986).
func isUnreserved(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '-' || c == '.' || c == '_' || c == '~'
}

// BlobNameFromURL returns the name of the blob that an instance row's Input or Output refers to. ok is
// false if value is not a reference. .NET accepts any absolute URI as a reference. This function
// accepts only names of DurableTask's blobs in the hub's own container, so that no message can make a
// worker download anything else.
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

// OwnBlobName is [BlobNameFromURL] for the row of an instance. It also accepts URLs of this instance's
// blobs with another host or with the account's name in the path. Workers that use another endpoint
// for the account write such URLs. The blob is read from the hub's endpoint.
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
	parts := strings.SplitN(rest, "/", 4) // host, optionally account, container, blob
	for at := 1; at < min(3, len(parts)-1); at++ {
		if parts[at] != container {
			continue
		}
		name, ok = BlobNameFromURL(containerURL, containerURL+"/"+strings.Join(parts[at+1:], "/"))
		folder := strings.TrimSuffix(name, name[strings.LastIndexByte(name, '/')+1:])
		return name, ok && (folder == instanceID+"/" || folder == EscapeKey(instanceID)+"/")
	}
	return "", false
}

// hasURLPrefix is strings.HasPrefix that ignores case in the scheme and the host.
func hasURLPrefix(value, prefix string) bool {
	path := len(prefix)
	if i := strings.Index(prefix, "://"); i >= 0 {
		if j := strings.IndexByte(prefix[i+3:], '/'); j >= 0 {
			path = i + 3 + j
		}
	}
	return len(value) >= len(prefix) && strings.EqualFold(value[:path], prefix[:path]) && value[path:len(prefix)] == prefix[path:]
}

// looksLikeURI reports whether .NET may interpret s as an absolute URI (Uri.IsWellFormedUriString).
// .NET would then try to download s as a blob in every read of the instance, and fail. JSON text never
// is a URI.
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

// A DamageError means that stored data is damaged.
type DamageError struct{ Cause error }

func (e *DamageError) Error() string { return e.Cause.Error() }
func (e *DamageError) Unwrap() error { return e.Cause }
