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
	Poll     int // number of the call of a poll's function, from 1
}

type activityInfoKey struct{}

func withActivityInfo(ctx context.Context, w *provider.ActivityWorkItem) context.Context {
	return context.WithValue(ctx, activityInfoKey{}, ActivityInfo{
		Instance: w.Instance, Name: w.Task.Name, TaskID: w.Task.EventID, Attempt: w.Attempt,
		Version: w.Task.Version, Tags: w.Task.Tags,
	})
}

// WithTry returns the context of an attempt at a step within one of its runs. A run has up to most
// attempts.
func WithTry(ctx context.Context, try, most int) context.Context {
	info, ok := ActivityInfoFrom(ctx)
	if !ok || most < 2 {
		return ctx
	}
	info.Attempt = (info.Attempt-1)*most + try
	return context.WithValue(ctx, activityInfoKey{}, info)
}

// ActivityInfoFrom returns the info of the activity that runs with ctx. It returns ok == false
// if ctx belongs to no activity.
func ActivityInfoFrom(ctx context.Context) (info ActivityInfo, ok bool) {
	info, ok = ctx.Value(activityInfoKey{}).(ActivityInfo)
	return info, ok
}
