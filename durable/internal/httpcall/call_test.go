package httpcall_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/hostile"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/httpcall"
	"github.com/google/go-cmp/cmp"
)

// The Close method of a test server closes idle connections of http.DefaultTransport, and that can break requests
// of tests that run in parallel. So the variable hides the method for it.
func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

// client sends requests over the network.
var client = httpcall.Client{Transport: http.DefaultTransport, ContentLimit: 1 << 20}

// serve returns the URL of a server that is closed at the end of the test.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// echo writes the request that it received, one part per line.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = fmt.Fprintf(w, "%s %s\n", r.Method, r.URL)
	r.Header.Set("Host", r.Host)
	_ = r.Header.WriteSubset(w, map[string]bool{"Accept-Encoding": true})
	_, _ = fmt.Fprintf(w, "\n%s", body)
}

func do(t *testing.T, r httpcall.Request) *httpcall.Response {
	t.Helper()
	resp, err := client.Do(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// The default content types are the same as in TaskHttpActivityShim.cs,
// ConvertToHttpRequestMessage.
func TestClient_SendsTheRequest(t *testing.T) {
	t.Parallel()
	host := strings.TrimPrefix(serve(t, echo), "http://")
	for _, c := range []struct {
		name string
		in   httpcall.Request
		want string
	}{
		{"nothing but a URL", httpcall.Request{URL: "/a?b=c"}, "GET /a?b=c\nHost: " + host + "\nUser-Agent: durablefunctions-go\n\n"},
		{"a body without a type", httpcall.Request{Method: "POST", URL: "/", Content: "hé"}, "POST /\nContent-Length: 3\nContent-Type: text/plain\nHost: " + host + "\nUser-Agent: durablefunctions-go\n\nhé"},
		{
			"a form",
			httpcall.Request{Method: "PUT", URL: "/", Content: "a=1", Header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}},
			"PUT /\nContent-Length: 3\nContent-Type: application/x-www-form-urlencoded; charset=utf-8\nHost: " + host + "\nUser-Agent: durablefunctions-go\n\na=1",
		},
		{
			"headers",
			httpcall.Request{URL: "/", Header: http.Header{"accept": {"a/b", "c/d"}, "HOST": {"elsewhere"}, "User-Agent": {"mine"}, "X-None": {}}},
			"GET /\nAccept: a/b\nAccept: c/d\nHost: elsewhere\nUser-Agent: mine\n\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.in.URL = "http://" + host + c.in.URL
			got := strings.ReplaceAll(string(do(t, c.in).Body), "\r\n", "\n")
			if diff := cmp.Diff(got, c.want); diff != "" {
				t.Errorf("sent (-got +want):\n%s", diff)
			}
		})
	}
}

func TestClient_RejectsInvalidRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, url, want string }{
		{"GET", "file:///etc/passwd", `URL "file:///etc/passwd" does not begin with http:// or https://`},
		{"GET", "/relative?code=secret", `URL "/relative" does not begin with http:// or https://`},
		{"GET", "", `URL "" does not begin with http:// or https://`},
		{"GET", "http://", `URL "http:" has no host`},
		{"GET", "http://u:secret@:80/", `URL "http://:80/" has no host`},
		{"GET", "http://a\x7f?code=secret", "invalid URL: net/url: invalid control character in URL"},
		{"A B", "http://a", `net/http: invalid method "A B"`},
	} {
		_, err := client.Do(t.Context(), httpcall.Request{Method: c.method, URL: c.url})
		var refused *httpcall.RequestError
		if !errors.As(err, &refused) || refused.Reason != c.want {
			t.Errorf("%s %s: error %v; want reason %q", c.method, c.url, err, c.want)
		}
	}
}

func TestClient_KeepsQueriesOutOfErrors(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(nil)
	s.Close()
	_, err := client.Do(t.Context(), httpcall.Request{URL: s.URL + "/a?code=secret"})
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.HasPrefix(err.Error(), "GET "+s.URL+"/a: ") {
		t.Errorf("error %v; want one that names the request without its query", err)
	}
}

