package durable_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/replay/replaytest"
	"github.com/google/go-cmp/cmp"
)

// httpStage returns a stage for an orchestrator that makes one request and returns the
// status and the content of the response, or the error.
func httpStage(t *testing.T, r durable.HTTPRequest, opts ...durable.ActivityOption) *replaytest.Stage {
	t.Helper()
	return stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		resp, err := durable.CallHTTP(ctx, r, opts...).Await()
		return fmt.Sprint(resp.StatusCode, " ", resp.Content), err
	})
}

// responded returns the event that completes a request with a response.
func responded(t *testing.T, id, status int, header http.Header) history.Event {
	t.Helper()
	text, err := json.Marshal(durable.HTTPResponse{StatusCode: status, Header: header, Content: "c"})
	if err != nil {
		t.Fatal(err)
	}
	return done(id, string(text))
}

// describeHTTP is like replaytest.Describe, but shortens HTTP requests.
func describeHTTP(t *testing.T, actions []replay.Action) string {
	t.Helper()
	var lines []string
	for _, a := range actions {
		task, ok := a.(*replay.ScheduleTask)
		if !ok || task.Name != "BuiltIn::HttpActivity" {
			lines = append(lines, strings.TrimSpace(replaytest.Describe([]replay.Action{a})))
			continue
		}
		var in []durable.HTTPRequest
		if err := json.Unmarshal([]byte(*task.Input), &in); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprint(task.ID, " ", in[0].Method, " ", in[0].URL)
		for _, name := range slices.Sorted(maps.Keys(in[0].Header)) {
			line += fmt.Sprint(" ", name, "=", strings.Join(in[0].Header[name], ","))
		}
		if in[0].TokenSource != nil {
			line += " +token"
		}
		if in[0].Content != "" {
			line += " " + in[0].Content
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func wantHTTP(t *testing.T, got []replay.Action, want ...string) {
	t.Helper()
	if diff := cmp.Diff(describeHTTP(t, got), strings.Join(want, "\n")); diff != "" {
		t.Errorf("actions (-got +want):\n%s", diff)
	}
}

// The order follows DurableOrchestrationContext.cs, CallHttpAsync.
func TestCallHTTP_PollsTheLocationWhileAccepted(t *testing.T) {
	t.Parallel()
	s := httpStage(t, durable.HTTPRequest{
		Method: "POST", URL: "https://a/start?x=1", Content: "c", TokenSource: &durable.ManagedIdentity{Resource: "r"},
		Header: http.Header{"Accept": {"b/c"}, "Authorization": {"Basic x"}, "x-functions-key": {"k"}, "Content-Type": {"d/e"}},
	})
	wantHTTP(t, s.Start(nil), "0 POST https://a/start?x=1 Accept=b/c Authorization=Basic x Content-Type=d/e X-Functions-Key=k +token c")
	wantHTTP(t, s.Episode(responded(t, 0, 202, http.Header{"location": {"https://a:443/status/1"}, "retry-after": {"3"}})), "1 timer 3s")
	s.Now = s.Now.Add(3 * time.Second)
	wantHTTP(t, s.Episode(fired(1)), "2 GET https://a:443/status/1 Accept=b/c Authorization=Basic x +token")
	wantHTTP(t, s.Episode(responded(t, 2, 202, http.Header{"Location": {"2"}})), "3 timer 33s")
	s.Now = s.Now.Add(30 * time.Second)
	wantHTTP(t, s.Episode(fired(3)), "4 GET https://a:443/status/2 Accept=b/c Authorization=Basic x +token")
	// Later responses need not repeat the Location.
	wantHTTP(t, s.Episode(responded(t, 4, 202, nil)), "5 timer 1m3s")
	wantHTTP(t, s.Episode(fired(5)), "6 GET https://a:443/status/2 Accept=b/c Authorization=Basic x +token")
	wantHTTP(t, s.Episode(responded(t, 6, 404, nil)), `7 Completed "404 c"`)
}

// Later versions of Azure/azure-functions-durable-extension remove Authorization and
// Cookie (TaskOrchestrationContextExtensionMethods.cs, CreateLocationPollRequest). Here
// other credentials and the token are removed too.
func TestCallHTTP_SendsNoCredentialsToAnotherOrigin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, location, want string
	}{
		{"another host", "https://evil.org/s", "https://evil.org/s Accept=b/c"},
		{"a subdomain", "https://x.a/s", "https://x.a/s Accept=b/c"},
		{"another port", "https://a:8443/s", "https://a:8443/s Accept=b/c"},
		{"another scheme", "http://a/s", "http://a/s Accept=b/c"},
		{"another host without a scheme", "//evil.org/s", "https://evil.org/s Accept=b/c"},
		{"a user name like the host", "https://a@evil.org/s", "https://a@evil.org/s Accept=b/c"},
		{"the same, relative", "/s", "https://a/s Accept=b/c Aeg-Sas-Key=7 Api-Key=2 Authorization=Basic x Cookie=1 Host=v Proxy-Authorization=3 X-Auth-Token=4 X-Goog-Api-Key=6 X-Vault-Token=5 +token"},
		{"the same, in upper case", "HTTPS://A/s", "https://A/s Accept=b/c Aeg-Sas-Key=7 Api-Key=2 Authorization=Basic x Cookie=1 Host=v Proxy-Authorization=3 X-Auth-Token=4 X-Goog-Api-Key=6 X-Vault-Token=5 +token"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := httpStage(t, durable.HTTPRequest{URL: "https://a/", TokenSource: &durable.ManagedIdentity{Resource: "r"}, Header: http.Header{
				"accept": {"b/c"}, "authorization": {"Basic x"}, "Cookie": {"1"}, "API-KEY": {"2"}, "proxy-authorization": {"3"}, "X-FUNCTIONS-KEY": {"k"}, "Host": {"v"},
				"X-Auth-Token": {"4"}, "x-vault-token": {"5"}, "X-Goog-Api-Key": {"6"}, "aeg-sas-key": {"7"},
			}})
			s.Start(nil)
			s.Episode(responded(t, 0, 202, http.Header{"Location": {c.location}}))
			wantHTTP(t, s.Episode(fired(1)), "2 GET "+c.want)
		})
	}
}

