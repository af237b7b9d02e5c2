package azurestorage

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// The lock of a claimed message may end while the history is being written. Whoever
// receives the message then finds that its batch does not count, and deletes it.
func TestShow_FailsForWhatOthersMayHaveDeleted(t *testing.T) {
	claimed := func(lost bool, left time.Duration) []sentMessage {
		return []sentMessage{{
			queue: &store.Queue{Name: "q"}, Sent: store.Sent{ID: "m"}, finalText: "shown",
			claimed: &delivery{lost: lost, until: time.Now().Add(left)},
		}}
	}
	h := &TaskHub{}
	for name, c := range map[string]struct {
		sent []sentMessage
		want string
	}{
		"a message that is hidden":         {claimed(false, time.Minute), ""},
		"one whose lock was lost":          {claimed(true, time.Minute), "message m was visible in queue q before the entity's batch was committed"},
		"one whose lock was not renewed":   {claimed(false, -time.Second), "message m was visible in queue q before the entity's batch was committed"},
		"one that is of no entity's batch": {[]sentMessage{{claimed: &delivery{lost: true}}}, ""},
	} {
		err := h.sender.publishBatch(t.Context(), c.sent)
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if d := c.sent[0].claimed; err == nil && c.sent[0].finalText != "" && d.msg.Text != "shown" {
			t.Errorf("%s: its text is %q", name, d.msg.Text)
		}
	}
}
