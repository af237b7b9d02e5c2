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

// A Watch says what [Monitor] waits for.
type Watch struct {
	// File is the path of the file that is to appear.
	File string `json:"file"`
	// EverySeconds is the time between two looks; 30 if it is not given.
	EverySeconds float64 `json:"everySeconds"`
	// ForSeconds is the time after which to give up; 6 hours if it is not given.
	ForSeconds float64 `json:"forSeconds"`
	// Looks counts the looks so far, and Until is when to give up; Monitor passes
	// both on to itself.
	Looks int       `json:"looks"`
	Until time.Time `json:"until,omitzero"`
}

// Monitor is a recurrent process: it looks every so often whether a file is
// there, and returns true when it is, or false when time is up.
//
// A loop would do the same, but its history would grow for as long as it waits.
// ContinueAsNew ends this execution and begins the next with a new input and an
// empty history.
func Monitor(ctx *durable.Context, w Watch) (bool, error) {
	if w.File == "" {
		return false, errors.New(`the input must be like {"file": "/tmp/ready", "everySeconds": 5, "forSeconds": 600}`)
	}
	w = w.begun(ctx.Now())
	there, err := durable.CallActivity(ctx, IsThere, w.File).Await()
	if err != nil || there {
		return there, err
	}
	every := seconds(w.EverySeconds)
	if ctx.Now().Add(every).After(w.Until) {
		return false, nil
	}
	w.Looks++
	ctx.SetCustomStatus(fmt.Sprintf("not there after %d looks", w.Looks))
	ctx.Sleep(every)
	return durable.ContinueAsNew(ctx, Monitor, w)
}

// begun returns w with what was not given filled in. Only the first execution
// finds anything to fill in; what Until is then stays.
func (w Watch) begun(now time.Time) Watch {
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
