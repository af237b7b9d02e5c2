package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/google/go-cmp/cmp"
)

// The Close method of a test server closes idle connections of http.DefaultTransport, and that can break requests
// of tests that run in parallel. So the variable hides the method for it.
func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

// transport is a RoundTripper without a network, because a synctest bubble cannot wait
// for the network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer returns a response for a transport.
func answer(r *http.Request, status int, header http.Header, body string) (*http.Response, error) {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}, nil
}

// tokens is a TokenProvider that returns the scope and its options as the token.
type tokens struct{ err error }

func (p tokens) Token(_ context.Context, m durable.ManagedIdentity) (string, error) {
	return fmt.Sprint(m.Resource, "|", m.AuthorityHost, "|", m.TenantID), p.err
}

// act runs the built-in HTTP activity with an input from a hub.
func act(t *testing.T, c durable.HTTPConfig, input string) (string, error) {
	t.Helper()
	f, ok := durable.EngineOf(durable.WithHTTP(durable.NewRegistry(), c)).Activity("builtin::HTTPactivity")
	if !ok {
		t.Fatal("the registry has no activity BuiltIn::HttpActivity")
	}
	output, err := f(t.Context(), &input)
	if err != nil {
		return "", err
	}
	return *output, nil
}

// A request that a .NET orchestrator schedules must run here, and .NET must be able to
// decode the response.
func TestHTTPActivity_RunsRequestsOfDotNetOrchestrators(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header()["Date"] = nil
		w.Header()["Server"] = []string{"a", "b"}
		w.WriteHeader(418)
		_, _ = fmt.Fprint(w, r.Method, " ", r.URL, " ", r.Header["Accept"], " ", r.Header.Get("Content-Type"), " ", string(body))
	}))
	defer server.Close()
	got, err := act(t, durable.HTTPConfig{}, `[{"method":"POST","uri":"`+server.URL+`/a?b","headers":{"Accept":["c/d","e/f"],"content-type":"text/plain"},`+
		`"content":"5 <é>","tokenSource":null,"asynchronousPatternEnabled":true,"retryOptions":null,"timeout":"00:01:00"}]`)
	if err != nil {
		t.Fatal(err)
	}
	sameJSON(t, got, `{"statusCode":418,"headers":{"Server":["a","b"],"Content-Length":"37","Content-Type":"text/plain; charset=utf-8"},"content":"POST /a?b [c/d e/f] text/plain 5 <é>"}`)
}

func TestHTTPActivity_ReturnsContentAsTextOrBytes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, body, contentType, want, decoded string }{
		{"text", "é", "text/plain", `"content":"é"`, "é"},
		{"text of another charset", "\xE9", "text/plain; charset=iso-8859-1", `"content":"é"`, "é"},
		{"not text", "\x89PNG", "image/png", `"content":"�PNG","contentBytes":"iVBORw=="`, "\x89PNG"},
		{"text of an unknown charset", "\x82\xA0", "text/plain; charset=shift_jis", `"content":"�","contentBytes":"gqA="`, "\x82\xA0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := act(t, durable.HTTPConfig{Transport: transport(func(r *http.Request) (*http.Response, error) {
				return answer(r, 200, http.Header{"Content-Type": {c.contentType}}, c.body)
			})}, `{"uri":"http://a"}`)
			if err != nil {
				t.Fatal(err)
			}
			sameJSON(t, got, `{"statusCode":200,"headers":{"Content-Type":"`+c.contentType+`"},`+c.want+`}`)
			var resp durable.HTTPResponse
			if err := json.Unmarshal([]byte(got), &resp); err != nil || resp.Content != c.decoded {
				t.Errorf("the orchestrator gets %q, %v; want %q", resp.Content, err, c.decoded)
			}
		})
	}
}

