package memhub_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// stage is a hub with a running worker, in a bubble.
type stage struct {
	*testing.T
	*memhub.Hub
}

func bubble(t *testing.T, f func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t, memhub.New()}
		stop := s.runs(s.Worker)
		f(s)
		stop()
	})
}

// runs runs w until stop is called.
func (s *stage) runs(w *memhub.Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			s.Error(err)
		}
	}
}

var (
	i1    = history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e1"}
	i2    = history.OrchestrationInstance{InstanceID: "i", ExecutionID: "e2"}
	anyOf = history.OrchestrationInstance{InstanceID: "i"}
)

func (s *stage) start(i history.OrchestrationInstance, refuse ...history.RuntimeStatus) error {
	e := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Instance: i, Name: "O", Input: new("1")}
	return s.StartInstance(s.Context(), provider.TaskMessage{Event: e, Target: i}, refuse)
}

func (s *stage) send(target history.OrchestrationInstance, e history.Event) {
	s.Helper()
	if err := s.Send(s.Context(), provider.TaskMessage{Event: e, Target: target}); err != nil {
		s.Fatal(err)
	}
}

// next returns the work item that is dispatched within a time, or nil.
func (s *stage) next(w *memhub.Worker, within time.Duration) *provider.OrchestrationWorkItem {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), within)
	defer cancel()
	item, err := w.NextOrchestration(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.Fatal(err)
	}
	return item
}

func (s *stage) nextActivity(w *memhub.Worker, within time.Duration) *provider.ActivityWorkItem {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), within)
	defer cancel()
	item, err := w.NextActivity(ctx)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		s.Fatal(err)
	}
	return item
}

// begin commits a first episode that consists of the start and the given events. It returns the
// work item.
func (s *stage) begin(cp provider.Checkpoint, decided ...history.Event) *provider.OrchestrationWorkItem {
	s.Helper()
	if err := s.start(i1); err != nil {
		s.Fatal(err)
	}
	item := s.next(s.Worker, time.Second)
	cp.Instance = i1
	cp.NewEvents = append([]history.Event{&history.OrchestratorStarted{Header: history.NewHeader(time.Now())}, item.Messages[0].Event}, decided...)
	if err := item.Session.Commit(s.Context(), &cp); err != nil {
		s.Fatal(err)
	}
	return item
}

func (s *stage) release(item *provider.OrchestrationWorkItem) {
	s.Helper()
	if err := item.Session.Release(s.Context()); err != nil {
		s.Fatal(err)
	}
}

func types(item *provider.OrchestrationWorkItem) (names []string) {
	for _, m := range item.Messages {
		names = append(names, m.Event.Type().String())
	}
	return names
}

func TestInstance_IsLockedByOneSessionAtATime(t *testing.T) {
	bubble(t, func(s *stage) {
		other := s.NewWorker()
		defer s.runs(other)()
		item := s.begin(provider.Checkpoint{})
		s.send(anyOf, &history.EventRaised{Name: "a"})
		if again := s.next(other, time.Hour); again != nil {
			t.Error("an instance was dispatched twice at the same time")
		}
		s.release(item)
		again := s.next(other, time.Second)
		if again == nil || len(again.History) != 2 {
			t.Fatalf("dispatched %+v; want the instance with its history", again)
		}
		s.release(again)
	})
}

func TestInstance_IsDispatchedWithItsStartFirst(t *testing.T) {
	bubble(t, func(s *stage) {
		s.Inject(memhub.DelayedDelivery, memhub.Times(1))
		if err := s.start(i1); err != nil {
			t.Fatal(err)
		}
		s.send(anyOf, &history.EventRaised{Name: "a"})
		item := s.next(s.Worker, time.Minute)
		if diff := cmp.Diff([]string{"ExecutionStarted", "EventRaised"}, types(item)); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		s.release(item)
	})
}

func TestMessages_AreRedeliveredWithAGrowingDelay(t *testing.T) {
	bubble(t, func(s *stage) {
		if err := s.start(i1); err != nil {
			t.Fatal(err)
		}
		var waits []time.Duration
		last := time.Now()
		for range 12 {
			item := s.next(s.Worker, time.Hour)
			waits = append(waits, time.Since(last)/time.Second)
			last = time.Now()
			if err := item.Session.Abandon(s.Context(), errors.New("no")); err != nil {
				t.Error(err)
			}
			s.release(item)
		}
		want := []time.Duration{0, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600}
		if diff := cmp.Diff(want, waits); diff != "" {
			t.Errorf("seconds between deliveries (-want +got):\n%s", diff)
		}
	})
}

