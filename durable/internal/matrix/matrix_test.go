// Package matrix_test applies each verb of a client to an instance in each state, on each kind of hub. Then all
// instances continue. The expected values are the same for all hubs.
package matrix_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// cells are the cells of one verb by state.
type cells map[string]string

// inBubble calls f with a hub whose instances are in their states.
func inBubble(t *testing.T, s store, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s)
		defer close(w.ended)
		defer w.leave()
		w.setUp()
		f(w)
	})
}

// compare compares the cells of a verb with the expected ones, in a subtest for each state that differs.
func compare(t *testing.T, store, verb string, got cells) {
	t.Helper()
	for _, s := range states {
		want, ok := exceptions[store+"/"+verb+"/"+s.name]
		if !ok {
			want = s.expect(verb)
		}
		if got[s.name] != want {
			t.Run(s.name, func(t *testing.T) { t.Errorf("got  %s\nwant %s", got[s.name], want) })
		}
	}
}

// each calls f with the states whose instances meet the verb with a worker, and then with the others, without one.
func (w *world) each(f func(all []state)) {
	var online, others []state
	for _, s := range states {
		if s.isOffline() {
			others = append(others, s)
		} else {
			online = append(online, s)
		}
	}
	f(online)
	w.goOffline()
	f(others)
}

// goOffline stops the worker and brings the remaining instances into their states.
func (w *world) goOffline() {
	w.restart(wrong)
	for _, s := range states {
		if a := s.acts[offline]; a != nil {
			a(w, durable.InstanceID(s.name))
		}
	}
	time.Sleep(time.Second)
}

func TestMatrix_VerbsThatReadReportTheState(t *testing.T) {
	for _, s := range stores {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			all := map[string]cells{}
			for _, v := range append(readers, verb{name: "none"}) {
				all[v.name] = cells{}
			}
			inBubble(t, s, func(w *world) {
				w.each(func(states []state) {
					for _, s := range states {
						for _, v := range readers {
							all[v.name][s.name] = v.do(w.Context(), w, durable.InstanceID(s.name))
						}
					}
				})
				all["none"] = w.finish()
			})
			for name, got := range all {
				t.Run(name, func(t *testing.T) { compare(t, s.name, name, got) })
			}
		})
	}
}

func TestMatrix_VerbsThatWriteChangeTheState(t *testing.T) {
	for _, s := range stores {
		for _, v := range writers {
			t.Run(s.name+"/"+v.name, func(t *testing.T) {
				t.Parallel()
				got := cells{}
				inBubble(t, s, func(w *world) { got = w.write(v) })
				compare(t, s.name, v.name, got)
			})
		}
	}
}

// write applies a verb to all instances. A cell has the verb's result, the status a minute later, and the outcome.
func (w *world) write(v verb) cells {
	got := cells{}
	w.each(func(states []state) {
		ctx, cancel := context.WithCancel(w.Context())
		defer cancel()
		notified := map[string]<-chan struct{}{}
		for _, s := range states {
			if s.isLive() {
				notified[s.name] = w.awaitEnd(ctx, s.name)
			}
		}
		time.Sleep(time.Second)
		for _, s := range states {
			limited, cancel := context.WithTimeout(ctx, time.Minute) // a recursive termination waits for a worker
			got[s.name] = v.do(limited, w, durable.InstanceID(s.name))
			cancel()
		}
		time.Sleep(time.Minute)
		for _, s := range states {
			got[s.name] += " | " + w.status(s.name, notified[s.name])
		}
	})
	for name, outcome := range w.finish() {
		got[name] += " | " + outcome
	}
	return got
}

// awaitEnd returns a channel that is closed when the hub reports the end of an instance. It is nil if the hub does
// not report ends.
func (w *world) awaitEnd(ctx context.Context, id string) <-chan struct{} {
	hub, ok := w.client.(provider.Awaiter)
	if !ok {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		if err := hub.AwaitEnd(ctx, id); err == nil {
			close(ended)
		}
	}()
	return ended
}

// status returns the status of an instance. It adds a remark if the instance has ended and its waiter does not know.
func (w *world) status(id string, notified <-chan struct{}) string {
	s, err := w.c.Status(w.Context(), durable.InstanceID(id), durable.Fetch{})
	if err != nil {
		return class(err)
	}
	if s.Status.IsTerminal() && notified != nil {
		select {
		case <-notified:
		default:
			return s.Status.String() + ", not notified"
		}
	}
	return s.Status.String()
}

func TestMatrix_CopiesContinue(t *testing.T) {
	for _, from := range stores[1:] {
		for _, to := range stores[1:] {
			t.Run(from.name+" to "+to.name, func(t *testing.T) {
				t.Parallel()
				got := cells{}
				inBubble(t, from, func(w *world) {
					w.goOffline()
					got = w.copy(to)
				})
				compare(t, from.name+" to "+to.name, "copy", got)
			})
		}
	}
}

// copy copies the hub and continues with the copy. A cell has the difference between the instance and its copy, the
// status of the copy after two minutes with the same release, and the outcome.
func (w *world) copy(to store) cells {
	source, reopen := w.contents(), to.create(w.T)
	from := w.client.(provider.Portable)
	err := from.Export(w.Context(), discard{}, provider.ExportOptions{})
	var hidden int
	if e, ok := errors.AsType[*azurestorage.HiddenError](err); ok {
		hidden = e.Hidden
	} else {
		w.must("Export", err)
	}
	want := 0
	if _, isTables := from.(*azurestorage.TaskHub); isTables {
		want = 3 // the signal and the timer of an earlier generation, and the start of an instance that was terminated early
	}
	if hidden != want {
		w.Errorf("Export reports %d hidden messages, want %d", hidden, want)
	}
	target, err := reopen()
	w.must("open the target", err)
	_, err = provider.CopyHub(w.Context(), from, target.client.(provider.Portable), provider.ExportOptions{IgnoreHidden: true}, nil)
	w.must("close the target", target.close())
	w.must("CopyHub", err)
	w.open = reopen
	w.restart(wrong)
	copied := w.contents()
	w.deploy(wrong)
	time.Sleep(time.Minute)
	statuses := map[string]string{}
	for _, s := range states {
		statuses[s.name] = w.status(s.name, nil)
	}
	got := cells(w.finish())
	for _, s := range states {
		same := "same"
		if source[s.name] != copied[s.name] {
			same = source[s.name] + " became " + copied[s.name]
		}
		got[s.name] = same + " | " + statuses[s.name] + " | " + got[s.name]
	}
	return got
}

// discard is a writer that stores nothing.
type discard struct{}

func (discard) Instance(context.Context, *provider.InstanceState, []history.Event) error { return nil }

func (discard) Activity(context.Context, provider.TaskMessage) error { return nil }

func (discard) Message(context.Context, provider.TaskMessage) error { return nil }

// contents returns the state of each instance and its history.
func (w *world) contents() map[string]string {
	all := map[string]string{}
	for _, s := range w.list() {
		past, err := w.c.History(w.Context(), durable.InstanceID(s.Instance.InstanceID))
		w.must("History", err)
		text, err := durable.MarshalHistory(past)
		w.must("MarshalHistory", err)
		all[s.Instance.InstanceID] = fmt.Sprintf("%v created %v, %v, completed %v, scheduled %v, generation %d, version %q: %s",
			s.Status, s.FirstCreatedAt, s.CreatedAt, s.CompletedAt, s.ScheduledAt, s.Generation, s.Version, text)
	}
	return all
}
