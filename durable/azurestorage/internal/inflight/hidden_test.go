package inflight

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestHiddenMessages_AreLimitedAndReturnedOldestFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var h hiddenMessages
		add := func(instanceID string, m store.Message) {
			h.Add(nil, m, &provider.TaskMessage{Event: &history.EventRaised{}, Target: history.OrchestrationInstance{InstanceID: instanceID}})
		}
		take := func(instanceID string) []hiddenMessage {
			return h.take(instanceID, func(hiddenMessage) bool { return true })
		}
		message := func(n int, text string) store.Message {
			return store.Message{ID: fmt.Sprint(n), Receipt: "r", Text: text, InsertedOn: began.Add(time.Duration(-n) * time.Second), RequestedAt: time.Now(), HiddenFor: time.Minute}
		}
		for n := range 3 {
			add("a", message(n, "x"))
		}
		again := message(1, "x")
		again.Receipt = "newer"
		add("a", again)
		all := take("a")
		if len(all) != 3 || all[0].msg.ID != "2" || all[1].msg.Receipt != "newer" || all[2].msg.ID != "0" || h.bytes != 0 || len(take("a")) != 0 {
			t.Errorf("took %+v, %d bytes are left", all, h.bytes)
		}

		h.Add(nil, message(3, "x"), &provider.TaskMessage{Event: &history.TimerFired{FireAt: time.Now().Add(time.Hour)}, Target: history.OrchestrationInstance{InstanceID: "a"}})
		if len(take("a")) != 0 {
			t.Error("a timer that is not due was added")
		}

		large := strings.Repeat("x", 60_000)
		const many = 2 * maxHiddenBytes / 60_000
		for n := range many {
			add(fmt.Sprint(n%10), message(n, large))
		}
		if h.bytes > maxHiddenBytes || h.bytes < maxHiddenBytes-2*len(large) {
			t.Errorf("the messages have %d bytes, want at most %d", h.bytes, maxHiddenBytes)
		}
		time.Sleep(2 * time.Minute) // the messages are visible again
		add("b", message(many, large))
		if len(take("b")) != 1 || h.bytes != 0 || len(h.byInstance) != 0 {
			t.Errorf("%d bytes of %d instances are left", h.bytes, len(h.byInstance))
		}
	})
}
