package replay

import (
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// patches answers the orchestrator's questions about changes of its code.
//
// A change that takes effect in an execution is recorded by a marker (history.NewPatch) at the
// start of the episode that first asked. Replay therefore sees the marker before the question.
// If a crash cuts the history off in this episode, it has the marker or nothing that depends on
// it.
type patches struct {
	x        *Execution
	recorded map[string]bool // changes whose marker is in the history
	answers  map[string]bool
	count    int      // number of changes with a marker
	added    []string // changes whose marker must be recorded

	// unmarked lists the changes without a marker that replay asked about, in the order of the
	// first questions. [Execution.Refit] sets newFrom: this change and all later ones are
	// answered yes. isNew is set once newFrom has been asked about.
	unmarked []string
	newFrom  string
	isNew    bool
}

// recordMarker records the change whose marker e is, if e is a marker.
func (p *patches) recordMarker(e *history.GenericEvent) {
	id, ok := history.PatchOf(e)
	if !ok {
		return
	}
	if p.recorded == nil {
		p.recorded = make(map[string]bool)
	}
	p.recorded[id] = true
}

// Patched reports whether the change named id takes effect in the execution. It does if the
// history has its marker, or if the first question comes outside of replay. The first answer
// applies to the whole execution.
func (p *patches) Patched(id string) bool {
	p.x.check("Patched")
	if id == "" {
		p.x.PanicWithUsageError("Patched", "durable: Patched was called without an ID; name the change, as in ctx.Patched(\"check-fraud\")")
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

// takeMarkers returns the changes whose markers must be recorded, and clears the list.
func (p *patches) takeMarkers() []string {
	added := p.added
	p.added = nil
	return added
}