func TestCallHTTP_SendsCredentialsAgainAtTheFirstOrigin(t *testing.T) {
	t.Parallel()
	s := httpStage(t, durable.HTTPRequest{URL: "https://a/", Header: http.Header{"Authorization": {"Basic x"}}})
	s.Start(nil)
	s.Episode(responded(t, 0, 202, http.Header{"Location": {"https://b/1"}}))
	wantHTTP(t, s.Episode(fired(1)), "2 GET https://b/1")
	s.Episode(responded(t, 2, 202, http.Header{"Location": {"/2"}})) // relative to the last request
	wantHTTP(t, s.Episode(fired(3)), "4 GET https://b/2")
	s.Episode(responded(t, 4, 202, http.Header{"Location": {"https://a/3"}}))
	wantHTTP(t, s.Episode(fired(5)), "6 GET https://a/3 Authorization=Basic x")
}

func TestCallHTTP_WaitsAsTheResponseRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, retryAfter string
		interval         time.Duration
		want             string
	}{
		{"seconds", " 7 ", time.Minute, "7s"},
		{"zero", "0", time.Minute, "1s"},
		{"a time", "Tue, 01 Oct 2024 12:05:00 GMT", time.Minute, "4m59.8765433s"}, // the epoch has a fraction
		{"a time that has passed", "Tue, 01 Oct 2024 11:05:00 GMT", time.Minute, "1s"},
		{"nothing", "", 0, "30s"},
		{"nothing, with an interval in the request", "", time.Minute, "1m0s"},
		{"invalid", "soon", 0, "30s"},
		{"negative", "-5", 0, "30s"},
		{"forever", "9223372036854775807", 0, "72h0m0s"}, // the first leg
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := httpStage(t, durable.HTTPRequest{URL: "https://a/", PollInterval: c.interval})
			s.Start(nil)
			h := http.Header{"Location": {"/s"}}
			if c.retryAfter != "" {
				h.Set("Retry-After", c.retryAfter)
			}
			wantHTTP(t, s.Episode(responded(t, 0, 202, h)), "1 timer "+c.want)
		})
	}
}

func TestCallHTTP_ReturnsA202WithoutALocation(t *testing.T) {
	t.Parallel()
	s := httpStage(t, durable.HTTPRequest{URL: "https://a/"})
	s.Start(nil)
	wantHTTP(t, s.Episode(responded(t, 0, 202, http.Header{"Retry-After": {"1"}})), `1 Completed "202 c"`)
}

func TestCallHTTP_ReturnsA202WithNoPolling(t *testing.T) {
	t.Parallel()
	for _, total := range []time.Duration{0, time.Hour} {
		s := httpStage(t, durable.HTTPRequest{URL: "https://a/", NoPolling: true, TotalTimeout: total})
		s.Start(nil)
		s.Episode(responded(t, 0, 202, http.Header{"Location": {"/s"}}))
		wantOutput(t, s, `"202 c"`)
	}
}

