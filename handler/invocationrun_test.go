package handler

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
	"github.com/labstack/echo/v4"
)

func countingTrigger(n *int) Trigger {
	return Manual("Count", func(context.Context, *Invocation, string) error {
		*n++
		return nil
	})
}

const manualBody = `{"Data":{"input":"\"x\""},"Metadata":{"sys":{}}}`

func TestInvocation_EachProblemIsAFailureWithALogLine(t *testing.T) {
	t.Parallel()
	out := QueueOutput[any]("out", "results")
	other := QueueOutput[string]("other", "results")
	manual := func(fn func(context.Context, *Invocation, string) error) Trigger { return Manual("Run", fn, out) }
	for _, tt := range []struct {
		name string
		fn   Trigger
		body string
		want string
	}{
		{"an error", manual(func(context.Context, *Invocation, string) error { return errors.New("no\nluck") }), manualBody, "no luck"},
		{"a panic", manual(func(context.Context, *Invocation, string) error { panic("kaboom") }), manualBody, "panic: kaboom"},
		{"a nil map", manual(func(context.Context, *Invocation, string) error {
			var m map[string]int
			m["a"] = 1 //nolint:staticcheck // the test needs this panic
			return nil
		}), manualBody, "assignment to entry in nil map"},
		{"Goexit", manual(func(context.Context, *Invocation, string) error {
			runtime.Goexit()
			return nil
		}), manualBody, "runtime.Goexit"},
		{"an output that cannot be encoded as JSON", manual(func(_ context.Context, call *Invocation, _ string) error {
			out.Put(call, func() {})
			return nil
		}), manualBody, `encode output \"out\" as func()`},
		{"an output that it does not have", manual(func(_ context.Context, call *Invocation, _ string) error {
			other.Put(call, "x")
			return nil
		}), manualBody, `has no output \"other\"`},
		{"a payload of another type", Manual("Run", func(context.Context, *Invocation, int) error { return nil }), manualBody, "decode the payload as int"},
		{"another function.json", manual(nil2), `{"Data":{"message":"\"x\""},"Metadata":{}}`, `the host sent no \"input\"`},
		{"no invocation", manual(nil2), `{"Data":7}`, "the body is not an invocation"},
		{"an empty body", manual(nil2), ``, "the body is not an invocation"},
	} {
		s, log := hosted(t, App{Triggers: []Trigger{tt.fn}})
		code, body := invoke(s, "Run", tt.body)
		if code != http.StatusInternalServerError || !strings.Contains(body, tt.want) {
			t.Errorf("%s: %d %s, want 500 with %s", tt.name, code, body, tt.want)
		}
		if n := log.count("level=ERROR"); n < 1 || !strings.Contains(log.text.String(), "the-invocation") || !strings.Contains(log.text.String(), "function=Run") {
			t.Errorf("%s: the log has no record of it:\n%s", tt.name, log.text.String())
		}
	}
}

func nil2(context.Context, *Invocation, string) error { return nil }

func TestInvocation_LogfGoesToTheHostOrAfterAFailureToTheLog(t *testing.T) {
	t.Parallel()
	s, log := hosted(t, App{Triggers: []Trigger{Manual("Run", func(_ context.Context, call *Invocation, text string) error {
		call.Logf("got %s", text)
		call.Logger().Info("by the way")
		if text == "bad" {
			return errors.New("refused")
		}
		return nil
	})}})
	code, body := invoke(s, "Run", manualBody)
	if want := `{"Outputs":{},"Logs":["got x"],"ReturnValue":null}`; code != http.StatusOK || body != want {
		t.Errorf("%d %s, want %s", code, body, want)
	}
	if log.count("got x") != 0 || log.count(`msg="by the way" function=Run invocationId=the-invocation`) != 1 {
		t.Errorf("the log has\n%s", log.text.String())
	}
	if code, _ := invoke(s, "Run", strings.Replace(manualBody, "x", "bad", 1)); code != http.StatusInternalServerError || log.count(`msg="got bad"`) != 1 {
		t.Errorf("%d, the log has\n%s", code, log.text.String())
	}
}

