package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Watch is the input of [Monitor].
type Watch struct {
	// File is the path of the file to wait for.
	File string `json:"file"`
	// EverySeconds is the time between two checks. Default 30.
	EverySeconds float64 `json:"everySeconds"`
	// ForSeconds is the time after which Monitor gives up. Default 6 hours.
	ForSeconds float64 `json:"forSeconds"`
	// Looks counts the checks so far. Until is the time to give up. Monitor sets
	// both in the input of its next execution.
	Looks int       `json:"looks"`
	Until time.Time `json:"until,omitzero"`
}

// Monitor shows a recurrent process: it checks repeatedly whether a file
// exists. It returns true if the file exists and false after a time limit.
//
// With a loop, the history would grow for as long as Monitor waits.
// ContinueAsNew ends this execution and starts the next one with a new input
// and an empty history. A process that only waits for the file needs no loop:
// durable.Poll checks it with a single task in the history.
func Monitor(ctx *durable.Context, w Watch) (bool, error) {
	if w.File == "" {
		return false, errors.New(`the input must be like {"file": "/tmp/ready", "everySeconds": 5, "forSeconds": 600}`)
	}
	w = w.withDefaults(ctx.Now())
	there, err := durable.CallActivity(ctx, IsThere, w.File).Await()
	if err != nil || there {
		return there, err
	}
	every := seconds(w.EverySeconds)
	if ctx.Now().Add(every).After(w.Until) {
		return false, nil
	}
	w.Looks++
	ctx.SetCustomStatus(fmt.Sprintf("file not found after %d checks", w.Looks))
	ctx.Sleep(every)
	return durable.ContinueAsNew(ctx, Monitor, w)
}

// withDefaults returns w with defaults for the missing values. Later executions receive a complete
// input, so Until stays the same.
func (w Watch) withDefaults(now time.Time) Watch {
	if w.EverySeconds <= 0 {
		w.EverySeconds = 30
	}
	if w.ForSeconds <= 0 {
		w.ForSeconds = 6 * 60 * 60
	}
	if w.Until.IsZero() {
		w.Until = now.Add(seconds(w.ForSeconds))
	}
	return w
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// IsThere reports whether a file exists.
func IsThere(_ context.Context, file string) (bool, error) {
	_, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
