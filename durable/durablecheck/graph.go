package durablecheck

import (
	"cmp"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
)

// resolve finds out what functions do through others. Each fact spreads from
// callee to caller in rounds, so that the shortest way is the one that is
// told.
func (c *checker) resolve() {
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
			if d := c.durableOf(call.callee); d != nil {
				c.durableAt(f, call.pos, call.deferred, call.loops, d)
			}
		}
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
			if call.order == kept || call.order == returned && f.root().orchestrator {
				if c.isUnordered(call.callee) {
					c.use(f, call.pos, mapOrder.about("what "+chain([]step{c.stepOf(call.callee)}, c.path)+" returns"))
				}
			}
		}
		slices.SortStableFunc(f.uses, func(a, b use) int { return cmp.Compare(a.pos, b.pos) })
		f.reaches = map[rule]finding{}
		for _, u := range f.uses {
			if _, ok := f.reaches[u.finding.Rule]; !ok {
				f.reaches[u.finding.Rule] = u.finding
			}
		}
	}
	c.spread(func(f *function) func() {
		found := map[rule]finding{}
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
		if len(found) == 0 {
			return nil
		}
		return func() {
			for r, finding := range found {
				f.reaches[r] = finding
			}
		}
	})
}

// spread asks for every function what it learns from those it calls, and lets
// all of them learn it at once, until none learns anything more.
func (c *checker) spread(learn func(*function) func()) {
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

// durableOf returns the durable call that obj makes, as its caller sees it.
func (c *checker) durableOf(obj types.Object) *durableUse {
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

func (c *checker) isUnordered(obj types.Object) bool {
	if f, ok := c.byObject[obj]; ok {
		return f.unordered
	}
	s := c.summaryOf(obj)
	return s != nil && s.Unordered
}

// reachedThrough returns what f is to blame for when it mentions obj, one
// finding a rule, in the order of the rules.
func (c *checker) reachedThrough(f *function, obj types.Object) []finding {
	var reached []finding
	if callee, ok := c.byObject[obj]; ok {
		if callee.root().orchestrator {
			return nil // reported there
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
			return nil // reported there
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

// stepOf returns obj as it stands in a chain of calls.
func (c *checker) stepOf(obj types.Object) step {
	return step{Path: packagePath(obj.Pkg()), Name: qualified(obj)}
}

// summaryOf returns the facts of an object of another package, nil if there
// are none.
func (c *checker) summaryOf(obj types.Object) *summary {
	if obj.Pkg() == nil || obj.Pkg() == c.Pkg {
		return nil
	}
	s, ok := c.imported[obj]
	if !ok {
		s = new(summary)
		if !c.ImportObjectFact(obj, s) {
			s = nil
		}
		c.imported[obj] = s
	}
	return s
}

// report reports what orchestrators do, and what they do through others.
func (c *checker) report() {
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
			k.message = "" // one is enough of a call and what is called on its result
		}
		if seen[k] {
			continue
		}
		seen[k] = true
		c.Report(analysis.Diagnostic{Pos: u.pos, Category: string(u.finding.Rule), Message: message})
	}
}

// export tells packages that import this one what its exported functions and
// variables do.
func (c *checker) export() {
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
		if f.unordered {
			of(obj).Unordered = true
		}
		for _, r := range rules {
			if found, ok := f.reaches[r]; ok {
				of(obj).Reaches = append(of(obj).Reaches, found)
			}
		}
	}
	for fn := range c.mutators {
		if fn.Exported() {
			of(fn).Mutates = true
		}
	}
	for v := range c.mutable {
		if v.Pkg() == c.Pkg && v.Exported() {
			of(v).Mutable = true
		}
	}
	for obj, s := range summaries {
		c.ExportObjectFact(obj, s)
	}
}
