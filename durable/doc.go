// Package durable runs durable functions: orchestrations that survive crashes,
// deployments and months of waiting, written as plain Go functions.
//
// # Orchestrators and activities
//
// An orchestrator is a function that decides which work is done, and in which order.
// Activities do the work. They are ordinary functions:
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
// You call functions by reference, so the compiler checks inputs and results.
// Registration gives each function its wire name:
//
//	registry := durable.NewRegistry(
//		durable.Orchestrator("HelloSequence", HelloSequence),
//		durable.Activity("SayHello", SayHello),
//	)
//
// To give an activity its dependencies, such as a database connection, make it a method
// of a struct that holds them. Register the method value, payments.Charge, and call the
// method by name, (*Payments)(nil).Charge. [Registry.Add] explains how functions are
// matched.
//
// # Steps
//
// A step is short work that needs no registration: a function literal that the worker
// of the orchestrator calls. Its result is stored when it returns:
//
//	receipt, err := durable.Step(ctx, "charge", func(ctx context.Context) (Receipt, error) {
//		return bank.Charge(ctx, order)
//	}).Await()
//
// [Step] describes its guarantees and options. [Poll] calls a function until it is done.
//
// # Workers and clients
//
// A started orchestrator is an orchestration: an instance with an ID. A task hub stores
// the instances, their histories and the messages to them. A provider implements it:
// package embedded in a local file, package azurestorage in an Azure Storage account. A
// [Worker] runs the functions of a registry for a hub. A [Client] starts and queries
// instances:
//
//	worker := durable.NewWorker(hub, registry, durable.Config{})
//	go worker.Run(ctx)
//
//	client := durable.NewClient(hub, registry)
//	instance, err := durable.Start(ctx, client, HelloSequence, durable.Void{})
//	greetings, err := instance.Wait(ctx)
//
// # Tasks
//
// A [Task] is a future result: an activity, a step, an HTTP request ([CallHTTP]), a timer
// ([Context.Timer]), an external event ([Event]), a child orchestration, an entity call
// or a branch of the orchestrator ([Go]). To run tasks concurrently, create them before
// you await the first one. Several functions wait for tasks:
//
//   - [Task.Await] waits for one task.
//   - [Task.AwaitTimeout] waits for one task, but not longer than a given time.
//   - [AwaitAll] waits for all tasks.
//   - [AwaitAny] waits for the first task that completes.
//   - [AsCompleted] returns tasks in the order in which they complete.
//
// Functions take the [Context] as their first argument. So do the methods of [Event],
// [ActivityName] and similar types. The methods of a [Task] take no Context.
//
// Clients use Start, Raise and Signal. Orchestrators and entities use the functions and
// methods that end in From instead: [StartFrom], [SignalFrom], [Event.RaiseFrom].
//
// # Options
//
// An option is a value at the end of a call. It is a value of a type with other uses
// ([InstanceID], [Version], [Tags], [RetryPolicy]), a constant ([Recursive],
// [FireAndForget], [DiscardEvents], [AtMostOnce]), or the result of a function
// ([StartAt], [SignalAfter], [Tries]). The compiler accepts an option only where it has
// an effect. The comment of an option lists these calls after "Applies to".
//
// # Failures
//
// A failed activity, step, child or entity call returns a *[TaskFailedError]. A
// [RetryPolicy] repeats activities, steps and children after durable delays, unless the
// error is marked [NonRetryable]:
//
//	policy := durable.RetryPolicy{MaxAttempts: 4, FirstInterval: 5 * time.Second, Coefficient: 2}
//	receipt, err := durable.CallActivity(ctx, Charge, order, policy).Await()
//
// Register error types and values with [ErrorType] and [ErrorValue] to match them with
// errors.As and errors.Is across processes. To compensate for completed work, call the
// compensating activities where you handle the error.
//
// # Child orchestrations
//
// [CallSubOrchestrator] starts another orchestration as a child, also called a
// sub-orchestration. Its task completes when the child has ended. The child is an
// instance with its own history. Use children to split an orchestration of thousands of
// calls. [Event.RaiseFrom] raises an event for another instance.
//
// # Entities
//
// An entity is a stored value with a name and a key. Operations change it, one at a
// time. They are methods of its type:
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
// Calls name the operation by its method expression, so the compiler checks the state,
// the input and the result:
//
//	const meter = durable.EntityKey[Counter]("meter-7")
//
//	total, err := durable.CallEntity(ctx, meter, (*Counter).Add, 5).Await()
//	durable.SignalFrom(ctx, meter, (*Counter).Add, 5, durable.SignalAfter(time.Hour))
//
// Entities are created on first use: the first operation gets the zero value of the
// type, or the value of [InitialState]. An operation that fails changes nothing and
// sends nothing. Clients send signals with [Signal] and read states with [ReadEntity].
// [Client.AllEntities] lists entities, and [Client.CleanEntities] removes the remains
// of deleted ones. Use [EntityID] and [EntityOperation] to address entities of other
// programs.
//
// An orchestrator that changes several entities together locks them:
//
//	unlock := durable.LockEntities(ctx, from, to)
//	defer unlock()
//
// Unlike other durable calls, unlock may be deferred.
//
// # Replay
//
// A waiting orchestrator can be unloaded from memory. Its history is stored: the tasks
// that it started and their results. When an event arrives, in any process, the
// function runs again from the top, and completed tasks return their recorded results
// immediately. An orchestrator must therefore be deterministic: given the same results,
// it must make the same calls.
//
// One run from the arrival of an event until the orchestrator waits again is an
// episode. All episodes on one history form an execution. The orchestrator's calls,
// timers, sent events and other decisions are the actions of the execution, numbered
// from 0.
//
// In an orchestrator:
//
//   - Get the time, UUIDs and a logger from the [Context].
//   - Move random numbers, I/O, environment variables and blocking calls to activities.
//   - Use [Go] instead of goroutines, channels and locks.
//   - Do not range over a map if the order affects what the orchestrator does.
//   - Make durable calls where you handle errors, not in deferred calls. Deferred calls
//     also run when the orchestrator is unloaded from memory.
//   - When you change the code, running instances must still take the path that they
//     took. Use [Context.Patched], give new instances another [Version], or wait until
//     the old instances have ended.
//
// If an orchestrator blocks outside durable calls or computes for 30 seconds, the
// worker stops waiting for it and holds its instance back: the instance does not run
// again until an operator acts (see [Config.StallTimeout]). If a goroutine that the
// orchestrator started has made a durable call, the instance fails with a [UsageError]
// instead.
//
// If an orchestrator deviates from its history, its instance fails with a
// [NonDeterminismError] that describes the difference. With
// [Config.HoldNonDeterministic] the instance waits for matching code instead.
//
// An orchestrator that runs forever ends each execution with [ContinueAsNew], which
// starts the next one with an empty history. Use [Context.HistoryLength] to decide
// when.
//
// # Versions
//
// An instance keeps the version that it was started with. New code can check the
// version with [Context.VersionAtLeast], or be registered next to the old code under
// the same name:
//
//	durable.Orchestrator("Checkout", checkoutV1, durable.Version("1.0")),
//	durable.Orchestrator("Checkout", Checkout, durable.Version("2.0")),
//
// Workers of several versions can share a hub. [Config.VersionMatch] selects the
// instances that a worker accepts, by default those that are not newer than the worker.
//
// # Guarantees
//
// An orchestrator sees the result of each activity that it started exactly once. The
// activity itself runs at least once: if a worker crashes before the result is stored,
// another worker runs the activity again. External events are delivered at least once;
// order is preserved per sender only.
//
// An entity operation may also run again after a crash of its worker. Its effect on the
// state and the messages that it sent count exactly once. Entities process the messages
// of one orchestration or entity in the order in which they were sent.
//
// A panic in an activity fails its task, a panic in an operation fails the operation,
// and a panic in an orchestrator fails the instance. The process continues.
package durable
