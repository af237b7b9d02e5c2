package dispatch_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/dispatch"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

func TestShutdown_WaitsForAnActivity(t *testing.T) {
	bubble(t, func(b *bench) {
		runs := 0
		fns := calling(func(_ context.Context, input *string) (*string, error) {
			runs++
			time.Sleep(4 * time.Second)
			return input, nil
		})
		stop := b.work(fns)
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("stopping took %v, want the 3s that the activity needed", took)
		}
		b.work(fns)
		b.wantOutput("i", history.Completed, `"in"`)
		if runs != 1 {
			t.Errorf("the activity ran %d times, want 1", runs)
		}
	})
}

func TestShutdown_CancelsAndAbandonsAnActivity(t *testing.T) {
	bubble(t, func(b *bench) {
		var causes []error
		fns := calling(func(ctx context.Context, input *string) (*string, error) {
			select {
			case <-ctx.Done():
				causes = append(causes, context.Cause(ctx))
				return nil, ctx.Err()
			case <-time.After(20 * time.Second):
				return input, nil
			}
		})
		stop := b.work(fns)
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		start := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 5*time.Second {
			t.Errorf("stopping took %v, want the shutdown timeout of 5s", took)
		}
		if len(causes) != 1 || !strings.Contains(causes[0].Error(), "the worker is stopping") {
			t.Errorf("the causes of cancellation are %v", causes)
		}
		b.work(fns)
		b.wantOutput("i", history.Completed, `"in"`)
		if n := b.log.count("activity runs again"); n != 1 {
			t.Errorf("the log has %d entries for the second run, want 1:\n%s", n, b.log)
		}
	})
}

func TestShutdown_StoresAResultThatArrivesAtTheLastMoment(t *testing.T) {
	bubble(t, func(b *bench) {
		runs := 0
		fns := calling(func(ctx context.Context, input *string) (*string, error) {
			runs++
			<-ctx.Done()
			return input, nil // a result at the last moment
		})
		stop := b.work(fns)
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		if err := stop(); err != nil {
			t.Error(err)
		}
		b.work(fns)
		b.wantOutput("i", history.Completed, `"in"`)
		if runs != 1 {
			t.Errorf("the activity ran %d times, want 1", runs)
		}
	})
}

func TestShutdown_DoesNotWaitForAnActivityThatIgnoresItsContext(t *testing.T) {
	bubble(t, func(b *bench) {
		var deaf atomic.Bool
		deaf.Store(true)
		fns := calling(func(_ context.Context, input *string) (*string, error) {
			if deaf.Load() {
				time.Sleep(time.Hour)
				return encode("too late"), nil
			}
			return input, nil
		})
		stop := b.work(fns)
		b.start("i", "O", nil)
		time.Sleep(time.Second)
		start := time.Now()
		if err := stop(); err != nil {
			t.Errorf("the activity was abandoned, but the worker stopped with: %v", err)
		}
		if took := time.Since(start); took < 5*time.Second || took > 15*time.Second {
			t.Errorf("stopping took %v, want 5 to 15 s", took)
		}
		deaf.Store(false)
		b.work(fns)
		b.wantOutput("i", history.Completed, `"in"`)
		time.Sleep(time.Hour)
	})
}

// hopeless is a hub whose provider always fails.
type hopeless struct {
	provider.Worker
	err error
}

func (h hopeless) Run(ctx context.Context) error {
	time.Sleep(time.Minute) // real time: the worker runs in a bubble
	return h.err
}

func TestRun_EndsWithTheProvidersError(t *testing.T) {
	bubble(t, func(b *bench) {
		want := errors.New("the hub has 16 partitions")
		err := dispatch.New(hopeless{b.Hub, want}, functions{}, dispatch.Config{
			MaxConcurrentActivities: 1, MaxConcurrentOrchestrators: 1, Logger: discard,
		}).Run(b.Context())
		if !errors.Is(err, want) {
			t.Errorf("error is %v, want %v", err, want)
		}
	})
}

func TestRun_ContinuesAfterAnOutageAndLogsItOnce(t *testing.T) {
	bubble(t, func(b *bench) {
		var tries atomic.Int32
		b.Inject(memhub.FetchFails, func() bool { tries.Add(1); return true })
		b.work(helloFunctions)
		b.start("i", "HelloSeq", nil)
		time.Sleep(time.Hour)
		if n := tries.Load(); n < 100 || n > 300 {
			t.Errorf("%d attempts in an hour, want two every 30 s", n)
		}
		b.Inject(memhub.FetchFails, nil)
		b.wantOutput("i", history.Completed, `["Hello Tokyo!","Hello Seattle!","Hello London!"]`)
		for _, text := range []string{
			"cannot fetch orchestrations; trying again", "can fetch orchestrations again",
			"cannot fetch activities; trying again", "can fetch activities again",
		} {
			if n := b.log.count(text); n != 1 {
				t.Errorf("%q was logged %d times, want once", text, n)
			}
		}
	})
}

func TestRun_StopsDuringAnOutage(t *testing.T) {
	bubble(t, func(b *bench) {
		b.Inject(memhub.FetchFails, func() bool { return true })
		stop := b.work(helloFunctions)
		time.Sleep(time.Minute) // real time: the worker runs in a bubble
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
