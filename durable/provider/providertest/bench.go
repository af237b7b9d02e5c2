package providertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// A bench is a hub under test, with calls that must succeed or be refused.
type bench struct {
	*testing.T
	hub Hub
	p   provider.Provider // as it is open now

	halt    context.CancelFunc // ends Run's context
	stopped chan error         // has what Run returned
}

// start calls Run.
func (b *bench) start() {
	b.Helper()
	ctx, halt := context.WithCancel(context.WithoutCancel(b.Context()))
	b.halt, b.stopped = halt, make(chan error, 1)
	p, stopped := b.p, b.stopped
	go func() { stopped <- p.Run(ctx) }() // awaited by stop, or when the test ends
}

// stop ends Run's context and waits for Run to return.
func (b *bench) stop() {
	b.Helper()
	b.halt()
	b.awaitStop()
}

func (b *bench) awaitStop() {
	b.Helper()
	select {
	case err := <-b.stopped:
		if err != nil {
			b.Fatalf("Run returned %v, want nil", err)
		}
	case <-time.After(b.hub.Patience + b.hub.DrainTimeout):
		b.Fatal("Run does not return although its context has ended")
	}
	b.halt = nil
}

// patient returns a context for what must happen.
func (b *bench) patient() (context.Context, context.CancelFunc) {
	return context.WithTimeout(b.Context(), b.hub.Patience)
}

// nextActivity returns the next activity.
func (b *bench) nextActivity() *provider.ActivityWorkItem {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	a, err := b.p.NextActivity(ctx)
	if err != nil {
		b.Fatalf("NextActivity: %v", err)
	}
	if a.Lock == nil || a.Task == nil || a.Attempt < 1 {
		b.Fatalf("activity is not whole: %+v", a)
	}
	return a
}

// noActivity fails the test if an activity is handed out before long.
func (b *bench) noActivity(why string) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), b.hub.Quiet)
	defer cancel()
	if a, err := b.p.NextActivity(ctx); err == nil {
		b.Fatalf("activity %s (event %d of %q) was handed out: %s", a.Task.Name, a.Task.EventID, a.Instance.InstanceID, why)
	}
}

// must fails the test if err is not nil.
func (b *bench) must(what string, err error) {
	b.Helper()
	if err != nil {
		b.Fatalf("%s: %v", what, err)
	}
}

// equal fails the test if got is not want.
func (b *bench) equal(what string, got, want any) {
	b.Helper()
	if diff := cmp.Diff(want, got, same); diff != "" {
		b.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// runOne runs an activity that returns its input.
func (b *bench) runOne() error {
	ctx, cancel := b.patient()
	defer cancel()
	a, err := b.p.NextActivity(ctx)
	if err != nil {
		return err
	}
	return a.Lock.Complete(ctx, completed(a.Task.EventID, a.Task.Input))
}

// ready fails the test if the hub says that it cannot take work, or would rather not.
func (b *bench) ready() {
	b.Helper()
	p, ok := b.p.(provider.Checker)
	if !ok {
		b.Skip("the provider cannot be checked")
	}
	ctx, cancel := b.patient()
	defer cancel()
	b.must("Check", p.Check(ctx))
	if p.IsBusy() {
		b.Error("the hub is busy though nobody uses it")
	}
}

// portable returns the provider as one whose hub can be copied, and another
// that is empty.
func (b *bench) portable() (from, to provider.Portable) {
	b.Helper()
	from, ok := b.p.(provider.Portable)
	if !ok || b.hub.Another == nil {
		b.Skip("the hub cannot be copied")
	}
	return from, b.hub.Another(b.T).(provider.Portable)
}

// rest stops the hub if it runs.
func (b *bench) rest() {
	b.Helper()
	if b.halt != nil {
		b.stop()
	}
}

func (b *bench) mustCopy(from, to provider.Portable) provider.Totals {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 2*b.hub.Patience)
	defer cancel()
	totals := b.tryCopy(ctx, from, to)
	counted, err := from.Totals(ctx)
	b.must("Totals of the source", err)
	b.equal("totals of the source", counted, totals)
	return totals
}

// tryCopy copies a hub once its workers have let go of it. One that had no time to give
// up its partitions has them until they run out.
func (b *bench) tryCopy(ctx context.Context, from, to provider.Portable) provider.Totals {
	b.Helper()
	for {
		totals, err := provider.CopyHub(ctx, from, to, provider.ExportOptions{}, nil)
		if !errors.Is(err, provider.ErrHubBusy) {
			b.must("CopyHub", err)
			return totals
		}
		select {
		case <-time.After(b.hub.Quiet):
		case <-ctx.Done():
			b.Fatalf("the hub is busy for ever: %v", err)
		}
	}
}

// messagesOf returns what is on the way in a hub that rests, in the order of the
// receivers.
func (b *bench) messagesOf(hub provider.Portable) (found []string) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	b.must("Export", hub.Export(ctx, (*messageList)(&found), provider.ExportOptions{}))
	slices.Sort(found)
	return found
}

