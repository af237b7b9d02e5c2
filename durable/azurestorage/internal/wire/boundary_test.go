package wire

import (
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
)

func TestBoundaries_OfSizes(t *testing.T) {
	const limit = 1000
	boundary.Check(t, "a decompressed text is too long", func(offset int) bool {
		data, err := Compress([]byte(strings.Repeat("x", limit+offset)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = DecompressUpTo(data, limit)
		return err != nil
	}, false, false, true)
	boundary.Check(t, "an ID is too long for a key", func(offset int) bool { return CheckID(strings.Repeat("x", maxKeyUnits+offset)) != nil }, false, false, true)
	boundary.Check(t, "an ID with characters of two units is too long", func(offset int) bool {
		return CheckID(strings.Repeat("😀", maxKeyUnits/2-1)+strings.Repeat("x", 2+offset)) != nil
	}, false, false, true)
	boundary.Check(t, "a text is truncated", func(offset int) int { return len(truncateUTF16(strings.Repeat("x", limit+offset), limit)) }, limit-1, limit, limit)
	boundary.Check(t, "a text with a character of two units at the limit is truncated before it", func(offset int) string {
		return strings.TrimLeft(truncateUTF16(strings.Repeat("x", limit-2+offset)+"😀", limit), "x")
	}, "😀", "😀", "")
}
