package partition

import (
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
)

func TestBoundaries_OfRecordsAndDelays(t *testing.T) {
	t.Parallel()
	boundary.Check(t, "a payload has a record of its own", func(offset int) bool {
		text := strings.Repeat("x", maxInline+offset)
		return isSeparate(&text)
	}, false, false, true)
	boundary.Check(t, "an ID is too long", func(offset int) bool { return CheckID(strings.Repeat("x", maxIDLength+offset)) != nil }, false, false, true)
	boundary.Check(t, "an ID is empty", func(offset int) bool { return CheckID(strings.Repeat("x", 1+offset)) != nil }, true, false, false)
	delays := Config{AbandonDelay: time.Second, MaxAbandonDelay: 8 * time.Second}
	boundary.Check(t, "the first delays are equal", func(offset int) time.Duration { return delays.abandonDelay(1 + offset) }, time.Second, time.Second, 2*time.Second)
	boundary.Check(t, "the longest delay", func(offset int) time.Duration { return delays.abandonDelay(4 + offset) }, 4*time.Second, 8*time.Second, 8*time.Second)
	uneven := Config{AbandonDelay: 3 * time.Second, MaxAbandonDelay: 8 * time.Second}
	boundary.Check(t, "the longest delay that is not a multiple", func(offset int) time.Duration { return uneven.abandonDelay(3 + offset) },
		6*time.Second, 8*time.Second, 8*time.Second)
}
