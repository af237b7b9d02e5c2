package whytest

import (
	"context"
	_ "embed" // stuck.go
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

//go:embed stuck.go
var source string

// line returns the place of the given comment in stuck.go, as "stuck.go:LINE".
func line(comment string) string {
	for i, l := range strings.Split(source, "\n") {
		if strings.HasSuffix(l, " // "+comment) {
			return fmt.Sprintf("stuck.go:%d", i+1)
		}
	}
	panic("stuck.go has no line with // " + comment)
}

// withinRun is longer than the duration of Exercise. Due times may differ by this much.
const withinRun = 30 * time.Minute

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Exercise checks the reasons that clients report for waiting instances, with one instance for each
// kind of reason. It runs a worker on the hub. Call it in a testing/synctest bubble.
func Exercise(t *testing.T, hub provider.Provider) {
	t.Helper()
	s := new(Stuck)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- durable.NewWorker(hub, s.Registry(), durable.Config{Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	c := durable.NewClient(hub, s.Registry())
	time.Sleep(time.Minute) // until the worker owns its partitions
	began := time.Now().UTC()
	unknown := durable.Reason{Kind: durable.ReasonNotStarted, TaskID: -1}
	if sole, ok := hub.(provider.SingleWorker); ok && sole.IsSingleWorker() { // no other worker can run the function
		unknown = durable.Reason{Kind: durable.ReasonEnded, TaskID: -1, Detail: `FunctionNotFound: this worker has no orchestrator named "Unknown"`}
	}
	start := func(name, id string, opts ...durable.StartOption) durable.InstanceID {
		return must[durable.InstanceID](t)(c.StartByName(t.Context(), name, nil, append(opts, durable.InstanceID(id))...))
	}
	start("Holds", "holder")
	time.Sleep(time.Minute)
	suspend := func(id durable.InstanceID) {
		if err := c.Suspend(t.Context(), id, "an audit"); err != nil {
			t.Fatal(err)
		}
	}
	raise := func(name durable.Event[string]) func(durable.InstanceID) {
		return func(id durable.InstanceID) {
			if err := name.Raise(t.Context(), c, id, "now"); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n, tt := range []struct {
		name  string
		opts  []durable.StartOption
		then  func(id durable.InstanceID)
		since time.Duration // the age of the first reason; 0 means unchecked
		want  []durable.Reason
	}{
		{name: "ForActivity", want: []durable.Reason{{Kind: durable.ReasonActivity, Name: "Work", Where: []string{line("activity")}}}},
		{name: "ForRetry", want: []durable.Reason{{
			Kind: durable.ReasonTimer, Name: "Fail", Attempt: 2, Attempts: 3, TaskID: 1, Due: began.Add(time.Hour), Where: []string{line("retry")}, LastError: "not yet",
		}}},
		{name: "ForLastAttempt", want: []durable.Reason{{
			Kind: durable.ReasonActivity, Name: "FailOnce", Attempt: 2, Attempts: 2, TaskID: 2, Where: []string{line("attempt")}, LastError: "not yet",
		}}},
		{name: "ForStep", want: []durable.Reason{{Kind: durable.ReasonStep, Name: "Run", Where: []string{line("step")}}}},
		{name: "ForStepAttempt", want: []durable.Reason{{
			Kind: durable.ReasonStep, Name: "RunAgain", Attempt: 2, Attempts: 2, TaskID: 2, Where: []string{line("step attempt")}, LastError: "not yet",
		}}},
		{name: "ForPoll", want: []durable.Reason{{
			Kind: durable.ReasonStep, Name: "Look", Poll: 1, Due: began.Add(2 * time.Hour), Where: []string{line("poll")},
		}}},
		{name: "ForChild", want: []durable.Reason{{
			Kind: durable.ReasonSubOrchestration, Name: "Child", InstanceIDs: []durable.InstanceID{"the-child"}, Where: []string{line("sub-orchestration")},
		}}},
		{name: "ForTimer", want: []durable.Reason{{Kind: durable.ReasonTimer, Due: began.Add(48 * time.Hour), Where: []string{line("timer")}}}},
		{name: "ForLongTimer", want: []durable.Reason{{Kind: durable.ReasonTimer, Due: began.Add(30 * 24 * time.Hour), Where: []string{line("long timer")}}}},
		{
			name: "ForTwoEvents", then: raise("Other"), since: 2 * time.Minute,
			want: []durable.Reason{{Kind: durable.ReasonEvent, Name: "Signal", TaskID: -1, Where: []string{line("first event")}}},
		},
		{name: "ForEvent", want: []durable.Reason{{Kind: durable.ReasonEvent, Name: "Signal", TaskID: -1, Where: []string{line("event")}}}},
		{name: "ForSome", want: []durable.Reason{ // not for the timer
			{Kind: durable.ReasonActivity, Name: "Work", TaskID: 2, Where: []string{line("some")}},
			{Kind: durable.ReasonActivity, Name: "Work", TaskID: 3, IsNotAwaited: true}, // it is awaited after the first
		}},
		{name: "ForEntity", want: []durable.Reason{{
			Kind: durable.ReasonEntityCall, Name: "open", InstanceIDs: []durable.InstanceID{"@safe@s"}, Where: []string{line("entity")},
		}}},
		{name: "Holds", want: []durable.Reason{{
			Kind: durable.ReasonEntityLock, InstanceIDs: []durable.InstanceID{"@safe@l"}, HeldBy: "holder", Where: []string{line("lock")},
		}}},
		{name: "Holds", opts: []durable.StartOption{durable.StartAt(began.Add(24 * time.Hour))}, want: []durable.Reason{{
			Kind: durable.ReasonScheduled, TaskID: -1, Due: began.Add(24 * time.Hour),
		}}},
		{name: "Unknown", want: []durable.Reason{unknown}},
		{
			name: "ForEvent", then: suspend,
			want: []durable.Reason{
				{Kind: durable.ReasonSuspended, TaskID: -1, Detail: "an audit"},
				{Kind: durable.ReasonEvent, Name: "Signal", TaskID: -1, Where: []string{line("event")}},
			},
		},
		{
			name: "ForEvent", then: func(id durable.InstanceID) {
				suspend(id)
				time.Sleep(time.Minute)
				raise("Signal")(id)
			},
			want: []durable.Reason{
				{Kind: durable.ReasonSuspended, TaskID: -1, Detail: "an audit"},
				{Kind: durable.ReasonEvent, Name: "Signal", TaskID: -1, Where: []string{line("event")}, IsOutcomeStored: true},
			},
		},
		{
			name: "ForPause", then: suspend,
			want: []durable.Reason{
				{Kind: durable.ReasonSuspended, TaskID: -1, Detail: "an audit"},
				{Kind: durable.ReasonTimer, Due: began.Add(90 * time.Second), Where: []string{line("pause")}, IsOutcomeStored: true},
			},
		},
		{
			name: "ForEvent", then: func(id durable.InstanceID) {
				if err := c.Terminate(t.Context(), id, "enough"); err != nil {
					t.Fatal(err)
				}
			},
			want: []durable.Reason{{Kind: durable.ReasonEnded, TaskID: -1, Detail: "enough"}},
		},
	} {
		id := start(tt.name, fmt.Sprintf("%s-%d", tt.name, n), tt.opts...)
		time.Sleep(time.Minute)
		if tt.then != nil {
			tt.then(id)
			time.Sleep(time.Minute)
		}
		w := must[*durable.Diagnosis](t)(c.Why(t.Context(), id))
		compare(t, hub, id, w.Reasons, tt.want)
		if age := time.Since(w.Reasons[0].Since); tt.since > 0 && (age-tt.since).Abs() > 30*time.Second {
			t.Errorf("%s has waited for %v, want about %v", id, age, tt.since)
		}
	}
	others := durable.NewClient(hub, s.Changed())
	changed := []durable.Reason{{Kind: durable.ReasonHistoryMismatch, Where: []string{line("sub-orchestration")}, Detail: "decision 0: the history has an activity task named 'Work', and the code did " +
		"a sub-orchestration task named 'Child'; to be compatible, the code must perform the recorded action first, and the new one only where Context.Patched returns true"}}
	if w := must[*durable.Diagnosis](t)(others.Why(t.Context(), "ForActivity-0")); len(w.Reasons) == 1 {
		w.Reasons[0].Since = time.Time{}
		if !reflect.DeepEqual(w.Reasons, changed) {
			t.Errorf("with changed code: %+v, want %+v", w.Reasons, changed)
		}
	} else {
		t.Errorf("with changed code: %+v, want one reason", w.Reasons)
	}
	if _, err := c.Why(t.Context(), "nobody"); !errors.Is(err, durable.ErrInstanceNotFound) {
		t.Errorf("Why of an unknown instance: %v, want ErrInstanceNotFound", err)
	}
}

// compare reports unexpected reasons. It compares due times with a tolerance of withinRun, checks that
// Since is in the past, and checks places with the hub.
func compare(t *testing.T, hub provider.Provider, id durable.InstanceID, reasons, want []durable.Reason) {
	t.Helper()
	got := slices.Clone(reasons)
	for i := range got {
		if got[i].Since.IsZero() || got[i].Since.After(time.Now()) {
			t.Errorf("%s: since %v", id, got[i].Since)
		}
		if i < len(want) && got[i].Due.Sub(want[i].Due).Abs() < withinRun {
			got[i].Due = want[i].Due
		}
		if got[i].Kind == durable.ReasonNotStarted {
			checkPlace(t, hub, id, got[i].QueuePosition)
		}
		got[i].Since, got[i].QueuePosition = time.Time{}, nil
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s has reasons\n%+v, want\n%+v", id, got, want)
	}
}

// checkPlace reports a place that differs from the hub's.
func checkPlace(t *testing.T, hub provider.Provider, id durable.InstanceID, reported *provider.QueuePosition) {
	t.Helper()
	place, err := provider.QueuePosition{}, provider.ErrNotSupported
	if placer, ok := hub.(provider.QueuePositioner); ok {
		place, err = placer.QueuePosition(t.Context(), string(id))
	}
	if (reported == nil) != errors.Is(err, provider.ErrNotSupported) || reported != nil && reported.Partition != place.Partition {
		t.Errorf("%s: the client reports place %v; the hub has %v, %v", id, reported, place, err)
	}
}
