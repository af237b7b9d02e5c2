package runs

import (
	"context"
	"errors"
	"slices"
	"time"
)

// weight has the properties of a run that decide about merges.
type weight struct {
	size      uint64 // in bytes
	records   uint64 // includes deletions
	deletions uint64
}

// minMerge is the minimum number of runs in a merge.
const minMerge = 4

// toMerge returns how many of the newest runs to merge into one, or 0. oldest means that runs
// includes the oldest run of the base.
//
// It returns the largest count of at least minMerge for which the largest run is no larger than all
// others together. So each rewrite at least doubles the size of the run that contains a record. The
// runs that remain grow with their age, so there are few.
//
// It returns all runs if the newer ones may delete at least half of the records in the oldest one.
func toMerge(runs []weight, oldest bool) (n int) {
	var sum, largest, deletions uint64
	for i, r := range runs {
		sum, largest = sum+r.size, max(largest, r.size)
		if i+1 >= minMerge && largest <= sum-largest {
			n = i + 1
		}
		if last := i == len(runs)-1; last && oldest && deletions > 0 && 2*deletions >= r.records {
			n = i + 1
		}
		deletions += r.deletions
	}
	return n
}

// startMerges starts a merge if toMerge finds one.
func (b *Base) startMerges() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.working.Err() != nil || b.writeErr != nil {
		return
	}
	free := slices.IndexFunc(b.now.runs, func(r *run) bool { return r.merging })
	oldest := free < 0
	if oldest {
		free = len(b.now.runs)
	}
	weights := make([]weight, free)
	for i, r := range b.now.runs[:free] {
		weights[i].size = r.size()
		weights[i].records, weights[i].deletions = r.counts()
	}
	n := toMerge(weights, oldest)
	if n == 0 {
		return
	}
	some := b.now.runs[:n:n]
	for _, r := range some {
		r.merging = true
	}
	b.merges++
	b.work.Go(func() { b.merge(some, oldest && n == len(weights)) })
}

// merge replaces some adjacent runs by one run. oldest means that they include the oldest run, so
// that deletions can be omitted.
func (b *Base) merge(some []*run, oldest bool) {
	err := b.tryMerge(b.working, some, oldest)
	damaged := errors.As(err, new(*DamageError))
	b.mu.Lock()
	b.merges--
	b.mergeFailed = err != nil
	for _, r := range some {
		r.merging = damaged // a retry cannot succeed
	}
	b.merged.Broadcast()
	b.mu.Unlock()
	switch {
	case err == nil:
		b.startMerges()
	case damaged:
		b.cfg.Logger.Error("a base file is damaged; it is no longer merged", "error", err)
	case b.working.Err() == nil:
		b.cfg.Logger.Warn("cannot merge base files; the next write retries the merge", "error", err)
	}
}

// Compact replaces all runs by one run without deletions. It ends merges first. After it, call only
// [Base.Close] or Compact. The files of the previous runs are kept.
func (b *Base) Compact(ctx context.Context) error {
	b.CancelWork()
	all := b.version().runs
	deletions := uint64(0)
	for _, r := range all {
		_, n := r.counts()
		deletions += n
	}
	if len(all) < 2 && deletions == 0 {
		return nil
	}
	return b.tryMerge(ctx, all, true)
}

func (b *Base) tryMerge(ctx context.Context, some []*run, oldest bool) error {
	size := uint64(0)
	for _, r := range some {
		size += r.size()
	}
	slots := b.cfg.Cache.short
	if size >= longMerge {
		slots = b.cfg.Cache.long
	}
	if err := slots.Acquire(ctx, 1); err != nil {
		return err
	}
	defer slots.Release(1)
	w := b.newWriter(ctx, b.version().last, int(size))
	err := w.merge(some, oldest)
	if err == nil {
		err = b.install(func(now *version) *version {
			first := slices.Index(now.runs, some[0])
			return &version{last: now.last, runs: slices.Replace(slices.Clone(now.runs), first, first+len(some), w.run()...)}
		})
	}
	if err != nil {
		b.discard(w, err)
		return err
	}
	b.background(func() { b.removeLater(some) })
	return nil
}

// merge adds the merged records of runs, which are sorted from newest to oldest.
func (w *fileWriter) merge(runs []*run, oldest bool) error {
	var all merged
	for _, r := range runs {
		all = append(all, &cursor{ctx: w.ctx, b: w.b, run: r, span: readAhead})
	}
	if err := all.seek(nil); err != nil {
		return err
	}
	for {
		r := all.current()
		if r.key == nil {
			return w.endFile()
		}
		if err := errors.Join(w.ctx.Err(), all.damage(r.key)); err != nil {
			return err
		}
		if !r.isDeletion() || !oldest {
			value, err := r.read()
			if err == nil {
				err = w.add(r.key, value)
			}
			if err != nil {
				return err
			}
		}
		if err := all.skip(r.key); err != nil {
			return err
		}
	}
}

// discard deletes the files of a failed write, unless a manifest may name them. The next process
// that opens the partition deletes those that remain.
func (b *Base) discard(w *fileWriter, cause error) {
	if isUncertain(cause) {
		return
	}
	b.background(func() { b.remove(w.tried) })
}

// removeLater deletes the files of runs that the current manifest no longer names, after
// RemoveAfter and when no view uses them.
func (b *Base) removeLater(some []*run) {
	for wait := true; wait; {
		timer := time.NewTimer(b.cfg.RemoveAfter)
		select {
		case <-timer.C:
		case <-b.working.Done():
			timer.Stop()
			return
		}
		wait = b.isRead(some)
	}
	var names []string
	for _, r := range some {
		for _, f := range r.files {
			names = append(names, f.name)
		}
	}
	b.remove(names)
}

// isRead reports whether a view uses one of the runs.
func (b *Base) isRead(some []*run) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for v := range b.views {
		if slices.ContainsFunc(v.runs, func(r *run) bool { return slices.Contains(some, r) }) {
			return true
		}
	}
	return false
}

func (b *Base) remove(names []string) {
	for _, name := range names {
		if err := b.cfg.Files.Remove(b.working, name); err != nil && b.working.Err() == nil {
			b.cfg.Logger.Warn("cannot delete an unneeded base file", "file", name, "error", err)
		}
		b.mu.Lock()
		delete(b.known, name)
		b.mu.Unlock()
	}
}
