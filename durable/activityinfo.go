package durable

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
)

// ActivityInfo describes the current run of an activity. Use it for log messages or to
// recognize repeated runs.
type ActivityInfo struct {
	InstanceID InstanceID // the orchestration that called the activity
	Name       string     // the registered name
	TaskID     int        // the number of the call among the orchestration's actions, from 0
	Attempt    int        // from 1; above 1 if an earlier run did not finish (a RetryPolicy makes new calls)
	Version    Version    // the version of the orchestration
	Tags       Tags       // the tags of the call
}

// ActivityInfoFrom returns the ActivityInfo of an activity's context. For other
// contexts ok is false.
func ActivityInfoFrom(ctx context.Context) (info ActivityInfo, ok bool) {
	i, ok := dispatch.ActivityInfoFrom(ctx)
	return ActivityInfo{
		InstanceID: InstanceID(i.Instance.InstanceID), Name: i.Name, TaskID: i.TaskID, Attempt: i.Attempt,
		Version: Version(i.Version), Tags: i.Tags,
	}, ok
}
