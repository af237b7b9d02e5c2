package clock

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func reads(ctx *durable.Context, at time.Time) (time.Duration, error) {
	now := time.Now()          // want `^time.Now reads the machine's clock, which differs on replay; use ctx.Now\(\)$`
	_ = time.Since(now)        // want `time.Since reads .* use ctx.Now\(\).Sub\(t\)`
	return time.Until(at), nil // want `time.Until reads .* use t.Sub\(ctx.Now\(\)\)`
}

func waits(ctx *durable.Context, d time.Duration) (durable.Void, error) {
	time.Sleep(d)            // want `time.Sleep waits outside of the history, .* use ctx.Sleep`
	<-time.After(d)          // want `^time.After is a timer outside of the history, .* use ctx.Timer$`
	for range time.Tick(d) { // want `^time.Tick is a timer`
		break
	}
	time.NewTimer(d)             // want `time.NewTimer is a timer`
	time.NewTicker(d)            // want `time.NewTicker is a timer`
	time.AfterFunc(d, func() {}) // want `time.AfterFunc is a timer .* use durable.Go with ctx.Sleep`
	return durable.Void{}, nil
}

func byReference(ctx *durable.Context, in int) (int, error) {
	clock := time.Now // want `time.Now reads`
	clock()
	return in, nil
}

var now = time.Now

var started = time.Now()

func throughVariables(ctx *durable.Context, in int) (time.Time, error) {
	if now().IsZero() { // want `time.Now, reached via now, reads the machine's clock`
		return started, nil // want `time.Now, reached via started, reads`
	}
	return ctx.Now(), nil
}

func right(ctx *durable.Context, d time.Duration) (time.Time, error) {
	deadline := ctx.Now().Add(d).Truncate(time.Hour)
	ctx.Sleep(deadline.Sub(ctx.Now()))
	t, err := time.Parse(time.RFC3339, "2026-01-02T03:04:05Z")
	if err != nil || time.Unix(0, 0).After(t) {
		return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), err
	}
	return ctx.Timer(2 * time.Second).Await()
}
