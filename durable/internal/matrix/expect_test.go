package matrix_test

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// exceptions are the cells of single stores that differ from the rule, by store, verb and state.
var exceptions = map[string]string{
	// In tables, a refused start or a scan sends the start of a pending instance again, also of a rewound one that waits
	// for its child. The receiver discards it, and repairs the row from the history.
	"tables/restart/rewound":        "exists: Pending | Running | " + named("rewound").outcome("finish"),
	"file to tables/copy/rewound":   "same | Running | " + named("rewound").outcome("finish"),
	"tables to tables/copy/rewound": "same | Running | " + named("rewound").outcome("finish"),
	"log to tables/copy/rewound":    "same | Running | " + named("rewound").outcome("finish"),
	// With IgnoreHidden a copy from tables skips the delayed signals of earlier generations: no history explains them.
	"tables to file/copy/continued":   "same | Running | " + named("continued").main(),
	"tables to tables/copy/continued": "same | Running | " + named("continued").main(),
	"tables to log/copy/continued":    "same | Running | " + named("continued").main(),
}

// status returns the status in the state.
func (s state) status() string {
	status, _, _ := strings.Cut(s.is, " ")
	return status
}

// isOffline reports whether the instance meets the verb without a worker.
func (s state) isOffline() bool { return s.acts[offline] != nil }

func (s state) isAbsent() bool { return s.is == "absent" }

func (s state) isLive() bool { return !s.isAbsent() && !s.isEnded() }

func (s state) isEnded() bool { return s.why == "ended" }

// outcome is the outcome if the instance continues and its event Proceed has the payload.
func (s state) outcome(payload string) string {
	return s.with(strings.Replace(cmp.Or(s.ends, "absent"), ", *", ", "+payload, 1))
}

// with adds the outcomes of the kin to an outcome.
func (s state) with(outcome string) string { return strings.TrimSuffix(outcome+"; "+s.kin, "; ") }

// expect returns the expected cell of a verb.
func (s state) expect(verb string) string {
	switch verb {
	case "get":
		return s.is
	case "list":
		if s.isAbsent() {
			return "0 of all, 0 by status"
		}
		return "1 of all, 1 by status"
	case "history":
		return s.past
	case "why":
		return cmp.Or(s.why, "not found")
	case "verify":
		switch {
		case strings.Contains(s.why, "notRegistered"):
			return "not registered"
		case s.why == "historyMismatch":
			return "differs"
		}
		return "matches"
	case "blocked":
		return cmp.Or(s.held, "none")
	case "none":
		return s.outcome("finish")
	case "copy":
		status := s.status()
		switch {
		case s.isAbsent():
			status = "not found"
		case s.isOffline():
			status = "Running"
		}
		return "same | " + status + " | " + s.outcome("finish")
	}
	did, after, ends := s.expectWrite(verb)
	return did + " | " + after + " | " + ends
}

// expectWrite returns the expected result of a verb, the status after it, and the outcome.
func (s state) expectWrite(verb string) (did, after, ends string) {
	changed := func(status string) string {
		if s.isOffline() {
			return s.status() // until a worker runs
		}
		return status
	}
	did, after, ends = "refused: "+s.status(), s.status(), s.outcome("finish")
	switch {
	case s.isAbsent():
		return "not found", "not found", ends
	case verb == "restart-as":
		kin := append(strings.Split(s.kin, "; "), "new: "+s.fresh().main())
		slices.Sort(kin)
		return "done", after, s.main() + "; " + strings.TrimPrefix(strings.Join(kin, "; "), "; ")
	case verb == "rewind" && s.status() == "Pending" && s.past != "": // its rewind is completed
		return "done", changed("Running"), ends
	case s.isLive():
		switch verb {
		case "raise":
			after = map[bool]string{true: "Completed", false: s.status()}[s.why == "event Proceed"]
			if s.name == "rewound" {
				after = "Running"
			}
			return "done", after, s.outcome("verb")
		case "suspend":
			if s.status() == "Suspended" {
				break
			}
			if s.why == "scheduled" {
				return "done", after, ends // it is suspended when it starts
			}
			return "done", changed("Suspended"), ends
		case "resume":
			if s.status() != "Suspended" {
				break
			}
			if strings.Contains(s.why, "notRegistered") {
				return "done", after, ends // it is resumed when a worker has its code
			}
			return "done", "Running", ends
		case "terminate":
			return "done", changed("Terminated"), s.with("Terminated verb")
		case "terminate-all":
			did = map[bool]string{true: "waits", false: "done"}[s.isOffline()]
			return did, changed("Terminated"), children.ReplaceAllString(s.with("Terminated verb"), "$1: Terminated verb")
		case "restart":
			return "exists: " + s.status(), after, ends
		}
		return did, after, ends
	}
	switch verb {
	case "rewind":
		if s.status() == "Failed" {
			return "done", s.fresh().status(), s.fresh().outcome("finish")
		}
	case "restart":
		after = map[bool]string{true: "Completed", false: "Running"}[s.name == "completed"]
		return "done", after, s.fresh().outcome("finish")
	case "purge":
		return "purged 1", "not found", s.with("absent")
	case "purge-all":
		return fmt.Sprint("purged ", 1+len(relatives.FindAllString(s.kin, -1))), "not found", "absent"
	}
	return did, after, ends
}

var (
	children  = regexp.MustCompile(`(child|child\.null): Completed [^;]*`)
	relatives = regexp.MustCompile(`(child|null): `)
)

// main returns the outcome of the instance itself, without its relatives.
func (s state) main() string {
	s.kin = ""
	return s.outcome("finish")
}

// fresh returns the state of a new instance with the same orchestrator and input. It differs from s if the setup of s changes
// the result.
func (s state) fresh() state {
	switch s.name {
	case "timer-event":
		return named("timer")
	case "suspended-events", "unknown-started":
		return named("unknown")
	case "failed":
		return named("replaced")
	case "failed-child":
		return named("rewound")
	case "terminated", "terminated-early":
		return named("event")
	case "blocked":
		s.ends = "Completed in: finish, *"
	case "differs":
		s.ends = "Running nothing" // the corrected release does not match the history of the wrong one
	}
	return s
}

func named(name string) state {
	return states[slices.IndexFunc(states, func(s state) bool { return s.name == name })]
}