// As in ManagedIdentityTokenSource.cs, the token replaces the caller's header.
func TestHTTPActivity_AuthorizesWithATokenOfTheIdentity(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ source, want string }{
		{`{"kind":"AzureManagedIdentity","resource":"https://graph.microsoft.com/"}`, "Bearer https://graph.microsoft.com/.default||"},
		{`{"kind":"AzureManagedIdentity","resource":"api://x/.default","options":{"authorityhost":"https://h/","tenantid":"t"}}`, "Bearer api://x/.default|https://h/|t"},
		{`null`, "Basic x"},
	} {
		var sent string
		_, err := act(t, durable.HTTPConfig{Tokens: tokens{}, Transport: transport(func(r *http.Request) (*http.Response, error) {
			sent = strings.Join(r.Header["Authorization"], ", ")
			return answer(r, 200, nil, "")
		})}, `[{"uri":"http://a","headers":{"authorization":"Basic x"},"tokenSource":`+c.source+`}]`)
		if err != nil || sent != c.want {
			t.Errorf("%s: sent Authorization %q, %v; want %q", c.source, sent, err, c.want)
		}
	}
}

// failureOf describes the failure that the orchestrator gets.
func failureOf(err error) string {
	f := replay.FailureOf(err)
	return fmt.Sprint(f.ErrorType, " ", f.IsNonRetriable, " ", f.ErrorMessage)
}

// The error types must equal the types of .NET, because its orchestrators branch on
// them (DurableOrchestrationContext.cs, CallDurableTaskFunctionAsync).
func TestHTTPActivity_FailsWithTheErrorsOfTheExtension(t *testing.T) {
	t.Parallel()
	const identity = `"tokenSource":{"kind":"AzureManagedIdentity","resource":"r"}`
	down := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
	status := func(r *http.Request) (*http.Response, error) { return answer(r, 404, nil, "") }
	large := func(r *http.Request) (*http.Response, error) { return answer(r, 200, nil, "12345") }
	for _, c := range []struct {
		name, input, want string
		transport         transport
		tokens            durable.TokenProvider
	}{
		{"no response", `[{"uri":"http://a/b?secret"}]`, "System.Net.Http.HttpRequestException false GET http://a/b: connection refused", down, nil},
		{
			"a status to retry", `[{"uri":"http://a/b?secret","retryOptions":{"StatusCodesToRetry":[404]}}]`,
			"System.Net.Http.HttpRequestException false GET http://a/b: response status is 404 Not Found, which counts as a failure", status, nil,
		},
		{
			"a failure without configured codes", `[{"uri":"http://a","retryOptions":{}}]`,
			"System.Net.Http.HttpRequestException false GET http://a: response status is 404 Not Found, which counts as a failure", status, nil,
		},
		{"a large response", `[{"uri":"http://a"}]`, "*httpcall.ContentError true GET http://a: the response exceeds the limit of 4 bytes; " +
			"raise the limit, or fetch large content in your own activity", large, nil},
		{
			"no token provider", `[{"uri":"http://a",` + identity + `}]`,
			"error true an HTTP request needs a token for r/.default, but the worker has no TokenProvider: set Config.HTTP.Tokens", status, nil,
		},
		{"no token", `[{"uri":"http://a",` + identity + `}]`, "error false get token for r/.default: no identity", status, tokens{errors.New("no identity")}},
		{"another source of tokens", `[{"uri":"http://a","tokenSource":{"kind":"X"}}]`, `error true read HTTP request: the token source kind '"X"' is not supported`, status, nil},
		{"no URL", `[{"uri":"a"}]`, `*httpcall.RequestError true the request cannot be sent: URL "a" does not begin with http:// or https://`, status, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := act(t, durable.HTTPConfig{Transport: c.transport, Tokens: c.tokens, ContentLimit: 4}, c.input)
			if err == nil {
				t.Fatal("no error")
			}
			if diff := cmp.Diff(failureOf(err), c.want); diff != "" {
				t.Errorf("failure (-got +want):\n%s", diff)
			}
		})
	}
	for _, input := range []string{`[]`, `5`, `"x"`, `[{"uri":"http://a"},{}]`, `{`} {
		if _, err := act(t, durable.HTTPConfig{Transport: transport(status)}, input); err == nil || !replay.FailureOf(err).IsNonRetriable {
			t.Errorf("%s: error is %v, want a non-retryable error", input, err)
		}
	}
}