// create starts an instance, whose execution is named after it.
func (b *bench) create(id string) history.OrchestrationInstance {
	b.Helper()
	return b.createAs(started(id, "execution of "+id, text(`"input"`)))
}

func (b *bench) createAs(start *history.ExecutionStarted) history.OrchestrationInstance {
	b.Helper()
	b.must("StartInstance", b.tryCreate(start, live))
	return start.Instance
}

// tryCreate starts an instance unless it is in a status of refuse. Unlike
// create, it may be called by other goroutines than the test's.
func (b *bench) tryCreate(start *history.ExecutionStarted, refuse []history.RuntimeStatus) error {
	ctx, cancel := b.patient()
	defer cancel()
	return b.p.StartInstance(ctx, provider.TaskMessage{Event: start, Target: start.Instance}, refuse)
}

func (b *bench) send(m provider.TaskMessage) {
	b.Helper()
	b.must("Send", b.trySend(m))
}

// trySend sends a message. Unlike send, it may be called by other goroutines
// than the test's.
func (b *bench) trySend(m provider.TaskMessage) error {
	ctx, cancel := b.patient()
	defer cancel()
	return b.p.Send(ctx, m)
}

func (b *bench) state(id string) *provider.InstanceState {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	s, err := b.p.Instance(ctx, id, provider.Fetch{Input: true, Output: true})
	b.must("Instance", err)
	return s
}

func (b *bench) history(id string) []history.Event {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	past, err := b.p.History(ctx, id)
	b.must("History", err)
	return past
}

// complete completes an activity.
func (b *bench) complete(a *provider.ActivityWorkItem, result history.Event) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	b.must("Complete", a.Lock.Complete(ctx, result))
}

func (b *bench) purge(id string) error {
	b.Helper()
	return b.purgeSeen(id, nil)
}

func (b *bench) purgeSeen(id string, seen *provider.InstanceState) error {
	b.Helper()
	p, ok := b.p.(provider.Purger)
	if !ok {
		b.Skip("the provider does not purge")
	}
	ctx, cancel := b.patient()
	defer cancel()
	return p.Purge(ctx, id, seen)
}

func (b *bench) rewind(id, reason string) error {
	b.Helper()
	p, ok := b.p.(provider.Rewinder)
	if !ok {
		b.Skip("the provider does not rewind")
	}
	ctx, cancel := b.patient()
	defer cancel()
	return p.Rewind(ctx, id, reason)
}

// gone checks that nothing is known of an instance.
func (b *bench) gone(id string) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	if s, err := b.p.Instance(ctx, id, provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
		b.Errorf("Instance returned %+v, %v, want %v", s, err, provider.ErrInstanceNotFound)
	}
	b.equal("history", b.history(id), []history.Event(nil))
}

// spared checks that an instance is not purged that has changed.
func (b *bench) spared(id string, seen *provider.InstanceState) {
	b.Helper()
	if err := b.purgeSeen(id, seen); !errors.Is(err, provider.ErrInstanceChanged) {
		b.Fatalf("Purge returned %v, want %v", err, provider.ErrInstanceChanged)
	}
}

// refused gives the session of an episode up, which could not be committed.
func (b *bench) refused(e *episode) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	if err := e.tryCommit(ctx); !errors.Is(err, provider.ErrSessionLost) {
		b.Errorf("commit of a purged instance returned %v, want %v", err, provider.ErrSessionLost)
	}
	e.release()
}

// becomes waits for an instance to have a status.
func (b *bench) becomes(id string, status history.RuntimeStatus) {
	b.Helper()
	ctx, cancel := b.patient()
	defer cancel()
	for b.state(id).Status != status {
		select {
		case <-ctx.Done():
			b.Fatalf("instance %q is %v, want %v", id, b.state(id).Status, status)
		case <-time.After(b.hub.Quiet / 4):
		}
	}
}

