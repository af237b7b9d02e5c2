package durablecheck

import "strings"

// A rule is a class of operations that an orchestrator must not use. Its name is the category of the
// diagnostics.
type rule string

// The rules, most important first. If a call into another module breaks several rules, only the first
// is reported.
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
	ruleStep     rule = "step"
	ruleSync     rule = "sync"
	ruleVariable rule = "variable"
	ruleLog      rule = "log"
	ruleIgnore   rule = "ignore"
)

var rules = []rule{
	ruleClient, ruleIO, ruleTimer, ruleClock, ruleRandom, ruleEnv, ruleGo, ruleSelect, ruleChannel, ruleThread,
	ruleDefer, ruleActivity, ruleContext, ruleMapOrder, rulePatch, ruleStep, ruleSync, ruleVariable, ruleLog, ruleIgnore,
}

// crosses reports whether a violation of r within another module also counts for its callers. A library
// may use locks, package-level variables and log lines and still return the same result on each replay. A
// library that reads the clock may not.
func (r rule) crosses() bool {
	switch r {
	case ruleActivity, ruleContext, ruleMapOrder, ruleSync, ruleVariable, ruleLog:
		return false
	default:
		return true
	}
}

// An advice contains the reason why an operation breaks replay, and the alternative. Both are parts of
// a sentence.
type advice struct {
	rule    rule
	because string
	instead string
}

// A finding is an operation that an orchestrator must not use, and the chain of calls to it. Its
// fields are exported for the encoding of facts.
type finding struct {
	Rule    rule
	Subject string // the operation, such as time.Now or a go statement
	Because string
	Instead string
	Via     []step // functions between the orchestrator and the operation
}

// A step is a function or a package-level variable in a chain of calls.
type step struct {
	Path string // package path
	Name string // qualified by the package name
}

func (a *advice) about(subject string) finding {
	return finding{Rule: a.rule, Subject: subject, Because: a.because, Instead: a.instead}
}

// through returns f from the perspective of a caller of s.
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

// chain returns the names of steps as written in the package with the given path.
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
