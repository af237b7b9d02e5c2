// Package durablecheck finds code that makes an orchestrator behave differently on replay.
//
// When an event arrives for an instance, its orchestrator runs again from the start. It must then make
// the same durable calls in the same order. Its code may depend only on its input, on the results of
// the tasks that it awaits, and on its *durable.Context.
//
// # Usage
//
// Run it with go vet, which caches results:
//
//	go install github.com/durablefunctions-go/durablefunctions/durable/durablecheck/cmd/durablecheck@latest
//	go vet -vettool=$(which durablecheck) ./...
//
// Always name the same packages. Go 1.26 vets imported packages without diagnostics and caches that
// result. If you name such a package later, go vet reports nothing for it. go vet -a ignores the
// cache.
//
// As a program of its own, `durablecheck ./...` prints the same diagnostics and caches nothing. To
// include it in a program with several analyzers, for example with multichecker, use [Analyzer].
//
// For golangci-lint it is a module plugin; see package golangci in this directory for .custom-gcl.yml
// and .golangci.yml. It reports the same findings as go vet, also for calls into other packages, but
// shows only one finding per line unless issues.uniq-by-line is false.
//
// # Scope
//
// Every function, method and function literal whose first parameter is a *durable.Context is an
// orchestrator. The analyzer checks orchestrators and all functions that they call, in any package. It
// does not check activities, whose first parameter is a context.Context.
//
// A function that is mentioned without a call, for example as an argument, counts as called.
// Orchestrators and activities are the exception: they are arguments of the calls that start them. A
// function literal counts as called where it is written. In a function that is not an orchestrator, a
// literal does not count if it is only returned or stored in a struct.
//
// A diagnostic contains the operation, the reason why it breaks replay, the alternative, and the chain
// of calls from the orchestrator:
//
//	time.Now, reached via stamp → clock, reads the machine's clock, which differs on replay; use ctx.Now()
//
// The rules are the categories of the diagnostics:
//
//	clock     time.Now, Since, Until
//	timer     time.Sleep, After, Tick, NewTimer, NewTicker, AfterFunc
//	random    math/rand, math/rand/v2, crypto/rand, hash/maphash, new keys of other crypto
//	          packages, and the functions of github.com/google/uuid that create a new ID.
//	          Allowed: generators with a seed from the caller (rand.New), and IDs derived
//	          from names (uuid.NewSHA1)
//	env       the environment, arguments, host and process: os.Getenv, os.Hostname, runtime.NumCPU
//	io        os, net, net/http, database/sql, os/exec and other packages that read or write
//	          files, connections and processes. Allowed: error values and tests of them,
//	          constants, and functions that only compute, such as net.ParseIP or http.StatusText
//	go        go statements
//	select    select statements
//	channel   creating, closing, sending to, receiving from and ranging over channels
//	sync      everything in sync and sync/atomic
//	thread    runtime.LockOSThread, which ends the process in a coroutine, and runtime.Goexit
//	variable  package-level variables, see below
//	maporder  ranging over a map, see below
//	defer     durable calls in a deferred call. Deferred calls also run when an instance is
//	          unloaded from memory; compensate in plain code after the error instead
//	activity  calls of functions with a context.Context: a directly called activity or similar
//	          function runs unrecorded. The standard library has its own rules
//	context   waiting for a context.Context: WithTimeout, WithDeadline, AfterFunc, Done, Err,
//	          Deadline; and returning one
//	client    functions for use outside of orchestrators: durable.Start, methods of the client
//	patch     ctx.Patched with an ID that is not a constant. Such IDs cannot be listed, and a
//	          computed ID may differ on replay
//	step      functions of durable.Step and durable.Poll that make durable calls, use the
//	          Context or change captured variables, and changes of these while the step may run
//	log       fmt.Print, log, the default logger of log/slog, print. Each replay repeats the
//	          line. This is less severe than the other rules; the message says "prefer"
//	ignore    an ignore comment without a reason
//
// # Package-level variables
//
// A package-level variable is mutable if its package changes it outside of its declaration and of init
// functions. Changes are assignments to the variable, an element or a field of it, also through a
// pointer. Deleting from it, taking its address, and calling a method that changes its receiver count as
// changes too. Reading a mutable variable is reported, and so is changing any variable. Methods of types
// in other modules do not count as changes, except methods of buffers, lists and random number generators
// of the standard library. Assignments in tests to variables of the tested code do not count. Variables
// that never change are allowed: error values, compiled patterns, tables.
//
// A variable that is initialized with a function stands for that function. A variable whose initializer
// uses the time, a random number or the environment is reported like a direct use, because its value
// differs between processes.
//
// # Map order
//
// A range over a map, or over maps.Keys, Values or All, is reported if its body calls ctx.NewUUID or
// makes a durable call, also through other functions. A callback of maps.DeleteFunc or EqualFunc counts
// as such a body. A loop is also reported if the iteration order has an effect after it, because the body
//
//   - appends to a slice that the function does not sort before it uses the order (with package
//     sort or slices, or with a function whose name starts with Sort),
//   - concatenates strings or adds floating-point numbers,
//   - writes to a builder, a buffer, a hash or a writer, or adds to a list or a header,
//   - sets a variable, or an element for another key, to a value that depends on the
//     iteration (unless an enclosing if compares the two, as for a maximum),
//   - returns a value that depends on the iteration, or ends the loop early after it has
//     counted or added.
//
// Allowed are sums of integers, counts, copies and sets by key, max and min. Also allowed are searches
// with == on the key, and early exits with a constant. A function that returns a slice in map order is
// not reported itself. Its callers are reported unless they sort the slice, or only count or search it.
// maps.Keys, reflect.Value.MapKeys and similar functions are treated like such a function. So are
// initial values of package-level variables, because each process has another order. A sorted copy does
// not make the original safe. The analyzer knows the effect of each function of the standard library
// that takes or returns maps or sequences; other functions are assumed to depend on the order.
//
// # Steps
//
// The rules for orchestrators do not apply to the function of a step or a poll: it may use clocks, random
// numbers, I/O and goroutines. The function is a literal, a local variable with a literal, or a named function or
// method. Four things are reported:
//
//   - Durable calls in it, also through other functions. A step inside a step is one of them.
//   - Uses of the orchestrator's Context.
//   - Changes of variables that it captures, because a replay does not run the step. Changes are
//     assignments, also of a field, an element or through a pointer, deleting, sorting, methods
//     that change their receiver, and addresses that it passes to functions such as
//     json.Unmarshal.
//   - Changes by the orchestrator of variables that a literal captures, between the call and the
//     Await of the task. They are a data race. In a loop that does not wait for the task, changes
//     of a variable from outside of the loop are reported wherever they stand in the loop. A range
//     over the tasks, and AwaitAll, wait for all of them. AwaitAny and AwaitTimeout do not end a
//     step.
//
// # Other modules
//
// The analyzer follows calls into other modules, but not into the standard library, where only the
// listed functions count. In other modules, locks, package-level variables, log lines, map order and
// contexts are not reported, because they usually protect caches. If a call into another module breaks
// several rules, only the first is reported. The internals of package durable are never checked.
//
// # Ignoring findings
//
// The comment
//
//	//durablecheck:ignore <reason>
//
// marks code as safe. Write it at the end of the line, alone on the line above, or in the doc comment
// of the function. In a function that orchestrators call, it applies to all of them. On an assignment
// to a package-level variable, it means that this assignment does not make the variable mutable. A
// comment without a reason has no effect and is reported.
//
// # Limitations
//
// The analyzer does not find:
//
//   - Calls through an interface, through a function in a field, a map or a parameter, or by
//     reflection; and String and MarshalJSON methods that fmt and encoding/json call.
//   - Function literals that are returned by a function that is not an orchestrator.
//   - State that is not package-level: fields behind a pointer that the receiver of an
//     orchestrator method, or the code around a literal, shares with other code.
//   - Changes of package-level variables through another pointer to the same value.
//   - Changes of package-level variables by a package that imports the variable's package,
//     because facts flow with imports.
//   - The order of maps within types that have their own iterators, and of maps that
//     encoding/gob writes. fmt, encoding/json and text/template sort maps.
//   - Sorts by a comparison that treats different elements as equal. Their order remains the
//     order of the map.
//   - Uses before a sort other than durable calls, returns, fixed indexes and functions of the
//     standard library that depend on the order.
//   - Functions of steps in parameters, fields and results of calls, so wrappers of durable.Step
//     are not checked. Changes of captured variables by functions with a pointer to them, and
//     through a copy of a pointer or slice.
//   - Changes while a step runs that are in other functions, in other branches of durable.Go, or
//     on a path that skips the Await: the first Await in the text counts. Variables that a step
//     shares only by a method value or a pointer.
//   - A Context that an interface hides, and uses of a Context in the field of a receiver if a
//     method with a name is the step and makes no durable call.
//   - Time zones: time.Local and time.LoadLocation differ between machines.
//   - Endless loops, and loops that should continue as new.
package durablecheck
