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
	mu   sync.Mutex // protects the following
	work map[blockedWork]blockedTimes
}

type blockedWork struct {
	unknownFunctionError
	instanceID string
}

type blockedTimes struct{ since, last time.Time }

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
	key := blockedWork{*f, instanceID}
	before, known := w.work[key]
	if !known && len(w.work) >= maxBlocked {
		w.forget(now)
	}
	if !known && len(w.work) >= maxBlocked {
		return false
	}
	if w.work == nil {
		w.work = make(map[blockedWork]blockedTimes)
	}
	if !known {
		before.since = now
	}
	w.work[key] = blockedTimes{before.since, now}
	return !known
}

// remove deletes the records of an instance for functions of one kind.
func (w *BlockedFunctions) remove(instanceID, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.work {
		if key.instanceID == instanceID && key.kind == kind {
			delete(w.work, key)
		}
	}
}

// forget deletes records of work that has not been redelivered. w.mu is locked.
func (w *BlockedFunctions) forget(now time.Time) {
	for key, at := range w.work {
		if now.Sub(at.last) > forgetBlocked {
			delete(w.work, key)
		}
	}
}

// All returns the functions for which work is waiting at now, sorted.
func (w *BlockedFunctions) All(now time.Time) []BlockedFunction {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.forget(now)
	found := make(map[unknownFunctionError]BlockedFunction)
	for key, at := range w.work {
		f, ok := found[key.unknownFunctionError]
		if !ok || at.since.Before(f.Since) {
			f.Kind, f.Name, f.Version, f.Since = key.kind, key.name, key.version, at.since
			f.Crashed, f.Differs, f.Stalled, f.Refusal = key.crashed, key.differs, key.stalled, key.refusal
		}
		f.Instances = append(f.Instances, key.instanceID)
		found[key.unknownFunctionError] = f
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
