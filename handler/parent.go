package handler

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
)

// parentInterval is the time between two checks of the parent.
const parentInterval = 500 * time.Millisecond

// errParentDied says that the Functions host is gone.
var errParentDied = errors.New("the parent process, the Functions host, has died")

// watchParent returns errParentDied when parent, which returns the process's parent, no
// longer returns first; or nil when ctx ends. The Functions host
// kills its handlers when it stops, but when it is killed itself, on Linux and
// macOS they live on, keep their port and go on working on the task hub; on
// Windows they belong to a job object and die with it
// (azure-functions-host: Workers/ProcessManagement/EmptyProcessRegistry.cs,
// JobObjectRegistry.cs).
//
// Linux could send a signal instead (PR_SET_PDEATHSIG), but sends it when the
// thread ends that started the process, and the host starts processes on
// threads of a pool, which come and go.
//
// A process whose parent is already process 1 cannot see a change: either
// process 1 is the host of a container, which ends with it, or the first parent is gone
// and unknown.
func watchParent(ctx context.Context, every time.Duration, first int, parent func() int) error {
	for taskhub.Pause(ctx, every) {
		if parent() != first {
			return errParentDied
		}
	}
	return nil
}
