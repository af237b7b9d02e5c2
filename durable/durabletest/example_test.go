package durabletest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
)

// t stands for the *testing.T of a test in these examples.
type t struct{ cleanups []func() }

func (*t) Helper()                           {}
func (*t) Logf(format string, args ...any)   { fmt.Printf(format+"\n", args...) }
func (*t) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (t *t) Cleanup(f func())                { t.cleanups = append(t.cleanups, f) }

func (t *t) end() {
	for _, f := range t.cleanups {
		f()
	}
}

// A card is declined four times, with 35 seconds of retry delays. Then the reservation is
// released. The test takes no real time.
func Example() {
	t := new(t)
	defer t.end()
	order := func(ctx *durable.Context, o Order) (string, error) {
		reservation, err := durable.CallActivity(ctx, Reserve, o).Await()
		if err != nil {
			return "", err
		}
		retry := durable.RetryPolicy{MaxAttempts: 4, FirstInterval: 5 * time.Second, Coefficient: 2}
		receipt, err := durable.CallActivity(ctx, Charge, o, retry).Await()
		if err != nil {
			_, undone := durable.CallActivity(ctx, Release, reservation).Await()
			return "", errors.Join(fmt.Errorf("charge card: %w", err), undone)
		}
		return receipt, nil
	}

	hub := durabletest.New(t,
		durable.Orchestrator("Order", order),
		durable.Activity("Reserve", Reserve),
		durable.Activity("Charge", Charge),
		durable.Activity("Release", Release),
	)
	durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) {
		return "", errors.New("card declined")
	})
	_, err := durabletest.Run(hub, order, Order{ID: "42", Cents: 999})

	fmt.Println(err)
	fmt.Println("released", durabletest.Calls(hub, Release), "after", len(durabletest.Calls(hub, Charge)), "attempts in", hub.Elapsed())
	// Output:
	// orchestration instance-1 failed: *durable.TaskFailedError: charge card: Task 'Charge' (#7) failed with an unhandled exception: card declined
	// released [r-42] after 4 attempts in 35s
}

// A fan-out over activities with different durations.
func ExampleSpend() {
	t := new(t)
	defer t.end()
	hub := durabletest.New(t, functions...)
	durabletest.Stub(hub, CopyFile, func(ctx context.Context, f string) (int64, error) {
		durabletest.Spend(ctx, time.Duration(len(f))*time.Minute)
		return int64(len(f)), nil
	})

	total, err := durabletest.Run(hub, Backup, "/home")

	fmt.Println(total, err, hub.Elapsed())
	// Output:
	// 6 <nil> 3m0s
}

// One approval arrives in time; another one does not.
func ExampleHub_After() {
	t := new(t)
	defer t.end()
	hub := durabletest.New(t, functions...)
	answered := durabletest.Start(hub, Approve, Order{ID: "1"})
	ignored := durabletest.Start(hub, Approve, Order{ID: "2"})
	fmt.Println(answered.Status(), answered.CustomStatus())

	hub.After(48*time.Hour, func() { durabletest.Raise(answered, Approval, Decision{Approved: true, By: "ana"}) })

	fmt.Println(answered.Wait())
	fmt.Println(hub.Elapsed())
	fmt.Println(ignored.Wait())
	fmt.Println(hub.Elapsed())
	// Output:
	// Running "waiting for approval"
	// approved by ana <nil>
	// 48h0m0s
	// escalated 2 <nil>
	// 72h0m0s
}

// A monitor that continues as new each hour.
func ExampleStub() {
	t := new(t)
	defer t.end()
	hub := durabletest.New(t, functions...)
	looks := 0
	durabletest.Stub(hub, JobDone, func(context.Context, string) (bool, error) {
		looks++
		return looks == 25, nil
	})

	done, err := durabletest.Run(hub, Monitor, Watch{Job: "j", Every: time.Hour, Until: hub.Now().AddDate(0, 0, 7)})

	fmt.Println(done, err, hub.Elapsed())
	// Output:
	// true <nil> 24h0m0s
}

// The test fails if the event that the orchestrator waits for is never raised.
func ExampleInstance_Wait() {
	r := record(func(t durabletest.TB) {
		hub := durabletest.New(t, functions...)
		_, _ = durabletest.Run(hub, Decide, durable.Void{})
	})
	fmt.Println(r.fatal)
	// Output:
	// durabletest: instance "instance-1" cannot end: no work or timer is left. The hub's time is 2000-01-01T00:00:00Z, 0s after New.
	//   "instance-1" of Decide, Running:
	//     waits for event Approval, since 2000-01-01T00:00:00Z (0s ago)
	//     waits for event Withdrawn, since 2000-01-01T00:00:00Z (0s ago)
	// Raise the event before you wait for the instance, or at a chosen time with Hub.After.
}

// Replay fails if the code no longer fits a recorded history.
func ExampleReplay() {
	r := record(func(t durabletest.TB) {
		durabletest.Replay(t, journeys(), "testdata/recorded/under-way.rows.json")
		fmt.Println("the code fits")
		newer := func(ctx *durable.Context, t trip) (string, error) {
			return durable.CallActivity(ctx, forecast, t.Cities[0]).Await()
		}
		durabletest.Replay(t, changed(durable.Orchestrator("Journey", newer)), "testdata/recorded/under-way.rows.json")
	})
	fmt.Println(firstLines(r.fatal, 1))
	// Output:
	// the code fits
	// durabletest: the code does not match the recorded history testdata/recorded/under-way.rows.json.
}
