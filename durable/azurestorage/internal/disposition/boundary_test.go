package disposition

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
)

func TestBoundaries_OfDeliveries(t *testing.T) {
	t.Parallel()
	const timeout = 30 * time.Second
	boundary.Check(t, "a message may be redelivered after half of its visibility timeout", func(offset int) bool {
		return Message{DequeueCount: 1, Age: timeout/2 + time.Duration(offset), VisibilityTimeout: timeout}.mayBeRedelivered()
	}, false, true, true)
	boundary.Check(t, "a message may be redelivered after its first receipt", func(offset int) bool {
		return Message{DequeueCount: 1 + offset, VisibilityTimeout: timeout}.mayBeRedelivered()
	}, false, false, true)
	boundary.Check(t, "a message is old when all earlier ones are visible", func(offset int) bool {
		return Message{Age: (MaxTimeoutFactor+1)*timeout + time.Duration(offset), VisibilityTimeout: timeout}.isOld()
	}, false, false, true)
}
