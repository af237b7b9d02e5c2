package main

import (
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Together is Steps with all activities started at the same time.
func Together(ctx *durable.Context, w Walk) ([]int, error) {
	tasks := make([]*durable.Task[int], w.Steps)
	for i := range tasks {
		tasks[i] = durable.CallActivity(ctx, Step, Stride{w, i + 1})
	}
	return durable.AwaitAll(ctx, tasks...)
}

// Rests is Steps with a timer after each step. The timer is as long as a step.
func Rests(ctx *durable.Context, w Walk) ([]int, error) {
	var squares []int
	for n := 1; n <= w.Steps; n++ {
		square, err := durable.CallActivity(ctx, Step, Stride{w, n}).Await()
		if err != nil {
			return nil, err
		}
		ctx.Sleep(time.Duration(w.DelayMillis) * time.Millisecond)
		squares = append(squares, square)
	}
	return squares, nil
}

// ChildSteps runs Steps in a child.
func ChildSteps(ctx *durable.Context, w Walk) ([]int, error) {
	return durable.CallSubOrchestrator(ctx, Steps, w, ctx.InstanceID()+"-child").Await()
}

// Journey is a Walk with the results of its first steps.
type Journey struct {
	Walk
	Squares []int `json:"squares"`
}

// Stages is Steps with each step in a separate execution.
func Stages(ctx *durable.Context, j Journey) ([]int, error) {
	if len(j.Squares) == j.Steps {
		return j.Squares, nil
	}
	square, err := durable.CallActivity(ctx, Step, Stride{j.Walk, len(j.Squares) + 1}).Await()
	if err != nil {
		return nil, err
	}
	return durable.ContinueAsNew(ctx, Stages, Journey{j.Walk, append(j.Squares, square)})
}

// Tallies is Steps with squares from a counter entity. After each step it adds the difference to the next
// square.
func Tallies(ctx *durable.Context, w Walk) ([]int, error) {
	var squares []int
	for n := 1; n <= w.Steps; n++ {
		if _, err := durable.CallActivity(ctx, Step, Stride{w, n}).Await(); err != nil {
			return nil, err
		}
		square, err := durable.CallEntity(ctx, durable.EntityKey[Counter](ctx.InstanceID()), (*Counter).Add, 2*n-1).Await()
		if err != nil {
			return nil, err
		}
		squares = append(squares, square)
	}
	return squares, nil
}

// Hears is Steps with each step triggered by an event that contains its number. The events are named Step1,
// Step2 and so on.
func Hears(ctx *durable.Context, w Walk) ([]int, error) {
	var squares []int
	for n := 1; n <= w.Steps; n++ {
		number, err := durable.Event[int](fmt.Sprintf("Step%d", n)).Wait(ctx).Await()
		if err != nil {
			return nil, err
		}
		square, err := durable.CallActivity(ctx, Step, Stride{w, number}).Await()
		if err != nil {
			return nil, err
		}
		squares = append(squares, square)
	}
	return squares, nil
}
