package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// functions are the functions under test.
var functions = []*durable.Registration{
	durable.Orchestrator("PlaceOrder", PlaceOrder),
	durable.Orchestrator("Backup", Backup),
	durable.Orchestrator("Monitor", Monitor),
	durable.Orchestrator("Approve", Approve),
	durable.Orchestrator("Decide", Decide),
	durable.Orchestrator("Ship", ShipOrder),
	durable.Activity("Reserve", Reserve),
	durable.Activity("Charge", Charge),
	durable.Activity("Release", Release),
	durable.Activity("ListFiles", ListFiles),
	durable.Activity("CopyFile", CopyFile),
	durable.Activity("JobDone", JobDone),
	durable.Activity("RequestApproval", RequestApproval),
	durable.Activity("Escalate", Escalate),
}

type Order struct {
	ID    string `json:"id"`
	Cents int    `json:"cents"`
}

// PlaceOrder calls activities in sequence and compensates on failure.
func PlaceOrder(ctx *durable.Context, o Order) (string, error) {
	reservation, err := durable.CallActivity(ctx, Reserve, o).Await()
	if err != nil {
		return "", fmt.Errorf("reserve stock: %w", err)
	}
	receipt, err := durable.CallActivity(ctx, Charge, o).Await()
	if err != nil {
		if _, undone := durable.CallActivity(ctx, Release, reservation).Await(); undone != nil {
			err = errors.Join(err, undone)
		}
		return "", fmt.Errorf("charge card: %w", err)
	}
	return receipt, nil
}

func Reserve(_ context.Context, o Order) (string, error) { return "r-" + o.ID, nil }
func Charge(_ context.Context, o Order) (string, error)  { return "c-" + o.ID, nil }
func Release(context.Context, string) (durable.Void, error) {
	return durable.Void{}, nil
}

// Backup fans out to activities and adds up their results.
func Backup(ctx *durable.Context, dir string) (total int64, err error) {
	files, err := durable.CallActivity(ctx, ListFiles, dir).Await()
	if err != nil {
		return 0, err
	}
	tasks := make([]*durable.Task[int64], len(files))
	for i, f := range files {
		tasks[i] = durable.CallActivity(ctx, CopyFile, f)
	}
	sizes, err := durable.AwaitAll(ctx, tasks...)
	for _, n := range sizes {
		total += n
	}
	return total, err
}

func ListFiles(context.Context, string) ([]string, error) { return []string{"a", "bb", "ccc"}, nil }
func CopyFile(_ context.Context, f string) (int64, error) { return int64(len(f)), nil }

type Watch struct {
	Job   string
	Every time.Duration
	Until time.Time
}

// Monitor checks a job periodically and continues as new after each check.
func Monitor(ctx *durable.Context, w Watch) (bool, error) {
	done, err := durable.CallActivity(ctx, JobDone, w.Job).Await()
	if err != nil || done || ctx.Now().After(w.Until) {
		return done, err
	}
	ctx.Sleep(w.Every)
	return durable.ContinueAsNew(ctx, Monitor, w)
}

func JobDone(context.Context, string) (bool, error) { return false, nil }

type Decision struct {
	Approved bool
	By       string
}

const (
	Approval  = durable.Event[Decision]("Approval")
	Withdrawn = durable.Event[durable.Void]("Withdrawn")
)

// Approve waits for an approval, with a timeout.
func Approve(ctx *durable.Context, o Order) (string, error) {
	if _, err := durable.CallActivity(ctx, RequestApproval, o).Await(); err != nil {
		return "", err
	}
	ctx.SetCustomStatus("waiting for approval")
	d, err := Approval.Wait(ctx).AwaitTimeout(72 * time.Hour)
	switch {
	case errors.Is(err, durable.ErrTimeout):
		return durable.CallActivity(ctx, Escalate, o).Await()
	case err != nil:
		return "", err
	case !d.Approved:
		return "refused by " + d.By, nil
	}
	return "approved by " + d.By, nil
}

// Decide waits for either of two events, without a timeout.
func Decide(ctx *durable.Context, _ durable.Void) (string, error) {
	approval, withdrawn := Approval.Wait(ctx), Withdrawn.Wait(ctx)
	if durable.AwaitAny(ctx, approval, withdrawn) == withdrawn {
		return "withdrawn", nil
	}
	d, err := approval.Await()
	return "decided by " + d.By, err
}

func RequestApproval(context.Context, Order) (durable.Void, error) { return durable.Void{}, nil }
func Escalate(_ context.Context, o Order) (string, error)          { return "escalated " + o.ID, nil }

// Carry is an activity that another program implements.
const Carry = durable.ActivityName[Order, string]("Carry")

func ShipOrder(ctx *durable.Context, o Order) (string, error) { return Carry.Call(ctx, o).Await() }
