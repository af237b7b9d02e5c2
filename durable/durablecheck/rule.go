package durablecheck

import "strings"

// A rule is a class of things that an orchestrator must not do. Its name is
// the category of the diagnostics.
type rule string

// The rules, the most telling first: where one call breaks several rules in
// another module, only the first is reported.
const (
	ruleClient   rule = "client"
	ruleIO       rule = "io"
	ruleTimer    rule = "timer"
	ruleClock    rule = "clock"
	ruleRandom   rule = "random"
	ruleEnv      rule = "env"
	ruleGo       rule = "go"
	ruleSelect   rule = "select"
	ruleChannel  rule = "channel"
	ruleThread   rule = "thread"
	ruleDefer    rule = "defer"
	ruleActivity rule = "activity"
	ruleContext  rule = "context"
	ruleMapOrder rule = "maporder"
	rulePatch    rule = "patch"
	ruleSync     rule = "sync"
	ruleVariable rule = "variable"
	ruleLog      rule = "log"
	ruleIgnore   rule = "ignore"
)

var rules = []rule{
	ruleClient, ruleIO, ruleTimer, ruleClock, ruleRandom, ruleEnv, ruleGo, ruleSelect, ruleChannel, ruleThread,
	ruleDefer, ruleActivity, ruleContext, ruleMapOrder, rulePatch, ruleSync, ruleVariable, ruleLog, ruleIgnore,
}

// crosses reports whether what breaks r inside of a function of another
// module also counts against its callers. A library may guard a cache with a
// lock, keep it in a package-level variable or write a log line, and still
// answer the same on each replay; one that asks the clock does not.
func (r rule) crosses() bool {
	switch r {
	case ruleActivity, ruleContext, ruleMapOrder, ruleSync, ruleVariable, ruleLog:
		return false
	default:
		return true
	}
}

// An advice says why something breaks replay, and what to do instead. Both
// parts continue a sentence.
type advice struct {
	rule    rule
	because string
	instead string
}

// A finding is something that an orchestrator must not do, and how it gets
// there. Its fields are exported for the encoding of facts.
type finding struct {
	Rule    rule
	Subject string // what is done: time.Now, a go statement
	Because string
	Instead string
	Via     []step // the functions between the orchestrator and the subject
}

// A step is a function on the way to a finding, or a package-level variable.
type step struct {
	Path string // of its package
	Name string // qualified by the package's name
}

func (a *advice) about(subject string) finding {
	return finding{Rule: a.rule, Subject: subject, Because: a.because, Instead: a.instead}
}

// through returns f as it is seen by a caller of s.
func (f finding) through(s step) finding {
	f.Via = append([]step{s}, f.Via...)
	return f
}

// message returns the diagnostic for f in the package with the given path.
func (f finding) message(path string) string {
	via := ""
	if len(f.Via) > 0 {
		via = ", reached via " + chain(f.Via, path) + ","
	}
	return f.Subject + via + " " + f.Because + "; " + f.Instead
}

// chain returns the names of steps as they are written in the package with the
// given path.
func chain(steps []step, path string) string {
	names := make([]string, len(steps))
	for i, s := range steps {
		names[i] = s.Name
		if _, name, ok := strings.Cut(s.Name, "."); ok && s.Path == path {
			names[i] = name
		}
	}
	return strings.Join(names, " → ")
}
