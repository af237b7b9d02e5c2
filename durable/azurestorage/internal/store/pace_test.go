package store

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// answering is a service that answers every request after the same time.
type answering struct {
	after  time.Duration
	status func(n int) int // status of the n-th request, from 1; nil means 200
	header http.Header

	mu   sync.Mutex
	sent []time.Time
}

func (a *answering) Do(*http.Request) (*http.Response, error) {
	a.mu.Lock()
	a.sent = append(a.sent, time.Now())
	n := len(a.sent)
	a.mu.Unlock()
	time.Sleep(a.after)
	status := http.StatusOK
	if a.status != nil {
		status = a.status(n)
	}
	return &http.Response{StatusCode: status, Header: a.header, Body: http.NoBody}, nil
}

// get sends a request and returns its status.
func get(ctx context.Context, t *testing.T, transport policy.Transporter) (int, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://queue", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// The visibility timeout of a message starts when its request is sent, not while the request waits for
// its turn.
func TestPace_RecordsWhenARequestIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, service := NewPace(1), &answering{after: 10 * time.Second}
		transport, began := p.LimitTransport(service), time.Now()
		var all sync.WaitGroup
		for n := range 3 {
			all.Go(func() {
				time.Sleep(time.Duration(n) * time.Millisecond)
				var at time.Time
				err := Once(t.Context(), func(ctx context.Context) error {
					_, err := get(ctx, t, transport)
					at = sentAt(ctx)
					return err
				})
				if want := time.Duration(n) * 10 * time.Second; err != nil || at.Sub(began) != want {
					t.Errorf("request %d was sent after %v, %v; want %v", n, at.Sub(began), err, want)
				}
			})
		}
		all.Wait()
	})
}

// limitedBy is a service that answers after a time, unless the request ends earlier.
type limitedBy time.Duration

func (d limitedBy) Do(req *http.Request) (*http.Response, error) {
	if !pause.For(req.Context(), time.Duration(d)) {
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody}, nil
}

// An attempt that uploads 1 MiB may take 16 seconds longer than an attempt without a body.
func TestOnce_ALargeUploadMayTakeLonger(t *testing.T) {
	for _, tt := range []struct {
		size  int
		after time.Duration
		want  string // in the error
	}{
		{0, 59 * time.Second, ""},
		{0, 61 * time.Second, "no response within 1m0s"},
		{1<<16 - 1, 61 * time.Second, "no response within 1m0s"},
		{1 << 16, 60500 * time.Millisecond, ""},
		{1 << 20, 75 * time.Second, ""},
		{1 << 20, 77 * time.Second, "no response within 1m16s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			err := Once(t.Context(), func(ctx context.Context) error {
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://blob", bytes.NewReader(make([]byte, tt.size)))
				if err != nil {
					return err
				}
				resp, err := NewPace(1).LimitTransport(limitedBy(tt.after)).Do(req)
				if err != nil {
					return err
				}
				return resp.Body.Close()
			})
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%d bytes that take %v: %v; want %q", tt.size, tt.after, err, tt.want)
			}
		})
	}
}

// An upload without a response has two attempts, also if each one may take longer than two minutes.
func TestRetry_ALargeUploadHasTwoAttempts(t *testing.T) {
	for _, size := range []int{0, 1 << 20, 16 << 20} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			transport := NewPace(1).LimitTransport(limitedBy(24 * time.Hour))
			err := Retry(t.Context(), "upload", func(ctx context.Context) error {
				attempts++
				req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://blob", bytes.NewReader(make([]byte, size)))
				if err != nil {
					return err
				}
				resp, err := transport.Do(req)
				if err != nil {
					return err
				}
				return resp.Body.Close()
			})
			if err == nil || attempts != 2 {
				t.Errorf("%d bytes: %d attempts, %v; want 2 that fail", size, attempts, err)
			}
		})
	}
}

// refuseFirst returns the status function of a service that refuses the first n requests.
func refuseFirst(n int) func(int) int {
	return func(i int) int {
		if i <= n {
			return http.StatusServiceUnavailable
		}
		return http.StatusOK
	}
}

