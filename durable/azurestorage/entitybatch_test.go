package azurestorage

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// The visibility timeout of a claimed message may end while the history is being written. Its
// receiver then finds that the batch is not committed and deletes the message.
func TestPublishBatch_FailsForAMessageThatAnotherWorkerMayHaveDeleted(t *testing.T) {
	claimed := func(lost bool, left time.Duration) []sentMessage {
		held := &heldMessages{monitor: &monitor{}}
		d := &delivery{held: held, lost: lost, until: held.clock.Now().Add(left)}
		d.safety = inQueue{d}
		return []sentMessage{{to: &partition{queue: &store.Queue{Name: "q"}}, Sent: store.Sent{ID: "m"}, finalText: "shown", claimed: d}}
	}
	s := &sender{}
	for name, c := range map[string]struct {
		sent []sentMessage
		want string
	}{
		"a hidden message":               {claimed(false, time.Minute), ""},
		"a message that was lost":        {claimed(true, time.Minute), "message m was visible in queue q before the entity's batch was committed"},
		"a message that was not renewed": {claimed(false, -time.Second), "message m was visible in queue q before the entity's batch was committed"},
		"a message without a batch":      {[]sentMessage{{claimed: &delivery{lost: true}}}, ""},
	} {
		err := s.publishBatch(t.Context(), c.sent)
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if d := c.sent[0].claimed; err == nil && c.sent[0].finalText != "" && d.msg.Text != "shown" {
			t.Errorf("%s: its text is %q", name, d.msg.Text)
		}
	}
}
