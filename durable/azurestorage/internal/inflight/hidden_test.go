package inflight

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

func TestHiddenMessages_AreLimitedAndReturnedOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var h hiddenMessages
		message := func(n int, text string) store.Message {
			return store.Message{ID: fmt.Sprint(n), Receipt: "r", Text: text, InsertedOn: began.Add(time.Duration(-n) * time.Second), RequestedAt: time.Now(), HiddenFor: time.Minute}
		}
		for n := range 3 {
			h.add("a", nil, message(n, "x"))
		}
		again := message(1, "x")
		again.Receipt = "newer"
		h.add("a", nil, again)
		all := h.take("a")
		if len(all) != 3 || all[0].msg.ID != "2" || all[1].msg.Receipt != "newer" || all[2].msg.ID != "0" || h.bytes != 0 || len(h.take("a")) != 0 {
			t.Errorf("took %+v, %d bytes are left", all, h.bytes)
		}

		large := strings.Repeat("x", 60_000)
		const many = 2 * maxHiddenBytes / 60_000
		for n := range many {
			h.add(fmt.Sprint(n%10), nil, message(n, large))
		}
		if h.bytes > maxHiddenBytes || h.bytes < maxHiddenBytes-2*len(large) {
			t.Errorf("the messages have %d bytes, want at most %d", h.bytes, maxHiddenBytes)
		}
		time.Sleep(2 * time.Minute) // the messages are visible again
		h.add("b", nil, message(many, large))
		if len(h.take("b")) != 1 || h.bytes != 0 || len(h.byInstance) != 0 {
			t.Errorf("%d bytes of %d instances are left", h.bytes, len(h.byInstance))
		}
	})
}
