package durable

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
)

// ActivityInfo describes the current run of an activity, for its log or to
// recognise a repetition.
type ActivityInfo struct {
	InstanceID InstanceID // of the orchestration that waits for the result
	Name       string     // that the activity is registered under
	TaskID     int        // the number of the call among the orchestration's actions, from 0
	Attempt    int        // from 1; more means that an earlier run did not get to its end
	Version    Version    // of the orchestration
	Tags       Tags       // that the call was given
}

// ActivityInfoFrom returns the ActivityInfo of an activity's context. ok is false for
// other contexts.
func ActivityInfoFrom(ctx context.Context) (info ActivityInfo, ok bool) {
	i, ok := dispatch.ActivityInfoFrom(ctx)
	return ActivityInfo{
		InstanceID: InstanceID(i.Instance.InstanceID), Name: i.Name, TaskID: i.TaskID, Attempt: i.Attempt,
		Version: Version(i.Version), Tags: i.Tags,
	}, ok
}
