// Package crashes finds the work whose goroutine crashed the process, and counts these crashes
// across processes.
//
// Go cannot recover a panic in a goroutine that other code started. But such a goroutine
// inherits the profiler labels of the goroutine that started it, and the runtime writes them to
// a file with the panic. Other ends of a process, such as a kill or a lack of memory, write
// nothing there and are not counted.
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

// Label is the profiler label that names the work of a goroutine.
const Label = "durable.work"

// Ledger counts the crashes of work since its last end, in a file. A nil Ledger counts nothing.
// Its methods are safe for concurrent use.
type Ledger struct {
	path string

	mu     sync.Mutex // protects the fields below
	counts Counts
}

// Open returns the ledger in the file at path. crashed is the work that crashed the previous
// process, or empty. Open also makes the runtime write a panic that ends this process to path +
// ".panic".
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
	defer f.Close() // the runtime has duplicated the file descriptor
	if err := debug.SetCrashOutput(f, debug.CrashOptions{}); err != nil {
		return nil, "", err
	}
	return l, crashed, os.Setenv("GODEBUG", strings.TrimPrefix(os.Getenv("GODEBUG")+",tracebacklabels=1", ","))
}

// panicked matches the goroutine at the start of the runtime's text and captures its labels.
var panicked = regexp.MustCompile(`(?m)^goroutine \d+ .*?(?: labels:\{(.*)\})?\]:$`)

// workOf returns the work whose goroutine panicked according to the runtime's text, or empty.
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
	work, _ := strconv.Unquote(quoted) // QuotedPrefix has validated it
	return work
}

// Read returns the counts in the ledger at path. A missing or invalid file has none.
func Read(path string) (Counts, error) {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	counts := make(Counts)
	if json.Unmarshal(text, &counts) != nil || counts == nil {
		return make(Counts), nil // of another format or incomplete
	}
	return counts, nil
}

// IsSetAside reports whether work is set aside. It rereads the file, so that an operator can
// remove an entry.
func (l *Ledger) IsSetAside(work string) bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.counts.IsSetAside(work) {
		return false
	}
	l.reload()
	if l.counts.setAside(work) {
		_ = l.store() // if it fails, IsSetAside sets the work aside again
	}
	return l.counts.IsSetAside(work)
}

// reload rereads the file, which other processes may have changed. l.mu is locked.
func (l *Ledger) reload() {
	if counts, err := Read(l.path); err == nil {
		l.counts = counts
	}
}

// Done removes the count of work that has ended.
func (l *Ledger) Done(work string) error {
	return l.change(func(c Counts) { c.done(work) })
}

// Resume removes the counts of all work of an instance and of all functions.
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

// store writes the file. l.mu is locked, or l is not shared yet.
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
