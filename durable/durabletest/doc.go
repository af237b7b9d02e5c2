// Package durabletest is a test kit for orchestrators and entities. It runs them on a task hub in memory,
// in virtual time, with a worker's engine.
//
//	func TestPlaceOrder_ReleasesStockWhenCardIsDeclined(t *testing.T) {
//		hub := durabletest.New(t, functions...)
//		durabletest.Stub(hub, Charge, func(context.Context, Order) (string, error) {
//			return "", errors.New("card declined")
//		})
//
//		_, err := durabletest.Run(hub, PlaceOrder, Order{ID: "42", Cents: 999})
//
//		if err == nil || !strings.Contains(err.Error(), "card declined") {
//			t.Errorf("err = %v, want card declined", err)
//		}
//		if got, want := hub.Elapsed(), 35*time.Second; got != want {
//			t.Errorf("took %v, want %v", got, want)
//		}
//	}
//
// # Time and order
//
// A [Hub] has its own clock. The clock starts at midnight UTC on 1 January 2000 and stands still while
// code runs. When no work is left at the current time, the clock jumps to the time at which the next work
// is due. Examples are a timer, an activity that ends after a duration ([Spend]), and a function passed to
// [Hub.After]. The hub never sleeps and has no background goroutines. All work happens inside [Run],
// [Start], [Instance.Wait], [Hub.Advance] and similar calls, on the calling goroutine.
//
// The order of work at one time is fixed:
//
//  1. Functions passed to [Hub.After] run, in the order in which they were passed.
//  2. Activities run, one at a time, in the order in which they were scheduled.
//  3. Instances process their messages. Each instance processes all messages that have
//     arrived; the instance with the oldest message runs first. An instance processes
//     its messages in the order in which they were sent. A timer's message counts as
//     sent when the timer was created.
//
// # Every run is a replay test
//
// After each episode, the hub replays the orchestrator on its history from the start, as a worker does if
// the instance is not in memory. If the replay differs from the first run, the test fails at that episode
// and reports the difference: another call, input, result or custom status.
//
// # Entities
//
// Entities perform their operations in the hub's time. [Signal] sends an operation to an entity, [State]
// returns an entity's state, and [StubOperation] replaces an operation.
//
// # Instances that cannot continue
//
// If an instance waits for something that can never happen, the test fails immediately. The message lists
// what each instance of the hub waits for, and since when.
//
// If an orchestrator blocks on something other than a durable task, such as a channel, the test fails
// after ten seconds without a durable call. The message contains the orchestrator's stack. The ten seconds
// are measured by the test's clock, not by the hub's; in a testing/synctest bubble they pass at once. The
// blocked goroutine stays, so the bubble then also reports a deadlock.
//
// Go's race detector can crash in a bubble on several processors (https://go.dev/issue/78156). Run tests with
// bubbles and the race detector with GOMAXPROCS=1.
//
// # Limitations
//
// To stub an activity that is called by name, use [StubName]. The hub sends no HTTP requests: a test whose
// orchestrator makes one fails unless it stubs durable.HTTPActivityName.
//
// # Recorded histories
//
// [Replay] tests that the current code still fits the history of an instance that ran with earlier code.
package durabletest