// After a refusal, not even an urgent request is sent before the time in Retry-After.
func TestPace_SendsNothingUntilRetryAfter(t *testing.T) {
	for header, want := range map[string]time.Duration{"7": 7 * time.Second, "": firstPause / 2} {
		synctest.Test(t, func(t *testing.T) {
			service := &answering{after: time.Millisecond, status: refuseFirst(1), header: http.Header{"Retry-After": {header}}}
			p := NewPace(16)
			transport := p.LimitTransport(p.WatchTransport(service))
			if status, err := get(t.Context(), t, transport); status != http.StatusServiceUnavailable || err != nil {
				t.Fatal(status, err)
			}
			refused := time.Now()
			var all sync.WaitGroup
			for n := range 10 {
				ctx := t.Context()
				if n%2 == 0 {
					ctx = Urgent(ctx)
				}
				all.Go(func() {
					if status, err := get(ctx, t, transport); status != http.StatusOK || err != nil {
						t.Error(status, err)
					}
				})
			}
			all.Wait()
			if got := service.sent[1].Sub(refused); got < want || want > time.Second && got > want {
				t.Errorf("Retry-After %q: the next request was sent after %v, want %v", header, got, want)
			}
		})
	}
}

// Simultaneous refusals are one burst.
func TestPace_HalvesTheRateOncePerBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &answering{after: 10 * time.Millisecond, status: func(i int) int {
			if i > 200 && i <= 216 {
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		}}
		p := NewPace(16)
		transport := p.LimitTransport(p.WatchTransport(service))
		for range 11 { // 176 requests
			time.Sleep(100 * time.Millisecond)
			send(t, transport, 16)
		}
		if p.throttle.rate != 0 {
			t.Fatalf("without a refusal the rate is limited to %v", p.throttle.rate)
		}
		send(t, transport, 24)
		send(t, transport, 16)
		if rate := p.throttle.rate; rate < 50 || rate > 100 {
			t.Errorf("about 160 requests per second were answered, and after one burst the rate is %v; want half of it", rate)
		}
		time.Sleep(2 * throttleMemory)
		send(t, transport, 1)
		if p.throttle.rate != 0 {
			t.Errorf("long after the refusals the rate is limited to %v", p.throttle.rate)
		}
	})
}

// A low request rate does not show that the service accepts a higher one.
func TestPace_DoesNotRaiseARateThatIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPace(16)
		transport := p.LimitTransport(p.WatchTransport(&answering{after: time.Millisecond, status: refuseFirst(1)}))
		send(t, transport, 1)
		for range 100 {
			time.Sleep(500 * time.Millisecond)
			send(t, transport, 1)
		}
		if p.throttle.rate > firstRate {
			t.Errorf("after two requests per second the rate is %v, want at most %d", p.throttle.rate, firstRate)
		}
	})
}

// send sends n requests at the same time and waits for their answers.
func send(t *testing.T, transport policy.Transporter, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, err := get(t.Context(), t, transport); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A canceled caller does not use up a turn.
func TestPace_ACanceledCallerTakesNoTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := &answering{after: time.Millisecond, status: refuseFirst(1), header: http.Header{"Retry-After": {"20"}}}
		p := NewPace(1)
		transport := p.LimitTransport(p.WatchTransport(service))
		if _, err := get(t.Context(), t, transport); err != nil {
			t.Fatal(err)
		}
		for _, ctx := range []context.Context{t.Context(), Urgent(t.Context())} {
			impatient, cancel := context.WithTimeout(ctx, time.Second)
			if _, err := get(impatient, t, transport); !errors.Is(err, ErrNeverSent) {
				t.Errorf("a request that waits ends with %v, want %v", err, ErrNeverSent)
			}
			cancel()
		}
		if status, err := get(t.Context(), t, transport); status != http.StatusOK || err != nil || len(service.sent) != 2 {
			t.Errorf("%d, %v after %d requests", status, err, len(service.sent))
		}
		if p.Running != 0 || len(p.Turns) != 0 || len(p.urgent) != 0 {
			t.Errorf("%d requests run, %d and %d wait; want none", p.Running, len(p.Turns), len(p.urgent))
		}
	})
}