func TestCallHTTP_FailsIfTheLocationIsNotAnHTTPURL(t *testing.T) {
	t.Parallel()
	for _, location := range []string{"file:///etc/passwd", "ftp://b/", "http://%zz/", "https:"} {
		s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
			_, err := durable.CallHTTP(ctx, durable.HTTPRequest{URL: "https://a/b?code=secret"}).Await()
			var own *durable.HTTPError
			if !errors.As(err, &own) || own.StatusCode != 202 {
				return "", fmt.Errorf("not an *HTTPError with the status: %w", err)
			}
			return err.Error(), nil
		})
		s.Start(nil)
		s.Episode(responded(t, 0, 202, http.Header{"Location": {location}}))
		wantOutput(t, s, `"GET https://a/b: the Location of the 202 response is not an HTTP URL"`)
	}
}

func TestCallHTTP_EndsAtItsTotalTimeout(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T) *replaytest.Stage {
		s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
			resp, err := durable.CallHTTP(ctx, durable.HTTPRequest{URL: "https://a/", TotalTimeout: time.Minute}).Await()
			if errors.Is(err, durable.ErrTimeout) {
				return err.Error(), nil
			}
			return fmt.Sprint(resp.StatusCode), err
		})
		wantHTTP(t, s.Start(nil), "0 GET https://a/", "1 timer 1m0s")
		return s
	}
	const late = `"HTTP request has no final response after 1m0s: timed out"`
	accepted := func(t *testing.T, id int) history.Event {
		return responded(t, id, 202, http.Header{"Location": {"/s"}})
	}
	t.Run("before the first response", func(t *testing.T) {
		t.Parallel()
		s := run(t)
		s.Episode(fired(1))
		wantOutput(t, s, late)
	})
	t.Run("during a wait", func(t *testing.T) {
		t.Parallel()
		s := run(t)
		wantHTTP(t, s.Episode(accepted(t, 0)), "2 timer 30s")
		s.Episode(fired(1))
		wantOutput(t, s, late)
	})
	t.Run("during a poll", func(t *testing.T) {
		t.Parallel()
		s := run(t)
		s.Episode(accepted(t, 0))
		wantHTTP(t, s.Episode(fired(2)), "3 GET https://a/s")
		s.Episode(fired(1))
		wantOutput(t, s, late)
	})
	t.Run("after the response", func(t *testing.T) {
		t.Parallel()
		s := run(t)
		s.Episode(accepted(t, 0))
		s.Episode(fired(2))
		s.Episode(responded(t, 3, 200, nil), fired(1))
		wantOutput(t, s, `"200"`)
	})
}

// Requests are scheduled at the call, as in .NET, although branches follow them. The
// numbers of actions depend on it.
func TestCallHTTP_SchedulesTheRequestImmediately(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) ([]int, error) {
		a := durable.CallHTTP(ctx, durable.HTTPRequest{URL: "https://a/"})
		ctx.Timer(time.Hour)
		b := durable.CallHTTP(ctx, durable.HTTPRequest{URL: "https://b/"})
		all, err := durable.AwaitAll(ctx, a, b)
		return []int{all[0].StatusCode, all[1].StatusCode}, err
	})
	wantHTTP(t, s.Start(nil), "0 GET https://a/", "1 timer 1h0m0s", "2 GET https://b/")
	s.Episode(responded(t, 2, 200, nil))
	s.Episode(responded(t, 0, 201, nil))
	wantOutput(t, s, `[201,200]`)
}

