package dispatch

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// ActivityInfo describes a run of an activity.
type ActivityInfo struct {
	Instance history.OrchestrationInstance // the orchestration that scheduled the activity
	Name     string
	TaskID   int
	Attempt  int
	Version  string
	Tags     map[string]string
}

type activityInfoKey struct{}

func withActivityInfo(ctx context.Context, w *provider.ActivityWorkItem) context.Context {
	return context.WithValue(ctx, activityInfoKey{}, ActivityInfo{
		Instance: w.Instance, Name: w.Task.Name, TaskID: w.Task.EventID, Attempt: w.Attempt,
		Version: w.Task.Version, Tags: w.Task.Tags,
	})
}

// ActivityInfoFrom returns the info of the activity that runs with ctx. It returns ok == false
// if ctx belongs to no activity.
func ActivityInfoFrom(ctx context.Context) (info ActivityInfo, ok bool) {
	info, ok = ctx.Value(activityInfoKey{}).(ActivityInfo)
	return info, ok
}
