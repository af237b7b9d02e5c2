// Package sim runs whole task hubs under simulation: random apps on workers
// that are killed, frozen and cut off, and says what was not as it must be.
//
// A seed decides about all of it: what the app is ([NewApp]), when which client
// does what and what goes wrong ([NewPlan]). [Run] runs a plan on a [Platform],
// which is a provider and the means to disturb it, and returns what it found. On
// Azure Storage the seed also chooses the partition manager, how many activities a
// worker runs and whether a service fails for a while ([NewVariedPlan]). Callers
// can go away in the middle of what they ask for, and start one ID at once
// ([NewCallerPlan]): what they were told is held against what ran. Events of one client
// must come in their order as far as the hub keeps it ([NewStreamPlan]), and a hub can be
// copied to another provider while its work is under way ([NewMovedPlan]). What the
// instances of the app must end with is said by [App.Expect], which runs them one
// step after the other with no hub at all.
package sim
