package dispatch

import (
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// maxOutboxes is how many entities a worker remembers to have sent all messages
// of. Of others it sends those of the last batch again, for all it knows.
const maxOutboxes = 10_000

// outboxes remembers of which executions of entities everything was sent. Its
// zero value remembers none.
type outboxes struct {
	mu   sync.Mutex // protects the following
	last map[string]string
}

// add remembers that everything was sent that an execution had to send.
func (o *outboxes) add(i history.OrchestrationInstance) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = make(map[string]string)
	}
	if _, known := o.last[i.InstanceID]; !known && len(o.last) >= maxOutboxes {
		for id := range o.last { // whichever: it costs a message that is sent twice
			delete(o.last, id)
			break
		}
	}
	o.last[i.InstanceID] = i.ExecutionID
}

// knows reports whether everything was sent that an execution had to send.
func (o *outboxes) knows(instanceID, executionID string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, ok := o.last[instanceID]
	return ok && last == executionID
}
