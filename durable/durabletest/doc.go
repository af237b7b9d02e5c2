// Package durabletest is for testing orchestrators: a task hub in memory, in
// virtual time, that runs them as a worker does.
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
// # What happens, and when
//
// A [Hub] has its own clock, which begins at midnight of 1 January 2000, UTC,
// and stands still while anything runs. When nothing is left to do at one time,
// the clock jumps to the next: a timer's, that of the end of an activity which
// takes time ([Spend]), or one chosen by [Hub.After]. Nothing sleeps and nothing
// runs in the background: all happens inside of [Run], [Start],
// [Instance.Wait], [Hub.Advance] and the like, on the goroutine that calls them.
//
// The order is always the same. At one time,
//
//  1. what [Hub.After] was given comes first, in the order in which it was given;
//  2. then activities run, one at a time, in the order in which they were
//     scheduled;
//  3. then instances take their messages, all that have come, in the order in
//     which the first came. Of one instance, those that were sent first come
//     first; that of a timer counts as sent when the timer was made.
//
// # Every run is a replay test
//
// After each episode, the orchestrator is run again from the start on its
// history, as a worker does that has not seen it before. If it does anything
// else than the first time, the test fails there, with what differs: another
// call, another input, another result or another custom status.
//
// # Entities
//
// Entities perform their operations in the hub's time, too. [Signal] sends one an
// operation, [State] returns what it is, and [StubOperation] puts something else in
// an operation's place.
//
// # When nothing can happen any more
//
// An instance that waits for what can never come fails the test at once. The
// message says what each instance of the hub waits for, and since when.
//
// An orchestrator that waits for something other than a durable task, such as a channel, fails
// the test after ten seconds without a durable call. The message has its stack. The test's clock
// measures the seconds, not the hub's: in a bubble of testing/synctest they pass at once. Its
// goroutine stays, so the bubble then also reports a deadlock.
//
// # What is not there
//
// Activities that an orchestrator calls by name must be stubbed with [StubName].
// So must HTTP requests: a hub sends none, and a test whose orchestrator makes one
// fails if durable.HTTPActivityName is not stubbed.
//
// # Recorded histories
//
// [Replay] tests that today's code still fits the history of an instance that
// ran yesterday.
package durabletest
