package dispatch

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A deferredCheckpoint is a checkpoint that is stored after the steps of its episode have started. A
// repetition of the episode would make the same decisions: it received at most the start of the execution,
// and decided only steps. The next checkpoint includes its events.
type deferredCheckpoint struct {
	cp        *provider.Checkpoint
	execution history.OrchestrationInstance // before the episode; zero if it had not started

	events   []history.Event
	messages []provider.TaskMessage
	dropped  []droppedMessage
	isFirst  bool      // the episode is the first of its execution
	until    time.Time // it is stored at this time if no other checkpoint has included it
}
