package main

import (
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
	"github.com/google/go-cmp/cmp"
)

func TestMoveCount_ChangesBothCountersOrNone(t *testing.T) {
	t.Parallel()
	hub := durabletest.New(t, functions...)
	durabletest.Signal(hub, "a", (*Counter).Add, 5)
	durabletest.Signal(hub, "b", (*Counter).Add, 1)

	got, err := durabletest.Run(hub, MoveCount, Move{From: "a", To: "b", By: 3})

	if diff := cmp.Diff(got, []int{2, 4}); diff != "" || err != nil {
		t.Errorf("%v (-got +want):\n%s", err, diff)
	}
	if _, err := durabletest.Run(hub, MoveCount, Move{From: "a", To: "b", By: 3}); err == nil || !strings.Contains(err.Error(), "too low") {
		t.Errorf("got %v, want an error because the counter is too low", err)
	}
	for key, want := range map[durable.EntityKey[Counter]]int{"a": 2, "b": 4} {
		if c, _ := durabletest.State(hub, key); c.Value != want {
			t.Errorf("%s is %d, want %d", key, c.Value, want)
		}
	}
}
