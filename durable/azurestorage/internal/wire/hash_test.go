package wire

import "testing"

// The expected partitions come from another implementation of
// DurableTask.AzureStorage/Fnv1aHashHelper.cs.
func TestPartitionOf_HashesTheRawID(t *testing.T) {
	for _, c := range []struct {
		id                  string
		hash                uint32
		of2, of4, of8, of16 int
	}{
		{"", 0x811c9dc5, 1, 1, 5, 5},
		{"a", 0xe40c292c, 0, 0, 4, 12},
		{"foobar", 0xbf9cf968, 0, 0, 0, 8},
		{"abc123", 0x38b29a05, 1, 1, 5, 5},
		{"hello", 0x4f9f2cab, 1, 3, 3, 11},
		{"HelloSequence-1", 0x98922d3c, 0, 0, 4, 12},
		{"order-12345", 0x4ab4d48d, 1, 1, 5, 13},
		{"00000000000000000000000000000000", 0xf0c86445, 1, 1, 5, 5},
		{"4bf2e8d2c4d84f0cb6ce2d2f4a9c7f10", 0x661d792d, 1, 1, 5, 13},
		{"4BF2E8D2C4D84F0CB6CE2D2F4A9C7F10", 0xfa56346d, 1, 1, 5, 13},
		{"@counter@myCounter", 0x5673bcc7, 1, 3, 7, 7},
		{"@Counter@myCounter", 0xb5e1c067, 1, 3, 7, 7},
		{"@counter@1", 0x1a40e6f6, 0, 2, 6, 6},
		{"@counter@", 0xce8d2ec3, 1, 3, 3, 3},
		{"abcdef:0", 0x1042f500, 0, 0, 0, 0},
		{"parent/child", 0xde6f9a94, 0, 0, 4, 4},
		{"parent^0child", 0xd46b2e63, 1, 3, 3, 3},
		{"café", 0xa82b5049, 1, 1, 1, 9},
		{"日本語", 0x805f5ce7, 1, 3, 7, 7},
		{"😀", 0x33a29608, 0, 0, 0, 8},
		{"4bf2e8d2c4d84f0cb6ce2d2f4a9c7f10:3", 0x1af95672, 0, 2, 2, 2},
	} {
		if got := FNV1a(c.id); got != c.hash {
			t.Errorf("hash of %q is %#x, want %#x", c.id, got, c.hash)
		}
		for count, want := range map[int]int{1: 0, 2: c.of2, 4: c.of4, 8: c.of8, 16: c.of16} {
			if got := PartitionOf(c.id, count); got != want {
				t.Errorf("partition of %q among %d is %d, want %d", c.id, count, got, want)
			}
		}
	}
}

func TestPartitionOf_HashesBeforeEscaping(t *testing.T) {
	if got, escaped := PartitionOf("parent/child", 4), PartitionOf(EscapeKey("parent/child"), 4); got == escaped {
		t.Errorf("partition of the raw and of the escaped ID are both %d", got)
	}
}
