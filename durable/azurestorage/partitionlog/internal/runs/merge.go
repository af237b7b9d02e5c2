package runs

import (
	"context"
	"errors"
	"slices"
	"time"
)

// weight is what matters of a run when it is decided what to merge.
type weight struct {
	size      uint64 // in bytes
	records   uint64 // with deletions
	deletions uint64
}

// mergeAtLeast is how many runs are merged at least.
const mergeAtLeast = 4

// toMerge returns how many of the newest runs are to be merged into one, 0 if none are.
// oldest says that no others are below them.
//
// They are as many as possible, if the largest is not larger than the others together.
// So a record is in a run twice as large each time after it was written again, and what
// is not worth it are runs that are larger the older they are, so that there are few.
//
// All are merged, too, if most of what the oldest has may be deleted.
func toMerge(runs []weight, oldest bool) (n int) {
	var sum, largest, deletions uint64
	for i, r := range runs {
		sum, largest = sum+r.size, max(largest, r.size)
		if i+1 >= mergeAtLeast && largest <= sum-largest {
			n = i + 1
		}
		if last := i == len(runs)-1; last && oldest && deletions > 0 && 2*deletions >= r.records {
			n = i + 1
		}
		deletions += r.deletions
	}
	return n
}

// startMerges starts a merge if one is due.
func (b *Base) startMerges() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.working.Err() != nil || b.doomed != nil {
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

// merge puts one run into the place of some that are next to each other. If they are the
// oldest, deletions have nothing to hide.
func (b *Base) merge(some []*run, oldest bool) {
	err := b.tryMerge(b.working, some, oldest)
	damaged := errors.As(err, new(*DamageError))
	b.mu.Lock()
	b.merges--
	b.stuck = err != nil
	for _, r := range some {
		r.merging = damaged // which reading it again does not change
	}
	b.merged.Broadcast()
	b.mu.Unlock()
	switch {
	case err == nil:
		b.startMerges()
	case damaged:
		b.cfg.Logger.Error("a file of the base is damaged; it is not merged any more", "error", err)
	case b.working.Err() == nil:
		b.cfg.Logger.Warn("cannot merge files of the base; it is tried again after the next write", "error", err)
	}
}

// Compact puts one run without deletions into the place of all runs. It ends merges first. Only
// [Base.Close] and another Compact may follow it. The files of the previous runs stay.
func (b *Base) Compact(ctx context.Context) error {
	b.EndWork()
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
		b.giveUp(w, err)
		return err
	}
	b.background(func() { b.removeLater(some) })
	return nil
}

// merge adds the records of runs, the newest first.
func (w *fileWriter) merge(runs []*run, oldest bool) error {
	var all merged
	for _, r := range runs {
		all = append(all, &cursor{ctx: w.ctx, b: w.b, run: r, span: readAhead})
	}
	if err := all.seek(nil); err != nil {
		return err
	}
	for {
		r := all.now()
		if r.key == nil {
			return w.endFile()
		}
		if err := errors.Join(w.ctx.Err(), all.damage(r.key)); err != nil {
			return err
		}
		if r.value != nil || !oldest {
			if err := w.add(r.key, r.value); err != nil {
				return err
			}
		}
		if err := all.pass(r.key); err != nil {
			return err
		}
	}
}

// giveUp deletes files that a writer created in vain, unless a manifest may name them.
// What stays is deleted by the next process that opens the partition.
func (b *Base) giveUp(w *fileWriter, cause error) {
	if isUncertain(cause) {
		return
	}
	b.background(func() { b.remove(w.tried) })
}

// removeLater deletes the files of runs that no manifest names any more.
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

// isRead reports whether a view has one of the runs.
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
			b.cfg.Logger.Warn("cannot delete a file that the base does not need", "file", name, "error", err)
		}
		b.mu.Lock()
		delete(b.known, name)
		b.mu.Unlock()
	}
}