func TestHTTPActivity_RecordsTheFailedStatus(t *testing.T) {
	t.Parallel()
	_, err := act(t, durable.HTTPConfig{Transport: transport(func(r *http.Request) (*http.Response, error) { return answer(r, 503, nil, "") })},
		`[{"uri":"http://a","retryOptions":{"StatusCodesToRetry":[503]}}]`)
	if diff := cmp.Diff(replay.FailureOf(err).Properties, map[string]string{"statusCode": "503"}); diff != "" {
		t.Errorf("properties (-got +want):\n%s", diff)
	}
}

func TestRegistry_ReservesBuiltInNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"BuiltIn::HttpActivity": `durable: activity "BuiltIn::HttpActivity", of `,
		"BUILTIN::other":        `durable: activity "BUILTIN::other", of `,
	} {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "names that start with BuiltIn:: are reserved") {
					t.Errorf("panic %q, want one that starts with %q and names the reserved prefix", got, want)
				}
			}()
			durable.NewRegistry(durable.Activity(name, touch))
		}()
	}
	if _, ok := durable.EngineOf(durable.NewRegistry(durable.Activity("BuiltIn", touch))).Activity("BuiltIn::Other"); ok {
		t.Error("the registry has an activity that was not registered")
	}
}

func TestConfig_NamesTheHTTPFieldThatIsOutOfRange(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]durable.HTTPConfig{
		"HTTP.PollInterval is -1ns; want more than 0 and at most 24h0m0s":    {PollInterval: -1},
		"HTTP.PollInterval is 25h0m0s; want more than 0 and at most 24h0m0s": {PollInterval: 25 * time.Hour},
		"HTTP.ContentLimit is -1; want more than 0 and at most 1073741824":   {ContentLimit: -1},
	} {
		if err := (durable.Config{HTTP: c}).Validate(); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// job is a service that must be polled every 20 seconds.
type job struct{ asked atomic.Int32 }

func (j *job) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == "POST" {
		return answer(r, 202, http.Header{"Location": {"/jobs/1"}}, "")
	}
	if j.asked.Add(1) < 4 {
		return answer(r, 202, http.Header{"Location": {"/jobs/1"}, "Retry-After": {"20"}}, "")
	}
	return answer(r, 200, nil, "done at "+r.URL.Path)
}

func runJob(ctx *durable.Context, _ durable.Void) (string, error) {
	resp, err := durable.CallHTTP(ctx, durable.HTTPRequest{Method: "POST", URL: "https://jobs.example/run"}).Await()
	return fmt.Sprint(resp.StatusCode, " ", resp.Content), err
}

func TestWorker_PollsHTTPJobsOnTime(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := memhub.New()
			r := durable.NewRegistry(durable.Orchestrator("RunJob", runJob))
			defer run(t, h, r, durable.Config{ExtendedSessionIdle: sessionIdle(sessions), HTTP: durable.HTTPConfig{Transport: new(job), PollInterval: 7 * time.Second}})()
			began := time.Now()
			instance, err := durable.Start(t.Context(), durable.NewClient(h, r), runJob, durable.Void{})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := instance.Wait(t.Context()); err != nil || got != "200 done at /jobs/1" {
				t.Errorf("%q, %v", got, err)
			}
			if got, want := time.Since(began).Truncate(time.Second), 67*time.Second; got < want || got > want+2*time.Second {
				t.Errorf("the call took %v, want %v: the configured 7 s once and 20 s three times", got, want)
			}
			var types []string
			for _, c := range h.Commits() {
				for _, e := range c.Checkpoint.NewEvents {
					switch e.(type) {
					case *history.TaskScheduled, *history.TaskCompleted, *history.TimerCreated, *history.TimerFired:
						types = append(types, e.Type().String())
					}
				}
			}
			want := strings.Repeat("TaskScheduled TaskCompleted TimerCreated TimerFired ", 4) + "TaskScheduled TaskCompleted"
			if diff := cmp.Diff(strings.Join(types, " "), want); diff != "" {
				t.Errorf("history (-got +want):\n%s", diff)
			}
		})
	}
}

