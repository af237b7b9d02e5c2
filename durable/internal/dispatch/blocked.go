package dispatch

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// forgetBlocked is the time that work counts as waiting after its last delivery. It is longer than
// providers take to redeliver abandoned work.
const forgetBlocked = 20 * time.Minute

// maxBlocked is the maximum number of records in a [BlockedFunctions], and of instances in a
// [Stalls].
const maxBlocked = 10_000

// BlockedFunctions holds the work that waits for functions that a worker lacks or does not run.
// The zero value is empty. Its methods are safe for concurrent use.
type BlockedFunctions struct {
	mu    sync.Mutex               // protects the following
	work  map[string][]blockedWork // by instance ID; no slice is empty
	count int                      // number of records
}

type blockedWork struct {
	unknownFunctionError
	since, last time.Time
}

// A BlockedFunction is a function that a worker lacks or does not run, and the instances that
// wait.
type BlockedFunction struct {
	Kind, Name, Version string
	Crashed             bool      // the instances are set aside because the function crashed the process
	Differs             bool      // the function does not match the histories of the instances
	Stalled             bool      // the function did not yield and was abandoned
	Refusal             string    // the reason why the worker does not accept the version; may be empty
	Since               time.Time // when the first of them started to wait or, if Runs is set, to run
	Instances           []string  // sorted instance IDs; the instances or their activities wait
	Runs                bool      // the function is running without yielding and was not abandoned
	Operation           string    // only for an entity that runs
	Stack               string    // of code that does not yield, in one of the instances
}

// String describes f.
func (f BlockedFunction) String() string {
	version := ""
	if f.Version != "" {
		version = fmt.Sprintf(" of version %q", f.Version)
	}
	if f.Crashed {
		return fmt.Sprintf("%s %q%s has ended the process with a panic; %d instances have been set aside since %s, until they are suspended and resumed",
			f.Kind, f.Name, version, len(f.Instances), f.Since.UTC().Format(time.RFC3339))
	}
	if f.Differs {
		return fmt.Sprintf("%s %q%s does not match the histories of %d instances, which have waited for matching code since %s",
			f.Kind, f.Name, version, len(f.Instances), f.Since.UTC().Format(time.RFC3339))
	}
	if f.Stalled {
		return fmt.Sprintf("%s %q%s does not yield; %d instances have been held back since %s, until they are suspended and resumed or the process restarts",
			f.Kind, f.Name, version, len(f.Instances), f.Since.UTC().Format(time.RFC3339))
	}
	if f.Runs && f.Kind == "entity" {
		return fmt.Sprintf("operation %q of entity %q does not return; %d entities have run it since %s",
			f.Operation, f.Name, len(f.Instances), f.Since.UTC().Format(time.RFC3339))
	}
	if f.Runs {
		return fmt.Sprintf("%s %q%s does not yield; %d instances have run without a durable call since %s",
			f.Kind, f.Name, version, len(f.Instances), f.Since.UTC().Format(time.RFC3339))
	}
	if f.Refusal != "" {
		return fmt.Sprintf("%s %q%s is not accepted by this worker: %s; %d instances have been held back since %s",
			f.Kind, f.Name, version, f.Refusal, len(f.Instances), f.Since.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("this worker has no %s named %q%s; %d instances have waited for one since %s",
		f.Kind, f.Name, version, len(f.Instances), f.Since.UTC().Format(time.RFC3339))
}

// add records that an instance waits. It reports whether the record is new. With maxBlocked
// current records it adds none, and returns false.
func (w *BlockedFunctions) add(instanceID string, f *unknownFunctionError, now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.work[instanceID] {
		if known := &w.work[instanceID][i]; known.unknownFunctionError == *f {
			known.last = now
			return false
		}
	}
	if w.count >= maxBlocked {
		w.forget(now)
	}
	if w.count >= maxBlocked {
		return false
	}
	if w.work == nil {
		w.work = make(map[string][]blockedWork)
	}
	w.work[instanceID] = append(w.work[instanceID], blockedWork{*f, now, now})
	w.count++
	return true
}

// remove deletes the records of an instance for functions of one kind.
func (w *BlockedFunctions) remove(instanceID, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.deleteFunc(instanceID, func(r blockedWork) bool { return r.kind == kind })
}

// forget deletes records of work that has not been redelivered. w.mu is locked.
func (w *BlockedFunctions) forget(now time.Time) {
	for instanceID := range w.work {
		w.deleteFunc(instanceID, func(r blockedWork) bool { return now.Sub(r.last) > forgetBlocked })
	}
}

// deleteFunc deletes the records of an instance for which del returns true. w.mu is locked.
func (w *BlockedFunctions) deleteFunc(instanceID string, del func(blockedWork) bool) {
	before := w.work[instanceID]
	left := slices.DeleteFunc(before, del)
	w.count -= len(before) - len(left)
	switch len(left) {
	case len(before):
	case 0:
		delete(w.work, instanceID)
	default:
		w.work[instanceID] = left
	}
}

// All returns the functions for which work is waiting at now, sorted.
func (w *BlockedFunctions) All(now time.Time) []BlockedFunction {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(now)
	found := make(map[unknownFunctionError]BlockedFunction)
	for instanceID, records := range w.work {
		for _, r := range records {
			f, ok := found[r.unknownFunctionError]
			if !ok || r.since.Before(f.Since) {
				f.Kind, f.Name, f.Version, f.Since = r.kind, r.name, r.version, r.since
				f.Crashed, f.Differs, f.Stalled, f.Refusal = r.crashed, r.differs, r.stalled, r.refusal
			}
			f.Instances = append(f.Instances, instanceID)
			found[r.unknownFunctionError] = f
		}
	}
	var all []BlockedFunction
	for _, f := range found {
		slices.Sort(f.Instances)
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b BlockedFunction) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version))
	})
	return all
}
