package dispatch

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A deferredCheckpoint is the checkpoint of an episode whose steps start before it is stored. A
// repetition of the episode would decide the same: it received the start of the execution or
// nothing, and decided nothing but steps. The next checkpoint includes its events.
type deferredCheckpoint struct {
	cp        *provider.Checkpoint
	execution history.OrchestrationInstance // before the episode; zero if it had not started

	events   []history.Event
	messages []provider.TaskMessage
	dropped  []droppedMessage
	isFirst  bool      // the episode is the first of its execution
	until    time.Time // it is stored at this time if no other checkpoint has included it
}