func TestMessages_ForUnscheduledTasksAreHeldBack(t *testing.T) {
	bubble(t, func(s *stage) {
		item := s.begin(provider.Checkpoint{})
		s.send(i1, &history.TaskCompleted{TaskScheduledID: 0})
		s.release(item)
		if early := s.next(s.Worker, time.Hour); early != nil {
			t.Fatalf("a completion was dispatched before its task was scheduled: %v", types(early))
		}
		s.send(anyOf, &history.EventRaised{Name: "a"})
		item = s.next(s.Worker, time.Second)
		cp := &provider.Checkpoint{Instance: i1, NewEvents: []history.Event{&history.TaskScheduled{Header: history.Header{EventID: 0}}}}
		if err := item.Session.Commit(s.Context(), cp); err != nil {
			t.Fatal(err)
		}
		s.release(item)
		item = s.next(s.Worker, time.Hour)
		if item == nil {
			t.Fatal("the completion was lost")
		}
		s.release(item)
	})
}

func TestMessages_ForUnknownInstancesAreDiscarded(t *testing.T) {
	bubble(t, func(s *stage) {
		s.send(history.OrchestrationInstance{InstanceID: "nobody"}, &history.EventRaised{Name: "a"})
		if item := s.next(s.Worker, time.Hour); item != nil {
			t.Errorf("dispatched %v", types(item))
		}
		if n := s.Pending(); n != 0 {
			t.Errorf("%d messages are left", n)
		}
	})
}

func TestTimers_AreDispatchedWhenDue(t *testing.T) {
	bubble(t, func(s *stage) {
		due := time.Now().Add(time.Hour)
		item := s.begin(provider.Checkpoint{
			Timers: []provider.TaskMessage{{Event: &history.TimerFired{TimerID: 0, FireAt: due}, Target: i1}},
		}, &history.TimerCreated{Header: history.Header{EventID: 0}, FireAt: due})
		s.release(item)
		item = s.next(s.Worker, 2*time.Hour)
		if item == nil || !time.Now().Equal(due) {
			t.Fatalf("dispatched %v at %v; want the timer at %v", item, time.Now(), due)
		}
		s.release(item)
	})
}

func TestStart_RefusesOrReplacesAnExistingInstance(t *testing.T) {
	bubble(t, func(s *stage) {
		item := s.begin(provider.Checkpoint{})
		s.release(item)
		err := s.start(i2, history.Running)
		if exists, ok := errors.AsType[*provider.InstanceExistsError](err); !ok || exists.Status != history.Running {
			t.Errorf("error is %v; want an InstanceExistsError with status Running", err)
		}
		if err := s.start(i2); err != nil {
			t.Fatal(err)
		}
		item = s.next(s.Worker, time.Second)
		if item.Instance != i2 || len(item.History) != 0 {
			t.Errorf("dispatched %+v with %d events; want the new execution", item.Instance, len(item.History))
		}
		if e := item.Messages[0].Event.(*history.ExecutionStarted); e.Generation == nil || *e.Generation != 1 {
			t.Errorf("generation is %v, want 1", e.Generation)
		}
		s.release(item)
	})
}

func TestKill_RedeliversTheWorkToOtherWorkers(t *testing.T) {
	bubble(t, func(s *stage) {
		victim := s.NewWorker()
		defer s.runs(victim)()
		task := provider.TaskMessage{Event: &history.TaskScheduled{Header: history.Header{EventID: 0}, Name: "A"}, Target: i1}
		s.release(s.begin(provider.Checkpoint{Activities: []provider.TaskMessage{task}}, task.Event))
		s.send(anyOf, &history.EventRaised{Name: "a"})
		item, run := s.next(victim, time.Second), s.nextActivity(victim, time.Second)
		victim.Kill()
		if err := item.Session.Commit(s.Context(), &provider.Checkpoint{Instance: i1}); !errors.Is(err, provider.ErrSessionLost) {
			t.Errorf("error is %v, want ErrSessionLost", err)
		}
		if err := run.Lock.Complete(s.Context(), &history.TaskCompleted{}); err == nil {
			t.Error("a killed worker completed an activity")
		}
		if again := s.next(s.Worker, time.Minute); again == nil {
			t.Error("the instance was lost")
		} else {
			s.release(again)
		}
		again := s.nextActivity(s.Worker, time.Minute)
		if again == nil || again.Attempt != 2 {
			t.Fatalf("activity is %+v, want its second attempt", again)
		}
		if err := again.Lock.Complete(s.Context(), &history.TaskCompleted{TaskScheduledID: 0}); err != nil {
			t.Error(err)
		}
	})
}

func TestNext_ReturnsMessagesOrNothing(t *testing.T) {
	bubble(t, func(s *stage) {
		item := s.begin(provider.Checkpoint{})
		go func() {
			time.Sleep(10 * time.Second)
			s.send(anyOf, &history.EventRaised{Name: "a"})
		}()
		got, err := item.Session.Next(s.Context(), time.Minute)
		if err != nil || len(got) != 1 {
			t.Errorf("Next returned %v, %v; want the event", got, err)
		}
		if err := item.Session.Commit(s.Context(), &provider.Checkpoint{Instance: i1}); err != nil {
			t.Error(err)
		}
		began := time.Now()
		if got, err := item.Session.Next(s.Context(), time.Minute); err != nil || len(got) != 0 || time.Since(began) != time.Minute {
			t.Errorf("Next returned %v, %v after %v; want nothing after a minute", got, err, time.Since(began))
		}
		if err := s.start(i2); err != nil {
			t.Fatal(err)
		}
		if got, err := item.Session.Next(s.Context(), time.Minute); err != nil || len(got) != 0 {
			t.Errorf("Next returned %v, %v; want nothing, because another execution starts", got, err)
		}
		s.release(item)
	})
}

