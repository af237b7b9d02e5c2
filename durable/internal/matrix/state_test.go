package matrix_test

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// act is a client's call for an instance.
type act func(w *world, id durable.InstanceID)

// phase is a time at which a state's setup acts: the release that runs, and the minute since its deployment.
type phase struct{ release, minute int }

var (
	early   = phase{first, 0}
	later   = phase{first, 1}
	late    = phase{wrong, 0}
	latest  = phase{wrong, 1}
	offline = phase{} // after the worker has stopped; the verb is applied without a worker too
)

// acts are the calls that bring an instance into a state.
type acts map[phase]act

// state is a state of an instance, with the answers of verbs that change nothing.
type state struct {
	name string
	acts acts
	is   string // the status, the orchestrator and the input
	why  string // the reasons for the wait
	held string // why the worker holds the instance back; empty if it does not
	past string // the types of the events in the history
	ends string // the outcome if the instance continues; * is the payload of the event Proceed
	// kin are the outcomes of the instance's children, of its entity and of instances that use the same entity.
	kin string
}

var states = []state{
	{name: "absent", is: "absent"},
	{
		name: "scheduled", acts: acts{early: scheduled}, is: "Pending Event(in)", why: "scheduled",
		ends: "Completed in: event, *",
	},
	{
		name: "pending", acts: acts{offline: start("Event", "in")}, is: "Pending Event(in)", why: "notStarted",
		ends: "Completed in: event, *",
	},
	{
		name: "event", acts: acts{early: start("Event", "in")}, is: "Running Event(in)", why: "event Proceed",
		past: "ExecutionStarted", ends: "Completed in: event, *",
	},
	{
		name: "timer", acts: acts{early: start("Timer", "20m")}, is: "Running Timer(20m)", why: "timer",
		past: "ExecutionStarted TimerCreated", ends: "Completed 20m: timer, *",
	},
	{
		name: "timer-event", acts: acts{early: start("Timer", "20m"), later: raise(proceed, "early")}, is: "Running Timer(20m)", why: "timer",
		past: "ExecutionStarted TimerCreated EventRaised", ends: "Completed 20m: timer, early",
	},
	{
		name: "activity", acts: acts{early: start("Activity", "in")}, is: "Running Activity(in)", why: "activity Work",
		past: "ExecutionStarted TaskScheduled", ends: "Completed in: worked, *",
	},
	{
		name: "step", acts: acts{early: start("Step", "in")}, is: "Running Step(in)", why: "step step",
		past: "ExecutionStarted", ends: "Completed in: worked, *",
	},
	{
		name: "retry", acts: acts{early: start("Retry", "in")}, is: "Running Retry(in)", why: "timer FailOnce",
		past: "ExecutionStarted TaskScheduled TaskFailed TimerCreated", ends: "Completed in: second attempt, *",
	},
	{
		name: "child", acts: acts{early: start("Child", "in")}, is: "Running Child(in)", why: "subOrchestration Event",
		past: "ExecutionStarted SubOrchestrationInstanceCreated",
		ends: "Completed in: of child: event, finish, *", kin: "child: Completed of child: event, finish",
	},
	{
		name: "lock", acts: acts{early: on(".holder", start("Lock", "lock")), later: start("Lock", "lock")},
		is: "Running Lock(lock)", why: "entityLock", past: "ExecutionStarted EventSent",
		ends: "Completed lock: locked, *", kin: "entity: 0; holder: Completed lock: locked, finish",
	},
	{
		name: "locked", acts: acts{early: start("Lock", "locked"), later: on(".waiter", start("Lock", "locked"))},
		is: "Running Lock(locked)", why: "event Proceed", past: "ExecutionStarted EventSent EventRaised",
		ends: "Completed locked: locked, *", kin: "entity: 0; waiter: Completed locked: locked, finish",
	},
	{
		name: "entity", acts: acts{early: start("Entity", "in")}, is: "Running Entity(in)", why: "entityCall open",
		past: "ExecutionStarted EventSent", ends: "Completed in: 1, *", kin: "entity: 1",
	},
	{
		name: "continued", acts: acts{early: start("Continue", "in"), later: raise(next, "next")},
		is: "Running Continue(again)", why: "event Proceed", past: "ExecutionStarted",
		ends: "Completed again: continued, *", kin: "entity: 1",
	},
	{
		name: "suspended", acts: acts{early: start("Event", "in"), later: suspend}, is: "Suspended Event(in)", why: "suspended, event Proceed",
		past: "ExecutionStarted ExecutionSuspended", ends: "Completed in: event, *",
	},
	{
		name: "suspended-events",
		acts: acts{early: start("Next", "in"), later: suspend, late: both(raise(next, "held"), raise(proceed, "held")), latest: raise(proceed, "later")},
		is:   "Suspended Next(in)", why: "suspended, notRegistered Next", past: "ExecutionStarted ExecutionSuspended EventRaised EventRaised EventRaised",
		ends: "Completed in: held, held",
	},
	{
		name: "suspended-timer", acts: acts{early: start("Timer", "20m"), later: suspend}, is: "Suspended Timer(20m)", why: "suspended, timer",
		past: "ExecutionStarted TimerCreated ExecutionSuspended", ends: "Completed 20m: timer, *",
	},
	{
		name: "suspended-fired", acts: acts{early: start("Timer", "90s"), later: suspend}, is: "Suspended Timer(90s)", why: "suspended, timer stored",
		past: "ExecutionStarted TimerCreated ExecutionSuspended TimerFired", ends: "Completed 90s: timer, *",
	},
	{
		name: "completed", acts: acts{early: start("Complete", "in")}, is: "Completed Complete(in)", why: "ended",
		past: "ExecutionStarted ExecutionCompleted", ends: "Completed nothing",
	},
	{
		name: "failed", acts: acts{early: start("Fail", "in"), later: on(".null", raise(next, "next"))}, is: "Failed Fail(in)", why: "ended",
		past: "ExecutionStarted SubOrchestrationInstanceCreated TaskScheduled TaskFailed ExecutionCompleted",
		ends: "Failed " + failure, kin: "null: Completed nothing",
	},
	{
		name: "failed-child", acts: acts{early: start("FailChild", "in"), later: on(".child.null", raise(next, "next"))}, is: "Failed FailChild(in)", why: "ended",
		past: "ExecutionStarted SubOrchestrationInstanceCreated SubOrchestrationInstanceFailed ExecutionCompleted",
		ends: "Failed " + failureOfChild, kin: "child.null: Completed nothing; child: Failed " + failure,
	},
	{
		name: "terminated", acts: acts{early: start("Event", "in"), later: terminate}, is: "Terminated Event(in)", why: "ended",
		past: "ExecutionStarted ExecutionTerminated ExecutionCompleted", ends: "Terminated enough",
	},
	{
		name: "terminated-early", acts: acts{early: scheduled, later: terminate}, is: "Terminated Event(in)", why: "ended",
		ends: "Terminated enough",
	},
	{
		name: "rewound", acts: acts{early: start("FailChild", "in"), late: rewind}, is: "Pending FailChild(in)", why: "subOrchestration Fail",
		past: "ExecutionStarted SubOrchestrationInstanceCreated GenericEvent GenericEvent",
		ends: "Completed in: of child: repeated, finish, *", kin: "child.null: Completed nothing; child: Completed of child: repeated, finish",
	},
	{
		name: "rewound-pending", acts: acts{early: start("Fail", "in"), later: on(".null", raise(next, "next")), offline: rewind}, is: "Pending Fail(in)", why: "subOrchestration Late not awaited",
		past: "ExecutionStarted SubOrchestrationInstanceCreated GenericEvent GenericEvent GenericEvent",
		ends: "Completed in: repeated, *", kin: "null: Completed nothing",
	},
	{
		name: "replaced",
		acts: acts{early: start("Fail", "in"), later: on(".null", raise(next, "next")), late: again, latest: on(".null", raise(next, "next"))},
		is:   "Running Fail(in)", why: "event Proceed",
		past: "ExecutionStarted SubOrchestrationInstanceCreated TaskScheduled TaskCompleted SubOrchestrationInstanceCompleted",
		ends: "Completed in: repeated, *", kin: "null: Completed nothing",
	},
	{
		name: "differs", acts: acts{early: start("Change", "in"), late: raise(next, "next")},
		is: "Running Change(in)", why: "historyMismatch", held: "orchestrator differs", past: "ExecutionStarted TaskScheduled TaskCompleted",
		ends: "Completed in: in, *",
	},
	{
		name: "unknown", acts: acts{late: start("Next", "in")}, is: "Pending Next(in)", why: "notStarted", held: "orchestrator unknown",
		ends: "Completed in: finish, *",
	},
	{
		name: "unknown-started", acts: acts{early: start("Next", "in"), late: raise(next, "next")},
		is: "Running Next(in)", why: "notRegistered Next", held: "orchestrator unknown", past: "ExecutionStarted",
		ends: "Completed in: next, *",
	},
	{
		name: "unknown-activity", acts: acts{early: start("Lost", "in")}, is: "Running Lost(in)", why: "activity New", held: "activity unknown",
		past: "ExecutionStarted TaskScheduled", ends: "Completed in: in, *",
	},
	{
		name: "version", acts: acts{early: start("Event", "in", durable.Version("2.0"))},
		is: "Pending Event(in)", why: "notStarted", held: "orchestrator refused",
		ends: "Completed in: event, *",
	},
	{
		name: "blocked", acts: acts{early: start("Block", "in"), late: raise(next, "next")},
		is: "Running Block(in)", why: "event Next", held: "orchestrator stalled", past: "ExecutionStarted",
		ends: "Completed in: next, *",
	},
}

