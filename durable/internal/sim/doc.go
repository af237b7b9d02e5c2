// Package sim runs whole task hubs under simulation and reports faults. It runs random apps on workers that
// crash, freeze and lose their connection.
//
// A seed determines everything: the app ([NewApp]), the actions of clients and the disturbances ([NewPlan]).
// [Run] executes a plan on a [Platform], which is a provider that the simulation can disturb, and returns the
// faults that it found. [App.Expect] computes the expected result of each instance: it executes the app's
// steps in sequence without a hub.
//
// Variants of a plan add further conditions:
//
//   - [NewVariedPlan]: on Azure Storage, the seed also chooses the partition manager, the number of
//     concurrent activities of a worker and temporary outages of a service.
//   - [NewCallerPlan]: callers give up during a call, and several clients start one ID at the same time. The
//     simulation compares the results of the calls with the instances that ran.
//   - [NewStreamPlan]: the events of one client must arrive in order, as far as the hub guarantees it.
//   - [NewPollPlan]: some tasks are durable steps and polls.
//   - [NewTakeoverPlan]: some tasks are durable steps, and some workers call activities in place of them, like
//     workers of .NET or of an older version.
//   - [NewMovedPlan]: the hub is copied to another provider while instances are running.
package sim
