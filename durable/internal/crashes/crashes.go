// Package crashes finds out which work a panic of one of its own goroutines ended the
// process with, and counts that from process to process.
//
// Go cannot recover a panic of a goroutine that other code started. But such
// a goroutine has inherited the profiler labels of the one that started it, and the
// runtime can write them into a file with the panic. What ends a process otherwise,
// such as a kill or too little memory, writes nothing there, and is not counted.
package crashes

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Label is the profiler label that names the work a goroutine is part of.
const Label = "durable.work"

// A Ledger knows how often each work has crashed the process since it last got to its
// end. A nil one knows of none.
type Ledger struct {
	path string

	mu     sync.Mutex // protects the following
	counts Counts
}

// Open returns the ledger in the file at path, with what the process before this one
// crashed at, empty if it did not. From now on the runtime writes panics that end this
// process to the file at path + ".panic", too.
func Open(path string) (l *Ledger, crashed string, err error) {
	l = &Ledger{path: path}
	if l.counts, err = Read(path); err != nil {
		return nil, "", err
	}
	last := path + ".panic"
	text, err := os.ReadFile(last)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, "", err
	}
	if crashed = workOf(string(text)); crashed != "" {
		written, err := os.Stat(last)
		if err != nil {
			return nil, "", err
		}
		l.counts.crashed(crashed, written.ModTime().UTC())
		if err := l.store(); err != nil {
			return nil, "", err
		}
	}
	f, err := os.OpenFile(last, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, "", err
	}
	defer f.Close() // the runtime has a copy
	if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
		return nil, "", err
	}
	return l, crashed, os.Setenv("GODEBUG", strings.TrimPrefix(os.Getenv("GODEBUG")+",tracebacklabels=1", ","))
}

// panicked finds the labels of the goroutine that a text of the runtime begins with.
var panicked = regexp.MustCompile(`(?m)^goroutine \d+ .*?(?: labels:\{(.*)\})?\]:$`)

// workOf returns the work whose goroutine panicked, empty if none did.
func workOf(text string) string {
	if !strings.HasPrefix(text, "panic: ") && !strings.HasPrefix(text, "fatal error: ") {
		return ""
	}
	first := panicked.FindStringSubmatch(text)
	if first == nil {
		return ""
	}
	_, value, ok := strings.Cut(first[1], strconv.Quote(Label)+": ")
	if !ok {
		return ""
	}
	quoted, err := strconv.QuotedPrefix(value)
	if err != nil {
		return ""
	}
	work, _ := strconv.Unquote(quoted) // which QuotedPrefix has looked at
	return work
}

// Read returns what is in the ledger at path, nothing if there is none.
func Read(path string) (Counts, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	counts := make(Counts)
	if json.Unmarshal(text, &counts) != nil || counts == nil {
		return make(Counts), nil // not ours, or cut short
	}
	return counts, nil
}

// Holds reports whether work is set aside. What an operator has taken out of the file
// meanwhile is not.
func (l *Ledger) Holds(work string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.counts.Holds(work) {
		return false
	}
	l.reload()
	if l.counts.setAside(work) {
		_ = l.store() // if it fails, the work sets itself aside again
	}
	return l.counts.Holds(work)
}

// reload takes notice of what others have done to the file. l.mu is held.
func (l *Ledger) reload() {
	if counts, err := Read(l.path); err == nil {
		l.counts = counts
	}
}

// Done forgets the crashes of work, which has got to its end.
func (l *Ledger) Done(work string) error {
	return l.change(func(c Counts) { c.done(work) })
}

// Resume forgets the crashes of all work of an instance, and of all functions.
func (l *Ledger) Resume(instanceID string) error {
	return l.change(func(c Counts) { c.resume(instanceID) })
}

func (l *Ledger) change(f func(Counts)) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.counts)
	if f(l.counts); len(l.counts) == before {
		return nil
	}
	l.reload()
	f(l.counts)
	return l.store()
}

// store writes the file. l.mu is held, or l is not shared yet.
func (l *Ledger) store() error {
	text, err := json.MarshalIndent(l.counts, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(l.path), filepath.Base(l.path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(slices.Concat(text, []byte("\n")))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), l.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