// list returns the instances of all pages.
func (b *bench) list(q provider.Query) []*provider.InstanceState {
	b.Helper()
	var all []*provider.InstanceState
	for page := range b.pages(q) {
		all = append(all, page.Instances...)
	}
	return all
}

// pages returns all pages.
func (b *bench) pages(q provider.Query) iter.Seq[*provider.Page] {
	return func(yield func(*provider.Page) bool) {
		for pages := 0; ; pages++ {
			if pages > 1000 {
				b.Fatal("the query does not come to an end")
			}
			ctx, cancel := b.patient()
			page, err := b.p.Instances(ctx, q)
			cancel()
			b.must("Instances", err)
			if q.PageSize > 0 && len(page.Instances) > q.PageSize {
				b.Errorf("a page has %d instances, want at most %d", len(page.Instances), q.PageSize)
			}
			if !yield(page) || page.Continuation == "" {
				return
			}
			if strings.Trim(page.Continuation, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
				b.Fatalf("the continuation %q is not in base64url, and would not pass through HTTP unchanged", page.Continuation)
			}
			q.Continuation = page.Continuation
		}
	}
}

func (b *bench) listIDs(q provider.Query) []string {
	b.Helper()
	var ids []string
	for _, s := range b.list(q) {
		ids = append(ids, s.Instance.InstanceID)
	}
	slices.Sort(ids)
	return ids
}

// startAtOnce starts an instance several times at once, unless it goes on, while others do
// what they do. It returns which start won, -1 if none did.
func (b *bench) startAtOnce(id, name string, others ...func()) (winner int) {
	b.Helper()
	const racers = 6
	errs := make([]error, racers)
	for i := range racers {
		others = append(others, func() { errs[i] = b.tryCreate(started(id, fmt.Sprintf("%s %d", name, i), nil), live) })
	}
	atOnce(others...)
	winner = -1
	for i, err := range errs {
		_, exists := errors.AsType[*provider.InstanceExistsError](err)
		switch {
		case err == nil && winner >= 0:
			b.Errorf("starts %d and %d were both told that they won", winner, i)
		case err == nil:
			winner = i
		case !exists:
			b.Errorf("start %d: %v, want an *InstanceExistsError", i, err)
		}
	}
	return winner
}

// tryAgain starts an instance anew, with another execution.
func (b *bench) tryAgain(id string, refuse []history.RuntimeStatus) (history.OrchestrationInstance, error) {
	start := started(id, "second execution of "+id, text(`"again"`))
	return start.Instance, b.tryCreate(start, refuse)
}

func (b *bench) mustExist(err error, id string, status history.RuntimeStatus) {
	b.Helper()
	exists, ok := errors.AsType[*provider.InstanceExistsError](err)
	if !ok {
		b.Fatalf("StartInstance returned %v, want an *InstanceExistsError", err)
	}
	b.equal("the error", *exists, provider.InstanceExistsError{InstanceID: id, Status: status})
}

// stays fails the test if Run returns before long.
func (b *bench) stays(why string) {
	b.Helper()
	select {
	case err := <-b.stopped:
		b.halt = nil
		b.Fatalf("Run returned %v although %s", err, why)
	case <-time.After(b.hub.Quiet):
	}
}

// grow checks the delays after which something came again that was abandoned
// twice. On a busy machine they are longer, so that they cannot be compared with
// each other.
func (b *bench) grow(delays []time.Duration) {
	b.Helper()
	first, second := b.hub.AbandonDelay, b.hub.AbandonDelay*3/2
	if delays[0] < first || delays[1] < second {
		b.Errorf("delays are %v, want at least %v and %v", delays, first, second)
	}
}

// hold abandons what is wanted again at a time until it would come too late without
// that. again abandons it, and returns when it has come.
func (b *bench) hold(again func(cause error)) {
	b.Helper()
	short := max(b.hub.AbandonDelay, b.hub.Quiet)
	for delay := short / 2; delay < b.hub.Patience; delay *= 2 {
		again(&provider.HeldError{Cause: errAbandoned, Until: time.Now().Add(short)})
	}
	until := time.Now().Add(3 * time.Second)
	again(&provider.HeldError{Cause: errAbandoned, Until: until})
	if early := time.Until(until); early > time.Second { // storage may count in whole ones
		b.Errorf("it came %v before it was wanted", early)
	}
}
