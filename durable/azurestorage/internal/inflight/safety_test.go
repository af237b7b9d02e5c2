package inflight

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

func TestInQueue_IsLostWhenItsRenewalHasFailed(t *testing.T) {
	t.Parallel()
	m := store.Message{ID: "1", RequestedAt: time.Now(), HiddenFor: time.Hour}
	d := newTestMessages(nil).newDelivery(&store.Queue{Name: "q"}, m, time.Hour, func() {})
	if AnyLost([]*Delivery{d}) {
		t.Error("a hidden message is lost")
	}
	if d.lost = true; !AnyLost([]*Delivery{d}) {
		t.Error("a message that another worker received is not lost")
	}
}