// The service counts as busy during a pause only if the pause is long.
func TestPace_IsBusyDuringALongPauseOnly(t *testing.T) {
	for after, want := range map[string]bool{"5": false, "20": true} {
		synctest.Test(t, func(t *testing.T) {
			p := NewPace(16)
			service := &answering{after: time.Millisecond, status: refuseFirst(1), header: http.Header{"Retry-After": {after}}}
			transport := p.LimitTransport(p.WatchTransport(service))
			time.Sleep(time.Hour) // the time since the last turn does not count as a wait
			send(t, transport, 1)
			var all sync.WaitGroup
			all.Go(func() { send(t, transport, 3) })
			for range 8 {
				if got := p.IsBusy(); got != want {
					t.Errorf("Retry-After %s: busy %v, want %v", after, got, want)
				}
				time.Sleep(500 * time.Millisecond)
			}
			all.Wait()
		})
	}
}

// A service is busy only if a request would wait longer than a client can wait.
func TestPace_IsBusyOnlyIfTheWaitIsLong(t *testing.T) {
	for _, tt := range []struct {
		after   time.Duration
		callers int
		want    bool
	}{{10 * time.Millisecond, 1000, false}, {200 * time.Millisecond, 100, false}, {time.Second, 1000, true}, {20 * time.Second, 100, true}} {
		synctest.Test(t, func(t *testing.T) {
			p := NewPace(16)
			transport := p.LimitTransport(p.WatchTransport(&answering{after: tt.after}))
			ctx, stop := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for range tt.callers {
				all.Go(func() {
					for ctx.Err() == nil {
						_, _ = get(ctx, t, transport) // fails when ctx ends
					}
				})
			}
			time.Sleep(45 * time.Second)
			if got := p.IsBusy(); got != tt.want {
				t.Errorf("%d callers, answers after %v: busy %v, want %v", tt.callers, tt.after, got, tt.want)
			}
			stop()
			all.Wait()
			if p.IsBusy() {
				t.Error("the service is busy without callers")
			}
		})
	}
}

// refusing returns an attempt that an overloaded service refuses for a time, and a counter.
func refusing(d time.Duration) (attempt func(context.Context) error, made *int) {
	until := time.Now().Add(d)
	made = new(int)
	return func(context.Context) error {
		*made++
		if time.Now().Before(until) {
			return &azcore.ResponseError{StatusCode: http.StatusServiceUnavailable, ErrorCode: "ServerBusy"}
		}
		return nil
	}, made
}

// A refused operation is retried for 30 seconds, but not past a deadline or a limit.
func TestRetry_RepeatsARefusedOperation(t *testing.T) {
	deadline := func(ctx context.Context, d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(ctx, d) // real time: the tests call it in a bubble
		t.Cleanup(cancel)
		return ctx
	}
	for name, tt := range map[string]struct {
		refuses time.Duration
		limit   func(context.Context) context.Context
		longest time.Duration // 0 if it succeeds
	}{
		"refusals of 25 seconds": {refuses: 25 * time.Second},
		"refusals of an hour":    {refuses: time.Hour, longest: refusedFor + maxRetryDelay},
		"a deadline":             {refuses: time.Hour, limit: func(ctx context.Context) context.Context { return deadline(ctx, 9*time.Second) }, longest: 9 * time.Second},
		"a limit":                {refuses: time.Hour, limit: func(ctx context.Context) context.Context { return RetryBefore(ctx, time.Now().Add(9*time.Second)) }, longest: 9 * time.Second},
		"a limit in the past":    {refuses: time.Hour, limit: func(ctx context.Context) context.Context { return RetryBefore(ctx, time.Now()) }, longest: time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, began := t.Context(), time.Now()
			if tt.limit != nil {
				ctx = tt.limit(ctx)
			}
			attempt, made := refusing(tt.refuses)
			err := Retry(ctx, "try", attempt)
			took := time.Since(began)
			if (err == nil) != (tt.longest == 0) || tt.longest > 0 && took > tt.longest || *made < MaxAttempts {
				t.Errorf("%s: %d attempts, %v after %v", name, *made, err, took)
			}
			if tt.longest > refusedFor && took < refusedFor {
				t.Errorf("%s: no retry after %v", name, took)
			}
		})
	}
}

// An operation without an answer is retried a few times only: its caller repeats it later.
func TestRetry_FailsSoonWithoutAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, made := time.Now(), 0
		err := Retry(t.Context(), "try", func(context.Context) error {
			made++
			return errors.New("connection refused")
		})
		if err == nil || made != MaxAttempts || time.Since(began) > time.Second {
			t.Errorf("%d attempts in %v, %v", made, time.Since(began), err)
		}
	})
}