func TestClient_RejectsResponsesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	big := bytes.Repeat([]byte("x"), 1<<20+1)
	for name, h := range map[string]http.HandlerFunc{
		"by their length": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "9000000000")
			_, _ = w.Write(big[:10])
		},
		"without a length": func(w http.ResponseWriter, _ *http.Request) {
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(big)
		},
		"unpacked": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(big)
			_ = z.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client.Do(t.Context(), httpcall.Request{URL: serve(t, h) + "/?code=secret"})
			var own *httpcall.ContentError
			if !errors.As(err, &own) || !strings.Contains(err.Error(), "exceeds the limit of 1048576 bytes") || strings.Contains(err.Error(), "secret") {
				t.Errorf("error %v; want one that names the limit", err)
			}
		})
	}
	t.Run("a response of exactly the limit is accepted", func(t *testing.T) {
		t.Parallel()
		u := serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(big[1:]) })
		if got := len(do(t, httpcall.Request{URL: u}).Body); got != 1<<20 {
			t.Errorf("%d bytes, want all", got)
		}
		// The length of a response to HEAD describes a body that is not sent.
		u = serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "9000000000") })
		if got := do(t, httpcall.Request{Method: "HEAD", URL: u}).StatusCode; got != 200 {
			t.Errorf("status %d, want 200", got)
		}
	})
}

func TestClient_FailsWhenAResponseIsCutShort(t *testing.T) {
	t.Parallel()
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write([]byte("half"))
	})
	_, err := client.Do(t.Context(), httpcall.Request{URL: u})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

func TestClient_DoesNotShareCookiesBetweenRequests(t *testing.T) {
	t.Parallel()
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		_, _ = io.WriteString(w, r.Header.Get("Cookie"))
	})
	for range 2 {
		if got := do(t, httpcall.Request{URL: u}).Body; len(got) > 0 {
			t.Errorf("sent cookies %s", got)
		}
	}
}

// transport answers requests without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// never blocks until the request's context ends.
func never(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func answer(r *http.Request, status int, header http.Header, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), ContentLength: -1, Request: r}
}

func TestClient_TimesOutAfterAtMost240Seconds(t *testing.T) {
	for _, c := range []struct{ timeout, want time.Duration }{
		{5 * time.Second, 5 * time.Second}, {0, 240 * time.Second}, {time.Hour, 240 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			_, err := httpcall.Client{Transport: transport(never), ContentLimit: 1}.Do(t.Context(), httpcall.Request{URL: "http://a/b?c", Timeout: c.timeout})
			var late *httpcall.TimeoutError
			if !errors.As(err, &late) || err.Error() != fmt.Sprintf("GET http://a/b: no response after %v", c.want) {
				t.Errorf("error %v, want a timeout", err)
			}
			if got := time.Since(began); got != c.want {
				t.Errorf("gave up after %v, want %v", got, c.want)
			}
		})
	}
}

func TestClient_TimesOutWhileItWaitsForTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := transport(func(r *http.Request) (*http.Response, error) {
			in, out := io.Pipe()
			context.AfterFunc(r.Context(), func() { out.CloseWithError(r.Context().Err()) })
			return &http.Response{StatusCode: 200, Body: in, ContentLength: -1, Request: r}, nil
		})
		_, err := httpcall.Client{Transport: slow, ContentLimit: 1}.Do(t.Context(), httpcall.Request{URL: "http://a", Timeout: time.Second})
		var late *httpcall.TimeoutError
		if !errors.As(err, &late) {
			t.Errorf("error %v, want a timeout", err)
		}
	})
}

func TestClient_ReturnsTheCauseOfItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping := errors.New("the worker stops")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(stopping) })
		_, err := httpcall.Client{Transport: transport(never), ContentLimit: 1}.Do(ctx, httpcall.Request{URL: "http://a"})
		var late *httpcall.TimeoutError
		if !errors.Is(err, stopping) || errors.As(err, &late) {
			t.Errorf("error %v, want %v", err, stopping)
		}
	})
}