func TestSession_KeepsOneWakeUp(t *testing.T) {
	bubble(t, func(s *stage) {
		item := s.begin(provider.Checkpoint{StepsRunning: true})
		s.send(i1, provider.WakeSteps(i1, time.Now()).Event)
		if got, err := item.Session.Next(s.Context(), time.Minute); err != nil || len(got) != 1 {
			t.Fatalf("Next returned %v, %v; want the second wake-up", got, err)
		}
		for _, want := range []int{1, 0} {
			if err := item.Session.Commit(s.Context(), &provider.Checkpoint{Instance: i1, StepsRunning: want > 0}); err != nil {
				t.Fatal(err)
			}
			if n := s.Pending(); n != want {
				t.Errorf("%d messages are left, want %d", n, want)
			}
		}
		s.release(item)
	})
}

func TestRun_WaitsForWorkInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t, memhub.New()}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- s.Worker.Run(ctx) }()
		item := s.begin(provider.Checkpoint{})
		began := time.Now()
		cancel()
		go func() {
			time.Sleep(3 * time.Second)
			s.release(item)
		}()
		if err := <-ended; err != nil || time.Since(began) != 3*time.Second {
			t.Errorf("Run returned %v after %v, want nil after 3s", err, time.Since(began))
		}
		s.send(anyOf, &history.EventRaised{Name: "a"})
		if item := s.next(s.Worker, time.Hour); item != nil {
			t.Error("work was dispatched after Run had returned")
		}
	})
}

func TestInstances_PagesAndSelects(t *testing.T) {
	bubble(t, func(s *stage) {
		for _, id := range []string{"a1", "a2", "a3", "b1", "@e@k"} {
			if err := s.start(history.OrchestrationInstance{InstanceID: id, ExecutionID: id}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		now := time.Now()
		for _, test := range []struct {
			name  string
			query provider.Query
			want  []string
		}{
			{"all, in pages", provider.Query{PageSize: 2}, []string{"@e@k", "a1", "|", "a2", "a3", "|", "b1"}},
			{"a prefix", provider.Query{IDPrefix: "a"}, []string{"a1", "a2", "a3"}},
			{"no entities", provider.Query{ExcludeEntities: true}, []string{"a1", "a2", "a3", "b1"}},
			{"a status", provider.Query{Statuses: []history.RuntimeStatus{history.Running}}, nil},
			{"times", provider.Query{CreatedFrom: now.Add(-4 * time.Minute), CreatedTo: now.Add(-2 * time.Minute)}, []string{"a2", "a3", "b1"}},
		} {
			var got []string
			for q := test.query; ; got = append(got, "|") {
				p, err := s.Instances(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range p.Instances {
					got = append(got, i.Instance.InstanceID)
					if i.Input != nil {
						t.Errorf("%s: the input was fetched", test.name)
					}
				}
				if q.Continuation = p.Continuation; q.Continuation == "" {
					break
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.name, diff)
			}
		}
	})
}

func TestTry_DoesNotWaitAndUsesTheHubsClock(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	h := memhub.New()
	h.Now = func() time.Time { return now }
	if item, again := h.TryOrchestration(); item != nil || !again.IsZero() {
		t.Fatalf("an empty hub dispatched %v, and next at %v", item, again)
	}
	e := &history.ExecutionStarted{Header: history.NewHeader(now), Instance: i1, Name: "O", ScheduledStart: now.Add(time.Hour)}
	if err := h.StartInstance(t.Context(), provider.TaskMessage{Event: e, Target: i1}, nil); err != nil {
		t.Fatal(err)
	}
	if item, again := h.TryOrchestration(); item != nil || !again.Equal(now.Add(time.Hour)) {
		t.Fatalf("dispatched %v, and next at %v; want nothing within an hour", item, again)
	}
	now = now.Add(time.Hour)
	item, _ := h.TryOrchestration()
	if item == nil {
		t.Fatal("nothing was dispatched when it was due")
	}
	task := &history.TaskScheduled{Header: history.Header{EventID: 0, Timestamp: now}, Name: "A"}
	err := item.Session.Commit(t.Context(), &provider.Checkpoint{
		Instance:   i1,
		NewEvents:  []history.Event{item.Messages[0].Event, task},
		Activities: []provider.TaskMessage{{Event: task, Target: i1}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if a, _ := h.TryActivity(); a == nil || a.Task.Name != "A" {
		t.Fatalf("dispatched %v; want activity A", a)
	}
	if a, again := h.TryActivity(); a != nil || !again.IsZero() {
		t.Fatalf("dispatched %v, and next at %v; want nothing", a, again)
	}
}
