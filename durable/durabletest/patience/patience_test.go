package patience

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

func TestLimit_EndsBeforeTheProcessIsKilled(t *testing.T) {
	for _, test := range []struct {
		killed, ran time.Duration // since the process started
		want        time.Duration
	}{
		{0, 24 * time.Hour, MaxWait},
		{time.Hour, time.Minute, MaxWait},
		{time.Hour, 59 * time.Minute, time.Minute - reserve},
		{time.Hour, time.Hour - time.Second, 0},
	} {
		if got := limit(started.Add(test.ran), test.killed); got != test.want {
			t.Errorf("killed after %v, at %v: the limit is %v, want %v", test.killed, test.ran, got, test.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		if got := limit(time.Now(), time.Second); got != MaxWait {
			t.Errorf("in a bubble the limit is %v, want %v", got, MaxWait)
		}
	})
}

func TestContext_EndsAfterTheLimitOrWithTheTest(t *testing.T) {
	var ctx context.Context
	t.Run("step", func(t *testing.T) { ctx = Context(t) })
	if err := ctx.Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("after the test the context has the error %v, want %v", err, context.Canceled)
	}
	synctest.Test(t, func(t *testing.T) {
		if end, ok := Context(t).Deadline(); !ok || time.Until(end) != MaxWait {
			t.Errorf("the context ends at %v, want in %v", end, MaxWait)
		}
	})
}

// fakeTest records its failure.
type fakeTest struct {
	testing.TB
	failed string
}

func (f *fakeTest) Fatalf(format string, args ...any) {
	f.failed = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestUntil_FailsOnlyAfterTheLimit(t *testing.T) {
	for _, test := range []struct {
		late   time.Duration
		failed string
	}{
		{0, ""},
		{MaxWait - time.Second, ""},
		{MaxWait + time.Minute, "did not happen within 4m0s: the late event"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f, began := &fakeTest{TB: t}, time.Now()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				Until(f, "the late event", func() bool { return time.Since(began) >= test.late })
			}()
			<-ended
			if f.failed != test.failed {
				t.Errorf("an event after %v: failure %q, want %q", test.late, f.failed, test.failed)
			}
			if took, want := time.Since(began), min(test.late, MaxWait); took < want || took > want+time.Second {
				t.Errorf("an event after %v: the wait took %v, want %v", test.late, took, want)
			}
		})
	}
}