func TestInvocation_EndsBeforeTheTimeLimitOfTheHost(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		cfg  Config
		opts []TriggerOption
		want time.Duration
	}{
		{"by default", Config{BehindHost: true, FunctionTimeout: -1}, nil, 30 * time.Minute},
		{"its own", Config{BehindHost: true, FunctionTimeout: -1}, []TriggerOption{Timeout(time.Hour)}, time.Hour},
		{"the host's default", Config{BehindHost: true}, []TriggerOption{Timeout(time.Hour)}, 30*time.Minute - 10*time.Second},
		{"Consumption", Config{BehindHost: true, plan: settings.PlanConsumption}, nil, 5*time.Minute - 10*time.Second},
		{"host.json's", Config{BehindHost: true, FunctionTimeout: 10 * time.Second}, nil, 8 * time.Second},
	} {
		if got := tt.cfg.timeLimitOf(Manual("Run", nil2, tt.opts...)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestInvocation_ThatTimesOutIsAnsweredAndWritesNoOutput(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name      string
		fn        func(context.Context, *Invocation, string) error
		want      string
		wantAfter time.Duration
	}{
		{"one that listens", func(ctx context.Context, _ *Invocation, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}, "function Run exceeded its time limit of 1m0s: context deadline exceeded", time.Minute},
		{"one that does not", func(_ context.Context, call *Invocation, _ string) error {
			time.Sleep(time.Hour)
			call.Logf("too late")
			return nil
		}, "; it still runs: a function must return when its context ends", time.Minute + 2*time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, log := hosted(t, App{Triggers: []Trigger{Manual("Run", tt.fn, Timeout(time.Minute))}})
			began := time.Now()
			code, body := invoke(s, "Run", manualBody)
			if code != http.StatusInternalServerError || !strings.Contains(body, tt.want) {
				t.Errorf("%s: %d %s, want 500 with %s", tt.name, code, body, tt.want)
			}
			if took := time.Since(began); took != tt.wantAfter {
				t.Errorf("%s: answered after %v, want %v", tt.name, took, tt.wantAfter)
			}
			time.Sleep(2 * time.Hour) // until the function ends
			if log.count("too late") > 0 {
				t.Errorf("%s: it has written afterwards", tt.name)
			}
		})
	}
}

func TestApp_CallersGetTheProblemsOfInvalidFunctions(t *testing.T) {
	t.Parallel()
	route := func(api *echo.Group, _ *durable.Client) {
		api.POST("/Run", func(c echo.Context) error { return c.NoContent(http.StatusOK) })
	}
	run := Manual("Run", nil2)
	for _, tt := range []struct {
		name string
		app  App
		want string
	}{
		{"no function", App{Triggers: []Trigger{Manual[string]("Run", nil)}}, `function "Run" has no Go function`},
		{"zero", App{Triggers: []Trigger{{}}}, "a zero handler.Trigger is not a function"},
		{"twice", App{Triggers: []Trigger{run, Manual("run", nil2)}}, `functions "Run" and "run" have the same name`},
		{"a route's path", App{Triggers: []Trigger{run}, Routes: route}, "the app's route POST /Run conflicts with function"},
	} {
		cfg, _ := loggedConfig(t, newFakeHub())
		cfg.RoutePrefix = ""
		s := New(tt.app, cfg)
		if s.cfg.Problem == nil || !strings.Contains(s.cfg.Problem.Error(), tt.want) {
			t.Errorf("%s: the problem is %v, want %s", tt.name, s.cfg.Problem, tt.want)
			continue
		}
		if w := call(s, "POST", "/Run", manualBody); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %s, want 503", tt.name, w.Code, w.Body)
		}
	}
}

// Tests of functions create invocations themselves.
func TestInvocation_ItsZeroValueCanBeUsed(t *testing.T) {
	t.Parallel()
	var call Invocation
	call.Logf("fine")
	call.Logger().Debug("fine")
	QueueOutput[string]("out", "results").Put(&call, "x")
	var metadata struct{ DequeueCount int }
	if err := call.Metadata(&metadata); err != nil {
		t.Error(err)
	}
	if _, err := BlobInput[string]("in", "a/b").Of(&call); err == nil || !strings.Contains(err.Error(), `has no input "in"`) {
		t.Errorf("an input that is not there: %v", err)
	}
	if err := call.Metadata(metadata); err == nil || !strings.Contains(err.Error(), "is not a pointer to a struct or map") {
		t.Errorf("metadata into no pointer: %v", err)
	}
}

func TestApp_StandaloneLogsThatNothingStartsTriggers(t *testing.T) {
	t.Parallel()
	cfg, log := anyPort(t, newFakeHub())
	_, stop := start(t, New(App{Triggers: []Trigger{Manual("Run", nil2)}}, cfg))
	if err := stop(); err != nil {
		t.Error(err)
	}
	if log.count("nothing starts the functions that have triggers, such as Run") != 1 {
		t.Errorf("the log has\n%s", log.text.String())
	}
}

func TestConfig_FunctionTimeoutIsTheHosts(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{`"00:10:00"`: 10 * time.Minute, `"-1"`: -1, `"1.00:00:00"`: 24 * time.Hour, `null`: 0} {
		cfg := configured(t, `{"functionTimeout": `+text+`}`)
		if cfg.Problem != nil || cfg.FunctionTimeout != want {
			t.Errorf("%s: %v %v, want %v", text, cfg.FunctionTimeout, cfg.Problem, want)
		}
	}
	for _, text := range []string{`"soon"`, `"00:00:00"`, `""`, `5`} {
		if cfg := configured(t, `{"functionTimeout": `+text+`}`); cfg.Problem == nil || !strings.Contains(cfg.Problem.Error(), "functionTimeout is") {
			t.Errorf("%s: the problem is %v", text, cfg.Problem)
		}
	}
}
