package replay

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// patches are the changes of its code that an orchestrator has asked about.
//
// A change that an execution has is recorded by a marker (history.NewPatch), which
// stands at the beginning of the episode that first asked. So it is seen before
// the code asks again in a replay, and a history that ends in the middle of the
// episode has it, or nothing of what followed from the answer.
type patches struct {
	x        *Execution
	recorded map[string]bool // the history has their markers
	answers  map[string]bool
	count    int      // of the answers that were yes
	added    []string // whose markers are yet to be recorded

	// unmarked are the changes that were answered no in replay, in the order of the first
	// questions. newFrom is the first of them that is answered yes, with all later ones;
	// isNew says that it was asked about.
	unmarked []string
	newFrom  string
	isNew    bool
}

// see notes that the history has the marker of a change, if e is one.
func (p *patches) see(e *history.GenericEvent) {
	id, ok := history.PatchOf(e)
	if !ok {
		return
	}
	if p.recorded == nil {
		p.recorded = make(map[string]bool)
	}
	p.recorded[id] = true
}

// Patched reports whether the execution has the change named id: it does if it first
// asks when it does something for the first time, or if the history says so. It does
// not if it is shown what it did when it did not ask. The first answer stands for
// the whole execution.
func (p *patches) Patched(id string) bool {
	p.x.check("Patched")
	if id == "" {
		p.x.Refuse("Patched", "durable: Patched was called without an ID; name the change, as in ctx.Patched(\"check-fraud\")")
	}
	answer, asked := p.answers[id]
	if asked {
		return answer
	}
	if p.answers == nil {
		p.answers = make(map[string]bool)
	}
	isNow := p.recorded[id] || !p.x.replaying
	p.isNew = p.isNew || p.newFrom != "" && p.newFrom == id
	p.answers[id] = isNow || p.isNew
	switch {
	case isNow:
		p.count++
		if !p.recorded[id] {
			p.added = append(p.added, id)
		}
	default:
		p.unmarked = append(p.unmarked, id)
	}
	return p.answers[id]
}

// take returns the changes whose markers are to be recorded, which they then are.
func (p *patches) take() []string {
	added := p.added
	p.added = nil
	return added
}
