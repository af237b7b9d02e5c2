package coro_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// park parks the running coroutine and stores the function that wakes it in wakes.
func park(g *coro.Group, wakes map[string]func(), name string) {
	r := g.Running()
	ticket := r.Ticket()
	wakes[name] = func() { g.Wake(r, ticket) }
	g.Park()
}

func TestGroup_RunsInTheOrderOfWakeUps(t *testing.T) {
	t.Parallel()
	var g coro.Group
	var got []string
	wakes := map[string]func(){}
	for _, n := range []string{"a", "b", "c"} {
		g.Go(func() {
			got = append(got, "begin "+n)
			park(&g, wakes, n)
			got = append(got, "end "+n)
		})
	}
	g.Run()
	wakes["c"]()
	wakes["a"]()
	g.Run()
	wakes["b"]()
	g.Run()
	want := []string{"begin a", "begin b", "begin c", "end c", "end a", "end b"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGroup_AWokenCoroutineRunsAfterTheReadyOnes(t *testing.T) {
	t.Parallel()
	var g coro.Group
	var got []string
	wakes := map[string]func(){}
	g.Go(func() { park(&g, wakes, "sleeper"); got = append(got, "sleeper") })
	g.Go(func() {
		wakes["sleeper"]()
		g.Go(func() { got = append(got, "child") })
		got = append(got, "waker")
	})
	g.Go(func() { got = append(got, "third") })
	g.Run()
	if want := []string{"waker", "third", "sleeper", "child"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGroup_ATicketWakesOnce(t *testing.T) {
	t.Parallel()
	var g coro.Group
	wakes := map[string]func(){}
	stays := 0
	g.Go(func() {
		for {
			park(&g, wakes, "r")
			stays++
		}
	})
	g.Run()
	old := wakes["r"]
	old()
	old()
	g.Run()
	old()
	g.Run()
	if stays != 1 {
		t.Errorf("one ticket woke the coroutine %d times", stays)
	}
	g.Close()
}

func TestGroup_AWakeUpBeforeTheParkIsNotLost(t *testing.T) {
	t.Parallel()
	var g coro.Group
	ended := false
	g.Go(func() {
		g.Wake(g.Running(), g.Running().Ticket())
		g.Park()
		ended = true
	})
	g.Run()
	if !ended {
		t.Error("the coroutine is still parked")
	}
}

func TestGroup_StopEndsTheRunAfterTheStep(t *testing.T) {
	t.Parallel()
	var g coro.Group
	var got []string
	g.Go(func() { g.Stop(); got = append(got, "first") })
	g.Go(func() { got = append(got, "second") })
	g.Run()
	g.Run()
	g.Close()
	if want := []string{"first"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestGroup_CloseUnwindsTheNewestFirstAndRecoverReturnsNil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the bubble fails if a goroutine remains
		var g coro.Group
		var got []string
		for _, n := range []string{"old", "new"} {
			g.Go(func() {
				defer func() { got = append(got, n+" outer") }()
				defer func() {
					if v := recover(); v != nil {
						t.Errorf("recovered %v", v)
					}
					got = append(got, n+" inner")
				}()
				g.Park()
				t.Error("resumed")
			})
		}
		g.Run()
		g.Go(func() { t.Error("started after Run") })
		g.Close()
		g.Close()
		if want := []string{"new inner", "new outer", "old inner", "old outer"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if !g.IsClosing() {
			t.Error("Closing returned false")
		}
	})
}

func TestGroup_ContainsPanicsOfDeferredCallsWhileUnwinding(t *testing.T) {
	t.Parallel()
	var g coro.Group
	outer := false
	g.Go(func() {
		defer func() { outer = true }()
		defer func() { panic("in a deferred call") }()
		g.Park()
	})
	g.Run()
	g.Close()
	if !outer {
		t.Error("the outer deferred call did not run")
	}
}

//go:noinline
func explode() { panic("boom") }

func TestGroup_ContainsAPanicAndKeepsItsStack(t *testing.T) {
	t.Parallel()
	var g coro.Group
	g.Go(func() { explode() })
	g.Go(func() { t.Error("ran after the crash") })
	crash := g.Run()
	g.Close()
	if crash == nil || crash.Value != "boom" || crash.Goexit {
		t.Fatalf("crash = %+v", crash)
	}
	stack := string(crash.Stack)
	if !strings.HasPrefix(stack, "github.com/durablefunctions-go/durablefunctions/durable/internal/coro_test.explode(") {
		t.Errorf("the stack does not start at the panic:\n%s", stack)
	}
	if strings.Contains(stack, "corostart") {
		t.Errorf("the stack includes frames below the coroutine's function:\n%s", stack)
	}
}

func TestGroup_ContainsANilPanic(t *testing.T) {
	t.Parallel()
	var g coro.Group
	g.Go(func() { panic(nil) }) //nolint:govet // tests a nil panic
	crash := g.Run()
	if _, ok := crash.Value.(*runtime.PanicNilError); !ok || crash.Goexit {
		t.Errorf("crash = %+v", crash)
	}
}

func TestGroup_ContainsGoexit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g coro.Group
		g.Go(func() { runtime.Goexit() })
		crash := g.Run() // must not end the test's goroutine
		if crash == nil || !crash.Goexit || crash.Value != nil {
			t.Fatalf("crash = %+v", crash)
		}
		if !strings.Contains(string(crash.Stack), "TestGroup_ContainsGoexit") {
			t.Errorf("the stack does not show the caller of Goexit:\n%s", crash.Stack)
		}
		g.Close()
	})
}

func TestGroup_RunCanBeCalledFromAnyGoroutine(t *testing.T) {
	t.Parallel()
	var g coro.Group
	wakes := map[string]func(){}
	steps := 0
	g.Go(func() {
		for range 3 {
			park(&g, wakes, "r")
			steps++
		}
	})
	g.Run()
	for range 3 {
		done := make(chan struct{})
		go func() {
			defer close(done)
			wakes["r"]()
			g.Run()
		}()
		<-done
	}
	if steps != 3 {
		t.Errorf("took %d steps, want 3", steps)
	}
}

func TestInRoutine_DistinguishesCoroutinesFromGoroutines(t *testing.T) {
	t.Parallel()
	if coro.InRoutine() {
		t.Error("InRoutine returned true in a test's goroutine")
	}
	var g coro.Group
	g.Go(func() {
		if !coro.InRoutine() {
			t.Error("InRoutine returned false in a coroutine")
		}
		foreign := make(chan bool)
		go func() { foreign <- coro.InRoutine() }()
		if <-foreign {
			t.Error("InRoutine returned true in a goroutine that a coroutine started")
		}
		if !deep(200) {
			t.Error("InRoutine returned false for a deep stack")
		}
	})
	if crash := g.Run(); crash != nil {
		t.Fatal(crash)
	}
}

func deep(n int) bool {
	if n == 0 {
		return coro.InRoutine()
	}
	return deep(n - 1)
}

// A goroutine may reuse the stack memory of a coroutine whose stack has grown.
func TestGroup_AGoroutineOnAReusedStackIsNotInside(t *testing.T) {
	var g coro.Group
	for range 100 {
		g.Go(func() {
			if !g.Inside() {
				t.Error("Inside returned false in a coroutine")
			}
			growStack(64)
			done := make(chan bool)
			for range 10 {
				go func() { done <- g.Inside() }()
			}
			for range 10 {
				if <-done {
					t.Error("Inside returned true in a goroutine that a coroutine started")
				}
			}
		})
	}
	g.Run()
}

func growStack(n int) byte {
	var filler [1024]byte
	if n > 0 {
		filler[n] = growStack(n - 1)
	}
	return filler[n]
}
