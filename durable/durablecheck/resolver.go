package durablecheck

import (
	"cmp"
	"go/types"
	"maps"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// A resolver finds what functions do through the functions that they call.
type resolver struct{ *checker }

// resolve finds what functions do through the functions that they call.
func (c *resolver) resolve() {
	c.resolveDurable()
	c.resolveOrder()
	for _, f := range c.functions {
		slices.SortStableFunc(f.uses, func(a, b use) int { return cmp.Compare(a.pos, b.pos) })
		f.reaches = map[rule]finding{}
		for _, u := range f.uses {
			if _, ok := f.reaches[u.finding.Rule]; !ok {
				f.reaches[u.finding.Rule] = u.finding
			}
		}
	}
	c.spread(func(f *function) func() {
		found := c.reachedNewly(f)
		if len(found) == 0 {
			return nil
		}
		return func() { maps.Copy(f.reaches, found) }
	})
}

// resolveDurable finds the functions that make durable calls, and the places where such calls are not
// allowed.
func (c *resolver) resolveDurable() {
	c.spread(func(f *function) func() {
		if f.durable != nil {
			return nil
		}
		for _, call := range f.calls {
			if d := c.durableOf(call.callee); d != nil {
				return func() { f.durable = d }
			}
		}
		return nil
	})
	for _, f := range c.functions {
		for _, call := range f.calls {
			switch d := c.durableOf(call.callee); {
			case d == nil:
			case !f.root().inStep:
				c.durableAt(f, call.pos, call.deferred, call.loops, d)
			case f.root().owner != nil && !c.isChecked(call.callee):
				c.use(f.root().owner, call.pos, inStep(d))
			}
		}
		for _, call := range f.stepCalls {
			if d := c.durableOf(call.callee); d != nil {
				c.use(f, call.pos, inStep(d))
			}
		}
	}
}

// isChecked reports whether obj is a local function of a step, whose durable calls are reported in it.
func (c *resolver) isChecked(obj types.Object) bool {
	f, ok := c.byObject[obj]
	return ok && f.root().owner != nil
}

// resolveOrder finds the functions whose results are in map order, and the places where this order has
// an effect.
func (c *resolver) resolveOrder() {
	for _, f := range c.functions {
		for _, loop := range f.loops {
			c.orderLeak(f, loop)
		}
	}
	c.spread(func(f *function) func() {
		for _, call := range f.calls {
			if call.order == returned && !f.unordered && !f.root().orchestrator && c.isUnordered(call.callee) {
				return func() { f.unordered = true }
			}
		}
		return nil
	})
	for _, f := range c.functions {
		for _, call := range f.calls {
			seen := call.order == kept || call.order == returned && f.root().orchestrator
			if seen && c.isUnordered(call.callee) {
				c.use(f, call.pos, mapOrder.about("what "+chain([]step{c.stepOf(call.callee)}, c.path)+" returns"))
			}
		}
	}
}

// reachedNewly returns the findings that f reaches through its calls and that are not known yet: the
// first finding of each rule.
func (c *resolver) reachedNewly(f *function) map[rule]finding {
	found := map[rule]finding{}
	if f.root().inStep {
		return found
	}
	for _, call := range f.calls {
		if call.ignored {
			continue
		}
		for _, r := range c.reachedThrough(f, call.callee) {
			_, known := f.reaches[r.Rule]
			if _, ok := found[r.Rule]; !ok && !known {
				found[r.Rule] = r
			}
		}
	}
	return found
}

// spread calls learn for every function until no function learns anything new. learn returns a
// function that applies what it has learned. All functions of a round are applied together, so that
// the shortest chain of calls is reported.
func (c *resolver) spread(learn func(*function) func()) {
	for {
		var news []func()
		for _, f := range c.functions {
			if apply := learn(f); apply != nil {
				news = append(news, apply)
			}
		}
		if len(news) == 0 {
			return
		}
		for _, apply := range news {
			apply()
		}
	}
}

// durableOf returns the durable call that obj makes, from the perspective of its caller.
func (c *resolver) durableOf(obj types.Object) *durableUse {
	var d *durableUse
	if f, ok := c.byObject[obj]; ok {
		if d = f.durable; d == nil || f.outer != nil {
			return d
		}
	} else if s := c.summaryOf(obj); s != nil {
		d = s.Durable
	}
	if d == nil {
		return nil
	}
	return d.through(c.stepOf(obj))
}

func (c *resolver) isUnordered(obj types.Object) bool {
	if f, ok := c.byObject[obj]; ok {
		return f.unordered
	}
	s := c.summaryOf(obj)
	return s != nil && s.Unordered
}

// reachedThrough returns the findings of f that come from mentioning obj: at most one per rule, in the
// order of the rules.
func (c *resolver) reachedThrough(f *function, obj types.Object) []finding {
	var reached []finding
	if callee, ok := c.byObject[obj]; ok {
		if callee.root().orchestrator {
			return nil // reported in the orchestrator itself
		}
		for _, r := range rules {
			if found, ok := callee.reaches[r]; ok {
				if callee.outer == nil {
					found = found.through(callee.step)
				}
				reached = append(reached, found)
			}
		}
	} else if s := c.summaryOf(obj); s != nil {
		same := s.Module == c.module
		if fn, ok := obj.(*types.Func); ok && same && isOrchestrator(fn.Signature()) {
			return nil // reported in the orchestrator itself
		}
		if !same && f.initialiser {
			return nil
		}
		for _, found := range s.Reaches {
			if same || found.Rule.crosses() {
				reached = append(reached, found.through(c.stepOf(obj)))
			}
		}
		if !same && len(reached) > 1 && f.root().orchestrator {
			reached = reached[:1]
		}
	}
	if f.initialiser {
		reached = slices.DeleteFunc(reached, func(found finding) bool { return !dependsOnProcess(found.Rule) })
	}
	return reached
}

// report reports the findings of orchestrators, direct and through calls.
func (c *resolver) report() {
	var all []use
	for _, f := range c.functions {
		if !f.root().orchestrator {
			continue
		}
		all = append(all, f.uses...)
		for _, call := range f.calls {
			if call.ignored {
				continue
			}
			for _, found := range c.reachedThrough(f, call.callee) {
				all = append(all, use{call.pos, found})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b use) int { return cmp.Compare(a.pos, b.pos) })
	type key struct {
		file    string
		line    int
		message string
	}
	seen := map[key]bool{}
	for _, u := range all {
		at := c.Fset.Position(u.pos)
		message := u.finding.message(c.path)
		k := key{at.Filename, at.Line, message}
		if u.finding.Rule == ruleDefer {
			k.message = "" // report a call and a call on its result only once
		}
		if seen[k] {
			continue
		}
		seen[k] = true
		c.Report(analysis.Diagnostic{Pos: u.pos, Category: string(u.finding.Rule), Message: message})
	}
}

// export exports the facts of exported functions and variables for packages that import this one.
func (c *resolver) export() {
	summaries := map[types.Object]*summary{}
	of := func(obj types.Object) *summary {
		if summaries[obj] == nil {
			summaries[obj] = &summary{Module: c.module}
		}
		return summaries[obj]
	}
	for obj, f := range c.byObject {
		if !obj.Exported() || f.outer != nil {
			continue
		}
		if f.durable != nil {
			of(obj).Durable = f.durable
		}
		if f.unordered && !f.inStep {
			of(obj).Unordered = true
		}
		for _, r := range rules {
			if found, ok := f.reaches[r]; ok {
				of(obj).Reaches = append(of(obj).Reaches, found)
			}
		}
	}
	for fn := range c.mutations.methods {
		if fn.Exported() {
			of(fn).Mutates = true
		}
	}
	for v := range c.mutations.variables {
		if v.Pkg() == c.Pkg && v.Exported() {
			of(v).Mutable = true
		}
	}
	for obj, s := range summaries {
		c.ExportObjectFact(obj, s)
	}
}
