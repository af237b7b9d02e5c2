// Package durable is for writing and running durable functions: orchestrations
// that survive crashes, deployments and months of waiting, written as plain Go
// functions.
//
// # Orchestrators and activities
//
// An orchestrator is a function that says what is to be done, and in which
// order. The work itself is done by activities, which are ordinary functions:
//
//	func SayHello(ctx context.Context, city string) (string, error) {
//		return "Hello " + city + "!", nil
//	}
//
//	func HelloSequence(ctx *durable.Context, _ durable.Void) ([]string, error) {
//		var greetings []string
//		for _, city := range []string{"Tokyo", "Seattle", "London"} {
//			greeting, err := durable.CallActivity(ctx, SayHello, city).Await()
//			if err != nil {
//				return nil, err
//			}
//			greetings = append(greetings, greeting)
//		}
//		return greetings, nil
//	}
//
// Functions are called by reference, so that inputs and results are checked by
// the compiler. Their names on the wire are said once, at registration:
//
//	registry := durable.NewRegistry(
//		durable.Orchestrator("HelloSequence", HelloSequence),
//		durable.Activity("SayHello", SayHello),
//	)
//
// Activities get what they need, such as a connection to a database, as the fields of a
// struct whose methods they are: the method value payments.Charge is registered, and
// (*Payments)(nil).Charge is called, since a call names the method only. [Registry.Add]
// says how functions are recognised.
//
// # Running them
//
// A [Worker] runs a registry's functions for a task hub; a [Client] starts
// instances and asks after them. Both work on a provider, such as package
// azurestorage:
//
//	worker := durable.NewWorker(hub, registry, durable.Config{})
//	go worker.Run(ctx)
//
//	client := durable.NewClient(hub, registry)
//	instance, err := durable.Start(ctx, client, HelloSequence, durable.Void{})
//	greetings, err := instance.Wait(ctx)
//
// # Waiting
//
// What takes time is a [Task]: an activity, an HTTP request ([CallHTTP]), a timer
// ([Context.Timer]), an external event ([Event]) or a branch of the orchestrator
// itself ([Go]). Begin several, and they go on at the same time. [Task.Await]
// waits for one, [AwaitAll] for all, [AwaitAny] for the first, [AsCompleted] for
// each in the order in which they complete, and [Task.AwaitTimeout] for a
// limited time.
//
// Rule for the reader: package functions take the [Context] first; methods of
// what they return take none.
// Clients Start, Raise and Signal; an orchestration and an entity do the same by
// methods that end in From, such as [Event.RaiseFrom].
//
// # Failures
//
// What fails elsewhere is a [TaskFailedError] here. A [RetryPolicy] tries it
// again, with durable timers in between, unless it was marked [NonRetryable]:
//
//	policy := durable.RetryPolicy{MaxAttempts: 4, FirstInterval: 5 * time.Second, Coefficient: 2}
//	receipt, err := durable.CallActivity(ctx, Charge, order, policy).Await()
//
// Error types and values that are to be found again with errors.As and errors.Is
// get a name in the registry, with [ErrorType] and [ErrorValue]. What was done
// already is undone where the error is handled.
//
// # Orchestrations among themselves
//
// [CallSubOrchestrator] starts another orchestration as a child and waits for
// it. The child is an instance of its own, with its own history, which helps an
// orchestrator that would do thousands of things. [Event.RaiseFrom] raises an event
// for another instance.
//
// # Entities
//
// An entity is a value with a name and a key, which is stored, and changed by one
// operation at a time. Its operations are methods of its type:
//
//	type Counter struct {
//		Total int64 `json:"total"`
//	}
//
//	func (c *Counter) Add(ctx *durable.EntityContext, n int64) (int64, error) {
//		c.Total += n
//		return c.Total, nil
//	}
//
//	durable.Entity("Counter", durable.Op("add", (*Counter).Add))
//
// They are named by method expression where they are called, so that the compiler
// checks the state, the input and the result:
//
//	const meter = durable.EntityKey[Counter]("meter-7")
//
//	total, err := durable.CallEntity(ctx, meter, (*Counter).Add, 5).Await()
//	durable.SignalEntity(ctx, meter, (*Counter).Add, 5, durable.SignalAfter(time.Hour))
//
// An entity need not be created: its first operation finds the type's zero value, or
// what [InitialState] says. An operation that fails changes nothing, and sends
// nothing. A client signals by [Signal] and reads by [ReadEntity];
// [Client.AllEntities] finds entities, and [Client.CleanEntities] removes what is
// left of those that were deleted. Entities of other programs are named by an
// [EntityID], and their operations by an [EntityOperation].
//
// An orchestrator that changes several entities together locks them:
//
//	unlock := durable.LockEntities(ctx, from, to)
//	defer unlock()
//
// Unlike other durable calls, unlock may be deferred.
//
// # How it lasts
//
// While an orchestrator waits, it need not exist. Its history is stored: what
// it began and what came of it. To go on, in whichever process, the function is
// run again from its beginning, and everything that has happened is given to
// it at once. This is why it must do the same every time it gets the same
// results. In an orchestrator
//
//   - take time, UUIDs and messages to the log from the [Context];
//   - leave random numbers, I/O, environment variables and anything that blocks
//     to activities;
//   - start no goroutines and use no channels or locks: use [Go];
//   - do not range over maps where the order shows;
//   - make durable calls where errors are handled, not in deferred calls, which
//     also run when the orchestrator is taken out of memory;
//   - change the code only so that instances which are under way take the same
//     path, by [Context.Patched] if need be, give those that are new another
//     [Version], or wait until the old ones have ended.
//
// An orchestrator that blocks without a durable call, or computes without end, is given up
// after 30 s. The worker holds its instance back, as [Config] says. If a goroutine that
// it started has made a durable call, the instance fails with a [UsageError] instead.
//
// An orchestrator that does something else than its history says fails with a
// [NonDeterminismError] that names the difference, or waits for code that fits, as
// [Config] says.
//
// An orchestrator that goes on for ever ends each round with [ContinueAsNew],
// which begins with an empty history; [Context.HistoryLength] tells when it is
// time.
//
// # Versions
//
// An instance keeps the version that it was started with. New code can ask for
// it, with [Context.VersionAtLeast], or stand beside the old under the same name:
//
//	durable.Orchestrator("Checkout", checkoutV1, durable.Version("1.0")),
//	durable.Orchestrator("Checkout", Checkout, durable.Version("2.0")),
//
// Workers of several versions can share a hub: each takes the instances that its
// [Config] says, by default those that are not newer than itself.
//
// # Guarantees
//
// An orchestrator sees the result of every activity that it began exactly
// once. The activity itself runs at least once: if a worker is lost before the
// result is stored, another runs it again. External events are delivered at
// least once, in no particular order if different senders raised them.
//
// An operation of an entity may be performed again, too, if a worker is lost. But
// what it did to the entity's state, and what it sent, counts exactly once. What
// one orchestration or entity sends to an entity is performed in the order in which
// it was sent.
//
// A panic in an activity fails its task, one in an operation the operation; a panic
// in an orchestrator fails the instance. None ends the process.
package durable
