package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// entityRig is a hub with a worker for counters, in a synctest bubble.
type entityRig struct {
	hub    *memhub.Hub
	client *durable.Client
	ctx    context.Context
}

// inEntityRig runs test with a rig.
func inEntityRig(t *testing.T, cfg durable.Config, test func(t *testing.T, r entityRig), more ...*durable.Registration) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		hub := memhub.New()
		registry := durable.NewRegistry(append(more, counters(), durable.ErrorValue("Negative", errNegative))...)
		cfg.Logger = slog.New(slog.DiscardHandler)
		stopped := make(chan error)
		go func() { stopped <- durable.NewWorker(hub, registry, cfg).Run(ctx) }()
		defer func() {
			stop()
			if err := <-stopped; err != nil {
				t.Error(err)
			}
		}()
		test(t, entityRig{hub, durable.NewClient(hub, registry), t.Context()})
	})
}

// add signals a counter and waits until the operation has run.
func (r entityRig) add(t *testing.T, key durable.EntityKey[counter], n int64, opts ...durable.SignalOption) {
	t.Helper()
	if err := durable.Signal(r.ctx, r.client, key, (*counter).Add, n, opts...); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

func (r entityRig) total(t *testing.T, key durable.EntityKey[counter]) int64 {
	t.Helper()
	c, err := durable.ReadEntity(r.ctx, r.client, key)
	if err != nil {
		t.Fatal(err)
	}
	return c.Total
}

func TestClient_SignalsAndReadsEntities(t *testing.T) {
	inEntityRig(t, durable.Config{}, func(t *testing.T, r entityRig) {
		if _, err := durable.ReadEntity(r.ctx, r.client, meter); !errors.Is(err, durable.ErrEntityNotFound) {
			t.Errorf("error is %v, want ErrEntityNotFound", err)
		}
		r.add(t, meter, 5)
		r.add(t, meter, -7) // fails and changes nothing
		r.add(t, meter, 2)
		if got := r.total(t, meter); got != 7 {
			t.Errorf("total %d, want 7", got)
		}
		r.add(t, meter, 1, durable.SignalAfter(time.Hour))
		if got := r.total(t, meter); got != 7 {
			t.Errorf("total %d before the hour has passed, want 7", got)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := r.total(t, meter); got != 8 {
			t.Errorf("total %d after the hour, want 8", got)
		}
		if err := r.client.DeleteEntity(r.ctx, meter); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, err := durable.ReadEntity(r.ctx, r.client, meter); !errors.Is(err, durable.ErrEntityNotFound) {
			t.Errorf("error is %v, want ErrEntityNotFound", err)
		}
		r.add(t, meter, 3)
		if got := r.total(t, meter); got != 3 {
			t.Errorf("total %d after a new start, want 3", got)
		}
	})
}

func TestClient_AddressesEntitiesByName(t *testing.T) {
	inEntityRig(t, durable.Config{}, func(t *testing.T, r entityRig) {
		stranger := durable.NewClient(r.hub, nil)
		id := durable.EntityID{Name: "COUNTER", Key: "K"}
		if err := durable.EntityOperation[int, int]("Add").Signal(r.ctx, stranger, id, 5); err != nil {
			t.Fatal(err)
		}
		if err := stranger.SignalEntity(r.ctx, id, "add", json.RawMessage(" 6 ")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s, err := stranger.Entity(r.ctx, id)
		if err != nil || string(s.State) != `{"total":11}` || s.ID != (durable.EntityID{Name: "counter", Key: "K"}) || !s.LastOperation.Equal(time.Now()) {
			t.Errorf("%+v, %v, want a total of 11, just now", s, err)
		}
		for what, err := range map[string]error{
			"no entity has": durable.Signal(r.ctx, stranger, meter, (*counter).Add, 1),
			"must not be":   stranger.SignalEntity(r.ctx, durable.EntityID{Key: "x"}, "add", nil),
			"must not con":  stranger.SignalEntity(r.ctx, durable.EntityID{Name: "x", Key: "a?"}, "add", nil),
			"not JSON":      stranger.SignalEntity(r.ctx, id, "add", json.RawMessage("{")),
		} {
			if what == "no entity has" {
				what = "without a registry"
			}
			if err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("error is %v, want one that contains %q", err, what)
			}
		}
		if parsed, err := durable.ParseEntityID(id.InstanceID()); err != nil || parsed.Name != "counter" || parsed.Key != "K" {
			t.Errorf("%v is parsed as %+v, %v", id, parsed, err)
		}
		if _, err := durable.ParseEntityID("abc"); err == nil {
			t.Error("ParseEntityID accepted abc")
		}
	})
}

func TestClient_ListsEntities(t *testing.T) {
	inEntityRig(t, durable.Config{}, func(t *testing.T, r entityRig) {
		begin := time.Now()
		for i, key := range []durable.EntityKey[counter]{"a1", "a2", "b1", "gone", "z"} {
			r.add(t, key, int64(i))
			time.Sleep(time.Minute)
		}
		if err := durable.Signal(r.ctx, r.client, "gone", (*counter).Reset, durable.Void{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, c := range []struct {
			name string
			q    durable.EntityQuery
			want string
		}{
			{"all", durable.EntityQuery{}, "a1 a2 b1 z"},
			{"by name", durable.EntityQuery{Name: "CountER"}, "a1 a2 b1 z"},
			{"by unknown name", durable.EntityQuery{Name: "count"}, ""},
			{"by key prefix", durable.EntityQuery{Name: "counter", KeyPrefix: "a"}, "a1 a2"},
			{"by time", durable.EntityQuery{LastOperationFrom: begin.Add(time.Minute), LastOperationTo: begin.Add(2 * time.Minute)}, "a2 b1"},
			{"with empty entities", durable.EntityQuery{IncludeEmpty: true}, "a1 a2 b1 gone z"},
			{"with states", durable.EntityQuery{FetchState: true, PageSize: 3}, `a1={"total":0} a2={"total":1} b1={"total":2} z={"total":4}`},
			{"in pages", durable.EntityQuery{PageSize: 1}, "a1 a2 b1 z"},
		} {
			var got []string
			for s, err := range r.client.AllEntities(r.ctx, c.q) {
				if err != nil {
					t.Fatal(err)
				}
				word := s.ID.Key
				if s.State != nil {
					word += "=" + string(s.State)
				}
				got = append(got, word)
			}
			if diff := cmp.Diff(strings.Join(got, " "), c.want); diff != "" {
				t.Errorf("%s (-got +want):\n%s", c.name, diff)
			}
		}
		page, err := r.client.ListEntities(r.ctx, durable.EntityQuery{Name: "counter", KeyPrefix: "g", PageSize: 1})
		if err != nil || len(page.Entities) != 0 || page.Continuation != "" {
			t.Errorf("%+v, %v, want an empty last page", page, err)
		}
		if _, err := r.client.ListEntities(r.ctx, durable.EntityQuery{KeyPrefix: "a"}); err == nil {
			t.Error("ListEntities accepted a KeyPrefix without a Name")
		}
	})
}

// hold locks a counter until it receives an event.
func hold(ctx *durable.Context, key durable.EntityKey[counter]) (durable.Void, error) {
	unlock := durable.LockEntities(ctx, key)
	defer unlock()
	_, err := durable.Event[int]("Go").Wait(ctx).Await()
	return durable.Void{}, err
}

func TestClient_CleansEntities(t *testing.T) {
	inEntityRig(t, durable.Config{EntityReorderWindow: time.Hour}, func(t *testing.T, r entityRig) {
		clean := func(what durable.EntityCleaning, want durable.EntityCleaningResult) {
			t.Helper()
			got, err := r.client.CleanEntities(r.ctx, what)
			if diff := cmp.Diff(got, want); diff != "" || err != nil {
				t.Errorf("%+v: %v (-got +want):\n%s", what, err, diff)
			}
			synctest.Wait()
		}
		r.add(t, "kept", 1)
		r.add(t, "gone", 1)
		if err := r.client.DeleteEntity(r.ctx, durable.EntityKey[counter]("gone")); err != nil {
			t.Fatal(err)
		}
		var holders []*durable.Instance[durable.Void]
		for _, key := range []durable.EntityKey[counter]{"living", "dead", "lost"} {
			i, err := durable.Start(r.ctx, r.client, hold, key, durable.InstanceID("holds "+key))
			if err != nil {
				t.Fatal(err)
			}
			holders = append(holders, i)
		}
		synctest.Wait()
		if err := r.hub.Purge(r.ctx, string(holders[2].ID), nil); err != nil { // while it runs
			t.Fatal(err)
		}
		r.add(t, "lost", 5) // waits forever
		window := durable.EntityCleaning{ReorderWindow: time.Hour}
		time.Sleep(59 * time.Minute)
		clean(durable.EntityCleaning{KeepLocks: true, ReorderWindow: time.Hour}, durable.EntityCleaningResult{})
		clean(window, durable.EntityCleaningResult{OrphanedLocksReleased: 1})
		if got := r.total(t, "lost"); got != 5 {
			t.Errorf("total %d after the lock was released, want 5", got)
		}
		if err := r.client.Terminate(r.ctx, holders[1].ID, "enough"); err != nil { // releases its lock itself
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		clean(durable.EntityCleaning{KeepEmpty: true, ReorderWindow: time.Hour}, durable.EntityCleaningResult{})
		clean(window, durable.EntityCleaningResult{EmptyEntitiesRemoved: 1}) // the entity "gone"
		time.Sleep(time.Hour)
		clean(window, durable.EntityCleaningResult{EmptyEntitiesRemoved: 1}) // the entity "dead", which was locked
		var left []string
		for s, err := range r.client.AllEntities(r.ctx, durable.EntityQuery{IncludeEmpty: true}) {
			if err != nil {
				t.Fatal(err)
			}
			left = append(left, fmt.Sprintf("%s %t %q", s.ID.Key, s.Exists, s.LockedBy))
		}
		if diff := cmp.Diff(left, []string{`kept true ""`, `living false "holds living"`, `lost true ""`}); diff != "" {
			t.Errorf("remaining entities (-got +want):\n%s", diff)
		}
	}, durable.Orchestrator("Hold", hold))
}

// A deleted entity gets a signal after it was listed and before it is removed. The
// effect of the signal must be kept, without an error.
func TestCleanEntities_KeepsAnEntityThatWasSignaledMeanwhile(t *testing.T) {
	inEntityRig(t, durable.Config{EntityReorderWindow: time.Hour}, func(t *testing.T, r entityRig) {
		r.add(t, meter, 1)
		if err := r.client.DeleteEntity(r.ctx, meter); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		busy := durable.NewClient(busyHub{r.hub, func(string) { r.add(t, meter, 5) }}, nil)
		got, err := busy.CleanEntities(r.ctx, durable.EntityCleaning{ReorderWindow: time.Hour})
		if err != nil || got != (durable.EntityCleaningResult{}) {
			t.Errorf("%+v, %v; want nothing cleaned", got, err)
		}
		if got := r.total(t, meter); got != 5 {
			t.Errorf("total %d, want 5", got)
		}
	})
}

func TestConfig_KeepFailedEntityEffectsKeepsThem(t *testing.T) {
	inEntityRig(t, durable.Config{KeepFailedEntityEffects: true}, func(t *testing.T, r entityRig) {
		r.add(t, meter, 5)
		r.add(t, meter, -7)
		if got := r.total(t, meter); got != -2 {
			t.Errorf("total %d, want -2", got)
		}
	})
}

// Concurrent transfers must not change the total of all accounts.
func TestLockEntities_TransfersKeepTheTotal(t *testing.T) {
	moves := func(ctx *durable.Context, n int) (int64, error) {
		key := func(i int) durable.EntityKey[counter] { return durable.EntityKey[counter](fmt.Sprint("account ", i%5)) }
		from, to := key(n), key(n*3+1)
		if from == to {
			return 0, nil
		}
		unlock := durable.LockEntities(ctx, from, to)
		defer unlock()
		if _, err := durable.CallEntity(ctx, from, (*counter).Add, -7).Await(); errors.Is(err, errNegative) {
			return 0, nil
		} else if err != nil {
			return 0, err
		}
		_, err := durable.CallEntity(ctx, to, (*counter).Add, 7).Await()
		return 7, err
	}
	inEntityRig(t, durable.Config{MaxConcurrentOrchestrators: 50}, func(t *testing.T, r entityRig) {
		for i := range 5 {
			r.add(t, durable.EntityKey[counter](fmt.Sprint("account ", i)), 20)
		}
		var all []*durable.Instance[int64]
		for n := range 100 {
			i, err := durable.Start(r.ctx, r.client, moves, n)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, i)
		}
		moved := int64(0)
		for _, i := range all {
			n, err := i.Wait(r.ctx)
			if err != nil {
				t.Fatal(err)
			}
			moved += n
		}
		sum := int64(0)
		for i := range 5 {
			sum += r.total(t, durable.EntityKey[counter](fmt.Sprint("account ", i)))
		}
		if sum != 100 || moved == 0 {
			t.Errorf("total is %d after transfers of %d, want 100", sum, moved)
		}
	}, durable.Orchestrator("Moves", moves))
}

// launcher is an entity that starts an orchestration.
type launcher struct{}

func (*launcher) Launch(ctx *durable.EntityContext, in string) (durable.InstanceID, error) {
	return durable.StartFrom(ctx, tellsItself, in, durable.InstanceID("launched"), durable.Version("2"), durable.Tags{"a": "b"}, durable.StartAt(ctx.Now().Add(time.Hour)))
}

func tellsItself(ctx *durable.Context, in string) (string, error) {
	return fmt.Sprint(in, ctx.Version(), ctx.Tags()["a"], ctx.ParentInstanceID()), nil
}

func TestStartFrom_AppliesItsOptions(t *testing.T) {
	inEntityRig(t, durable.Config{}, func(t *testing.T, r entityRig) {
		launch := durable.EntityOperation[string, durable.InstanceID]("launch")
		if err := launch.Signal(r.ctx, r.client, durable.EntityID{Name: "Launcher", Key: "k"}, "moon "); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour - time.Second)
		s, err := r.client.Status(r.ctx, "launched", durable.Fetch{})
		if err == nil && s.Status != history.Pending || err != nil && !errors.Is(err, durable.ErrInstanceNotFound) {
			t.Errorf("before its start time the instance is %+v, %v", s, err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		out, err := durable.InstanceOf[string](r.client, "launched").Wait(r.ctx)
		if out != "moon 2b@launcher@k" || err != nil {
			t.Errorf("output %q, %v; want its version, tag and parent", out, err)
		}
	}, durable.Orchestrator("TellsItself", tellsItself), durable.Entity("Launcher", durable.Op("launch", (*launcher).Launch)))
}

// The request has the format of a .NET client.
func TestEntity_AcceptsASignalOfADotNetClient(t *testing.T) {
	inEntityRig(t, durable.Config{}, func(t *testing.T, r entityRig) {
		request := `{"op":"add","signal":true,"input":"7","id":"55555555-5555-5555-5555-555555555555","Timestamp":"0001-01-01T00:00:00","Predecessor":"0001-01-01T00:00:00","IsLockRequest":false,"createTrace":false}`
		err := r.hub.Send(r.ctx, provider.TaskMessage{
			Event:  &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "op", Input: &request},
			Target: history.OrchestrationInstance{InstanceID: "@counter@Meter 7"},
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := r.total(t, meter); got != 7 {
			t.Errorf("total %d, want 7", got)
		}
	})
}