func TestWorker_FailsAnHTTPRequestAfterItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx *durable.Context, _ durable.Void) (string, error) {
			_, err := durable.CallHTTP(ctx, durable.HTTPRequest{URL: "http://a/b?secret", Timeout: 5 * time.Second}).Await()
			return fmt.Sprint(errors.Is(err, durable.ErrTimeout), " ", err), nil
		}
		h := memhub.New()
		r := durable.NewRegistry(durable.Orchestrator("Slow", slow))
		defer run(t, h, r, durable.Config{HTTP: durable.HTTPConfig{Transport: transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}})()
		began := time.Now()
		instance, err := durable.Start(t.Context(), durable.NewClient(h, r), slow, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		const want = "true Task 'BuiltIn::HttpActivity' (#0) failed with an unhandled exception: GET http://a/b: no response after 5s"
		if got, err := instance.Wait(t.Context()); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		if got := time.Since(began); got < 5*time.Second || got > 7*time.Second {
			t.Errorf("the request took %v, want 5 s", got)
		}
	})
}

// Configured headers are sent to other origins, on a redirect and on a poll. Other
// headers that may contain credentials are not.
func TestWorker_SendsOnlyTheConfiguredHeadersToOtherOrigins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := func(ctx *durable.Context, _ durable.Void) (int, error) {
			resp, err := durable.CallHTTP(ctx, durable.HTTPRequest{URL: "https://a/", Header: http.Header{"X-Mine": {"1"}, "X-Key": {"2"}}}).Await()
			return resp.StatusCode, err
		}
		h := memhub.New()
		r := durable.NewRegistry(durable.Orchestrator("Call", call))
		var mu sync.Mutex
		var got []string
		to := func(location string) http.Header { return http.Header{"Location": {location}, "Retry-After": {"1"}} }
		defer run(t, h, r, durable.Config{HTTP: durable.HTTPConfig{CrossOriginHeaders: []string{"x-mine"}, Transport: transport(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r.URL.Host+" "+r.Header.Get("X-Mine")+r.Header.Get("X-Key"))
			switch r.URL.Host {
			case "a":
				return answer(r, 302, to("https://b/"), "")
			case "b":
				return answer(r, 202, to("https://c/"), "")
			}
			return answer(r, 200, nil, "")
		})}})()
		instance, err := durable.Start(t.Context(), durable.NewClient(h, r), call, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		if status, err := instance.Wait(t.Context()); err != nil || status != 200 {
			t.Errorf("%d, %v", status, err)
		}
		if diff := cmp.Diff([]string{"a 12", "b 1", "c 1"}, got); diff != "" {
			t.Errorf("hosts and their headers (-want +got):\n%s", diff)
		}
	})
}

// If a worker stops while a request is in flight, the activity does not fail. Another
// worker sends the request again.
func TestWorker_ReleasesAnHTTPRequestWhenItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := memhub.New()
		r := durable.NewRegistry(durable.Orchestrator("RunJob", runJob))
		var sent atomic.Int32
		stop := run(t, h, r, durable.Config{HTTP: durable.HTTPConfig{Transport: transport(func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			<-r.Context().Done()
			return nil, r.Context().Err()
		})}})
		instance, err := durable.Start(t.Context(), durable.NewClient(h, r), runJob, durable.Void{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		stop()
		if got := sent.Load(); got != 1 {
			t.Errorf("sent %d times, want once", got)
		}
		defer run(t, h.NewWorker(), r, durable.Config{HTTP: durable.HTTPConfig{Transport: new(job)}})()
		if got, err := instance.Wait(t.Context()); err != nil || got != "200 done at /jobs/1" {
			t.Errorf("%q, %v", got, err)
		}
	})
}