// A relative Location is relative to the URL that gave the response (RFC 9110, section 10.2.2).
// After a redirect, only the client knows it.
func TestClient_MakesTheLocationOfA202Absolute(t *testing.T) {
	t.Parallel()
	moved := transport(func(r *http.Request) (*http.Response, error) {
		switch r.URL.Host {
		case "a":
			return answer(r, 307, http.Header{"Location": {"https://b/x/y"}}, ""), nil
		default:
			return answer(r, 202, http.Header{"Location": {"../status/1"}}, ""), nil
		}
	})
	resp, err := httpcall.Client{Transport: moved, ContentLimit: 1}.Do(t.Context(), httpcall.Request{Method: "POST", URL: "http://a/b", Content: "c"})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := resp.Header.Get("Location"), "https://b/status/1"; got != want {
		t.Errorf("Location %s, want %s", got, want)
	}
}

func TestSameOrigin_IsSchemeHostAndPort(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"https://a.com/x", "https://A.com:443/y?z", true},
		{"HTTP://a.com:80", "http://a.com", true},
		{"https://a.com", "http://a.com", false},
		{"https://a.com", "https://a.com:8443", false},
		{"https://a.com", "https://b.a.com", false},
		{"https://a.com", "https://a.com.evil.org", false},
		{"https://a.com", "https://user@evil.org/a.com", false},
		{"https://[::1]:1", "https://[::1]:1/", true},
	} {
		a, errA := url.Parse(c.a)
		b, errB := url.Parse(c.b)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if got := httpcall.SameOrigin(a, b) && httpcall.SameOrigin(b, a); got != c.want {
			t.Errorf("SameOrigin(%s, %s) = %t, want %t", c.a, c.b, got, c.want)
		}
	}
}

// Credentials for a host are never sent to another host, whichever of the two names contains the other.
func TestSameOrigin_NamesThatResembleAHostAreOtherHosts(t *testing.T) {
	t.Parallel()
	parse := func(text string) *url.URL {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for _, trusted := range []string{"api.example.com", "localhost", "10.0.0.7"} {
		for _, form := range []string{"https://%s", "https://%s:8443/a", "http://%s/a?b"} {
			to := func(host string) *url.URL { return parse(fmt.Sprintf(form, host)) }
			hostile.NoneOf(t, "SameOrigin to "+form, trusted, hostile.Hosts(trusted),
				func(host string) bool { return httpcall.SameOrigin(to(trusted), to(host)) }, nil)
			hostile.NoneOf(t, "SameOrigin from "+form, trusted, hostile.Hosts(trusted),
				func(host string) bool { return httpcall.SameOrigin(to(host), to(trusted)) }, nil)
		}
	}
	for _, other := range []string{
		"https://a.com@evil.example", "https://evil.example/a.com", "https://evil.example?a.com", "https://evil.example#a.com", "https://a.com:443@evil.example",
		"https://a.com:4430", "https://a.com:44", "httpss://a.com", "//a.com", "https://a.com.", "wss://a.com", "https:a.com",
	} {
		if httpcall.SameOrigin(parse("https://a.com"), parse(other)) {
			t.Errorf("https://a.com and %s have the same origin", other)
		}
	}
}

// A header may be sent to another origin only if its whole name is in the list.
func TestKeepSafe_NamesThatResembleASafeHeaderAreRemoved(t *testing.T) {
	t.Parallel()
	for _, trusted := range []string{"Accept", "Content-Type", "Traceparent", "X-Mine"} {
		hostile.NoneOf(t, "KeepSafe", trusted, hostile.Names(trusted), func(name string) bool {
			h := http.Header{name: {"secret"}}
			httpcall.KeepSafe(h, []string{"x-mine"})
			return len(h) > 0
		}, nil)
	}
}
