// Package durablecheck finds what makes an orchestrator behave differently
// when it is replayed.
//
// An orchestrator is run again from its start whenever its instance goes on,
// and must then make the same durable calls in the same order. Its code may
// depend on its input, on the results of what it awaits and on its
// *durable.Context, and on nothing else.
//
// # Running it
//
// With go vet, which keeps results from run to run:
//
//	go install github.com/durablefunctions-go/durablefunctions/durable/durablecheck/cmd/durablecheck@latest
//	go vet -vettool=$(which durablecheck) ./...
//
// Always name the same packages: Go 1.26 keeps what it found in a package that it
// vetted only because another imports it, which is nothing, and then reports
// nothing for that package when it is named later. go vet -a starts afresh.
//
// On its own, `durablecheck ./...` prints the same, and keeps nothing. In a program that runs
// several analyzers, such as one built on multichecker, it is [Analyzer].
//
// In golangci-lint it is a module plugin: package golangci, beside this one, says
// what to write into .custom-gcl.yml and .golangci.yml. What it finds is what go
// vet finds, in other packages too, but golangci-lint shows one finding a line
// unless issues.uniq-by-line is false.
//
// # What is checked
//
// Every function, method and function literal whose first parameter is a
// *durable.Context counts as an orchestrator, and with it everything that it
// calls, in this package and in others. Activities, whose first parameter is a
// context.Context, are never looked into. A function that is named without
// being called, say as an argument, counts as called, but for orchestrators and
// activities: those are handed to the calls that start them. A function literal
// counts as called where it stands. In a function that is no orchestrator, one
// that is only returned or stored in a struct does not count.
//
// A diagnostic names what is done, why that breaks replay, what to use
// instead, and how an orchestrator gets there:
//
//	time.Now, reached via stamp → clock, reads the machine's clock, which tells another time on replay; use ctx.Now()
//
// The rules, which are the categories of the diagnostics:
//
//	clock     time.Now, Since, Until
//	timer     time.Sleep, After, Tick, NewTimer, NewTicker, AfterFunc
//	random    math/rand, math/rand/v2, crypto/rand, hash/maphash, and the functions of
//	          github.com/google/uuid that make a new ID. Free: generators with a seed of
//	          the caller's (rand.New), and IDs made of names (uuid.NewSHA1)
//	env       the environment, arguments, host and process: os.Getenv, os.Hostname, runtime.NumCPU
//	io        os, net, net/http, database/sql, os/exec and what else reads or writes files,
//	          connections and processes. Free: error values and tests of them, constants,
//	          and functions that only compute, such as net.ParseIP or http.StatusText
//	go        go statements
//	select    select statements
//	channel   making, closing, sending to, receiving from and ranging over channels
//	sync      everything of sync and sync/atomic
//	thread    runtime.LockOSThread, which ends the process in a coroutine, and runtime.Goexit
//	variable  package-level variables, as said below
//	maporder  ranging over a map, as said below
//	defer     durable calls in a deferred call. An instance that is unloaded from memory runs
//	          its deferred calls, so that compensation belongs in plain code after the error
//	activity  calls of functions that take a context.Context: an activity that is called
//	          directly runs unrecorded, and so does what else takes one. Functions of the
//	          standard library are judged by their own rules
//	context   waiting on a context.Context: WithTimeout, WithDeadline, AfterFunc, Done, Err,
//	          Deadline; and returning one
//	client    what is for the outside of orchestrators: durable.Start, methods of the client
//	patch     ctx.Patched with an ID that is not a constant: no one could say which changes
//	          there are, and one that is made of a value can be another when replayed
//	log       fmt.Print, log, the default logger of log/slog, print. A log line of the kind is
//	          repeated on each replay, which is a lesser evil; the message says "prefer"
//	ignore    a comment that ignores without a reason
//
// # Package-level variables
//
// A package-level variable is mutable if its package, anywhere but in its
// declaration and in init functions, assigns it, an element or a field of it
// (through a pointer too), deletes from it, takes its address, or calls a method
// on it that changes its receiver. Reading one is reported, and so is changing
// any. Methods of other modules' types change nothing in this sense, but for
// buffers, lists and random number generators of the standard library. Variables that are never changed are
// free: error values, compiled patterns, tables. Assignments in tests to
// variables of the code under test do not count.
//
// A variable that is initialised by a function is that function. One whose
// initialiser asks for the time, a random number or the environment is reported
// as if the orchestrator did, because another process finds another value.
//
// # Map order
//
// A range over a map, or over maps.Keys, Values or All, is reported if its body
// makes a durable call, directly or through functions, or draws from
// ctx.NewUUID; and if its order can be seen behind it, because the body
//
//   - appends to a slice that is not sorted afterwards in the same function, by
//     package sort or slices or by something called Sort-something,
//   - concatenates strings or adds floating-point numbers,
//   - writes to a builder, a buffer, a hash or a writer,
//   - sets a variable, or an element that is not the one for the loop's key, to
//     something that depends on the turn, unless an if around it compares the
//     two as for a maximum,
//   - returns something that depends on the turn, or breaks off after having
//     counted or added up.
//
// Free are sums of integers, counts, copies and sets by key, max and min, a
// search by == with the key, and an early exit with a constant. A function that
// returns a slice in map order is not reported itself; its callers are, unless
// they sort it, or only count or search it. maps.Keys and its like are treated
// the same.
//
// # Other modules
//
// Calls are followed into other modules but not into the standard library, of
// which only what is listed above counts. In other modules locks, package-level
// variables, log lines, map order and contexts are taken to be their own
// affair: they guard caches. Where a call into another module breaks several
// rules, the first is reported. The internals of package durable are never
// looked into.
//
// # Ignoring
//
// A comment
//
//	//durablecheck:ignore <reason>
//
// at the end of the line, alone on the line above, or in the comment of the
// function, says that something is safe. In a function that orchestrators call
// it holds for all of them. On the line of an assignment to a package-level
// variable it says that this assignment does not make the variable mutable. A
// comment without a reason ignores nothing and is reported.
//
// # What is not found
//
//   - What is called through an interface, a function in a field, a map or a
//     parameter, or by reflection; String and MarshalJSON methods that fmt and
//     encoding/json call. What an interface stands for is only known at run time.
//   - Function literals that a function which is no orchestrator returns.
//   - State that is not package-level: fields behind a pointer that an
//     orchestrator method's receiver or a literal's surroundings share with
//     other code.
//   - Package-level variables that are changed through another pointer to the
//     same thing, or by a package that imports theirs: facts flow with imports.
//   - The order of reflect's MapKeys and MapRange, and that of maps within
//     values that have their own iterators.
//   - Time zones: time.Local and time.LoadLocation differ between machines.
//   - Loops without end, and those that should continue as new.
package durablecheck
