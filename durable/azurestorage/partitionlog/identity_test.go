package partitionlog

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// In a hub of an older version, base files or a deleted first mailbox blob show that a partition
// had a log. Mail alone does not: it can arrive before the first owner.
func TestWasUsed_DecidesByTheBaseAndTheMailbox(t *testing.T) {
	for _, tt := range []struct {
		names []string
		want  bool
	}{
		{nil, false},
		{[]string{"p00/mail-0000000001", "p00/mail-0000000002"}, false},
		{[]string{"p00/letter-0000000002-x", "p00/strange"}, false},
		{[]string{"p00/mail-0000000002", "p00/mail-0000000003"}, true},
		{[]string{"p00/base-0000000001-a"}, true},
	} {
		var blobs []store.BlobInfo
		for _, name := range tt.names {
			blobs = append(blobs, store.BlobInfo{Name: name})
		}
		if got := wasUsed(blobs, "p00/"); got != tt.want {
			t.Errorf("%v: %v, want %v", tt.names, got, tt.want)
		}
	}
}

// Processes of a deleted hub leave empty blobs, letters and heartbeats. They do not prevent the
// creation of a hub.
func TestObstacle_IgnoresBlobsThatADeletedHubLeaves(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int64
		want bool
	}{
		{"p00/log-0000000001", 0, false},
		{"p00/log-0000000001", 1, true},
		{"p63/mail-0000000001", 1, true},
		{"p00/base-0000000001-a", 1, true},
		{"p00/letter-0000000001-a", 1, false},
		{"p00", 0, false},
		{"workers/w", 0, false},
		{"workers/~bell", 3, false},
		{"roster", 0, false},
		{"hub.json", 1, false},
		{"hub.json.bak", 1, true},
		{"photo.jpg", 0, true},
	} {
		if err := obstacle([]store.BlobInfo{{Name: tt.name, Size: tt.size}}); (err != nil) != tt.want {
			t.Errorf("%s with %d bytes: got %v, want an error: %v", tt.name, tt.size, err, tt.want)
		}
	}
}