func TestCallHTTP_SchedulesNothingForAnInvalidRequest(t *testing.T) {
	t.Parallel()
	policy := durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Second}
	const noURL = "call HTTP: HTTPRequest.URL is not an absolute URL that starts with http:// or https://"
	for _, c := range []struct {
		name string
		r    durable.HTTPRequest
		opts []durable.ActivityOption
		want string
	}{
		{"no URL", durable.HTTPRequest{}, nil, noURL},
		{"a relative URL", durable.HTTPRequest{URL: "/a"}, nil, noURL},
		{"another scheme", durable.HTTPRequest{URL: "ftp://a"}, nil, noURL},
		{"no host", durable.HTTPRequest{URL: "http://:80"}, nil, noURL},
		{"an invalid URL", durable.HTTPRequest{URL: "http://%zz?secret"}, nil, noURL},
		{"a long timeout", durable.HTTPRequest{URL: "http://a", Timeout: 5 * time.Minute}, nil, "call HTTP: HTTPRequest.Timeout is 5m0s; want at most 4m0s"},
		{"a negative timeout", durable.HTTPRequest{URL: "http://a", Timeout: -1}, nil, "call HTTP: HTTPRequest.Timeout is -1ns; want at least 0"},
		{"a negative total timeout", durable.HTTPRequest{URL: "http://a", TotalTimeout: -1}, nil, "call HTTP: HTTPRequest.TotalTimeout is -1ns; want at least 0"},
		{"a negative interval", durable.HTTPRequest{URL: "http://a", PollInterval: -1}, nil, "call HTTP: HTTPRequest.PollInterval is -1ns; want at least 0"},
		{"invalid UTF-8", durable.HTTPRequest{URL: "http://a", Content: "\xFF"}, nil, "call HTTP: HTTPRequest.Content is not valid UTF-8; send binary data in your own activity"},
		{"status codes without a policy", durable.HTTPRequest{URL: "http://a", RetryStatus: []int{503}}, nil, "call HTTP: HTTPRequest.RetryStatus requires a RetryPolicy option"},
		{"a token without a resource", durable.HTTPRequest{URL: "http://a", TokenSource: &durable.ManagedIdentity{}}, nil, "call HTTP: ManagedIdentity.Resource is empty"},
		{"an invalid policy", durable.HTTPRequest{URL: "http://a"}, []durable.ActivityOption{durable.RetryPolicy{}}, "durable: RetryPolicy.MaxAttempts is 0; want at least 1"},
		{"an invalid policy with a total timeout", durable.HTTPRequest{URL: "http://a", TotalTimeout: 1}, []durable.ActivityOption{policy, durable.RetryPolicy{}}, "durable: RetryPolicy.MaxAttempts is 0; want at least 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := httpStage(t, c.r, c.opts...)
			for _, a := range s.Start(nil) {
				if task, ok := a.(*replay.ScheduleTask); ok {
					t.Errorf("scheduled a request: %s", *task.Input)
				}
			}
			if s.End() == nil || s.End().Failure.ErrorMessage != c.want {
				t.Errorf("ended with %#v, want %q", s.End(), c.want)
			}
		})
	}
}

// The timers follow DurableTask.Core/RetryInterceptor.cs, Invoke.
func TestCallHTTP_RetriesTheFirstRequestAndPolls(t *testing.T) {
	t.Parallel()
	s := stage(t, func(ctx *durable.Context, _ durable.Void) (string, error) {
		policy := durable.RetryPolicy{MaxAttempts: 2, FirstInterval: 5 * time.Second, Handle: func(err error) bool {
			var own *durable.HTTPError
			return errors.As(err, &own) && own.StatusCode != 500 || errors.Is(err, durable.ErrTimeout)
		}}
		_, err := durable.CallHTTP(ctx, durable.HTTPRequest{URL: "https://a/", RetryStatus: []int{500, 503}}, policy).Await()
		var own *durable.HTTPError
		var task *durable.TaskFailedError
		return fmt.Sprint(errors.As(err, &own) && own.StatusCode == 503, " ", errors.As(err, &task), " ", own), nil
	})
	broken := func(id int, kind, message string, properties map[string]string) history.Event {
		return &history.TaskFailed{Header: history.NewHeader(s.Now), TaskScheduledID: id, Reason: new(message), Failure: &history.FailureDetails{
			ErrorType: kind, ErrorMessage: message, Properties: properties,
		}}
	}
	const refused, late = "System.Net.Http.HttpRequestException", "System.TimeoutException"
	s.Start(nil)
	wantHTTP(t, s.Episode(broken(0, late, "too late", nil)), "1 timer 5s")
	wantHTTP(t, s.Episode(fired(1)), "2 GET https://a/")
	s.Episode(responded(t, 2, 202, http.Header{"Location": {"/s"}}))
	wantHTTP(t, s.Episode(fired(3)), "4 GET https://a/s")
	wantHTTP(t, s.Episode(broken(4, refused, "from .NET, without the status", nil)), "5 timer 5s")
	wantHTTP(t, s.Episode(fired(5)), "6 GET https://a/s")
	wantHTTP(t, s.Episode(broken(6, refused, "503", map[string]string{"statusCode": "503"})), "7 timer 0s")
	s.Episode(fired(7))
	wantOutput(t, s, `"true true 503"`)
}

func TestCallHTTP_FailsWithTheErrorOfTheActivity(t *testing.T) {
	t.Parallel()
	s := httpStage(t, durable.HTTPRequest{URL: "https://a/"})
	s.Start(nil)
	s.Episode(failed(0, "no such host"))
	wantFailure(t, s, "Task 'BuiltIn::HttpActivity' (#0) failed with an unhandled exception: no such host")
}
