package durable_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
)

func TestSend_RaisesAnEventForAnotherInstance(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		e := durable.Event[order]("Placed")
		if err := e.RaiseFrom(ctx, "warehouse", order{ID: "7", Lines: []int{1}}); err != nil {
			return "", err
		}
		if err := durable.Event[durable.Void]("Ping").RaiseFrom(ctx, "warehouse", durable.Void{}); err != nil {
			return "", err
		}
		bad := durable.Event[chan int]("Bad").RaiseFrom(ctx, "warehouse", make(chan int))
		entity := e.RaiseFrom(ctx, "@counter@a", order{})
		return fmt.Sprint(bad, "; ", entity), nil
	})
	wantActions(t, s.Start(nil),
		`0 send Placed to warehouse {"id":"7","lines":[1]}`, "1 send Ping to warehouse <nil>",
		`2 Completed "encode payload of event Bad: json: unsupported type: chan int; send event Placed: Orchestration instance ids must not start with @."`)
	for _, e := range s.History {
		if sent, ok := e.(*history.EventSent); ok && sent.EventID == 0 && (sent.Name != "Placed" || sent.InstanceID != "warehouse") {
			t.Errorf("recorded %+v", sent)
		}
	}
}

func ping(ctx *durable.Context, peer durable.InstanceID) (int, error) {
	for i := 1; ; i++ {
		if err := durable.Event[int]("Ball").RaiseFrom(ctx, peer, i); err != nil {
			return 0, err
		}
		back, err := durable.Event[int]("Back").Wait(ctx).Await()
		if err != nil || i == 5 {
			return back, err
		}
	}
}

func pong(ctx *durable.Context, peer durable.InstanceID) (durable.Void, error) {
	for range 5 {
		n, err := durable.Event[int]("ball").Wait(ctx).Await()
		if err != nil {
			return durable.Void{}, err
		}
		if err := durable.Event[int]("back").RaiseFrom(ctx, peer, 10*n); err != nil {
			return durable.Void{}, err
		}
	}
	return durable.Void{}, nil
}

func TestSend_EventsPassInBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := durable.NewRegistry(durable.Orchestrator("Ping", ping), durable.Orchestrator("Pong", pong))
		defer run(t, h, r, durable.Config{})()
		c := durable.NewClient(h, r)
		if _, err := durable.Start(t.Context(), c, pong, "a", durable.InstanceID("b")); err != nil {
			t.Fatal(err)
		}
		i, err := durable.Start(t.Context(), c, ping, "b", durable.InstanceID("a"))
		if err != nil {
			t.Fatal(err)
		}
		if out, err := i.Wait(t.Context()); err != nil || out != 50 {
			t.Errorf("output %d, %v", out, err)
		}
	})
}