const (
	failure        = "*durable.TaskFailedError: Task 'FailAtFirst' (#1) failed with an unhandled exception: release 1"
	failureOfChild = "*durable.TaskFailedError: Sub-orchestration 'Fail' (#0) failed with an unhandled exception: " +
		"Task 'FailAtFirst' (#1) failed with an unhandled exception: release 1"
)

// start starts an orchestrator.
func start(fn, in string, opts ...durable.StartOption) act {
	return func(w *world, id durable.InstanceID) {
		w.Helper()
		_, err := w.c.StartByName(w.Context(), fn, []byte(`"`+in+`"`), append(opts, id)...)
		w.must("start "+string(id), err)
	}
}

// scheduled starts an orchestrator after the verb.
func scheduled(w *world, id durable.InstanceID) {
	start("Event", "in", durable.StartAt(time.Now().Add(far)))(w, id)
}

// on lets a call act on another instance, whose ID has the given suffix.
func on(suffix durable.InstanceID, a act) act {
	return func(w *world, id durable.InstanceID) { a(w, id+suffix) }
}

// both makes several calls.
func both(all ...act) act {
	return func(w *world, id durable.InstanceID) {
		for _, a := range all {
			a(w, id)
		}
	}
}

func raise(e durable.Event[string], payload string) act {
	return func(w *world, id durable.InstanceID) { w.must("raise", e.Raise(w.Context(), w.c, id, payload)) }
}

func suspend(w *world, id durable.InstanceID) {
	w.must("Suspend", w.c.Suspend(w.Context(), id, "pause"))
}

func terminate(w *world, id durable.InstanceID) {
	w.must("Terminate", w.c.Terminate(w.Context(), id, "enough"))
}

func rewind(w *world, id durable.InstanceID) { w.must("Rewind", w.c.Rewind(w.Context(), id, "again")) }

func again(w *world, id durable.InstanceID) {
	_, err := w.c.Restart(w.Context(), id, id)
	w.must("Restart", err)
}
