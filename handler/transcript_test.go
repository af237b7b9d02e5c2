package handler

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

// An exchange is a request to a new hub, as a curl command line, and the answer.
type exchange struct {
	note    string
	method  string
	target  string
	body    string
	headers []string

	hub func() *fullHub // nil for a hub with an instance in every status
	app func(*Config)   // changes the server's configuration
	was func(*Server)   // changes the server's state
}

// command returns the command line that sends the request.
func (x exchange) command() string {
	out := "$ curl -i"
	if x.method != http.MethodGet {
		out += " -X " + x.method
	}
	for i := 0; i < len(x.headers); i += 2 {
		out += fmt.Sprintf(" -H '%s: %s'", x.headers[i], x.headers[i+1])
	}
	if body := x.body; body != "" {
		if len(body) > 60 {
			body = fmt.Sprintf("%s… (%d bytes)", body[:20], len(body))
		}
		out += " -d '" + body + "'"
	}
	return out + " 'http://localhost:8080" + x.target + "'"
}

// Parts of answers that differ between runs.
var changing = []struct {
	what *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`(?m)^(Date|X-Request-Id): .*\r\n`), ""},
	{regexp.MustCompile(`\b[0-9a-f]{32}\b`), "0123456789abcdef0123456789abcdef"},
	{regexp.MustCompile(`\b(code|sig)=[\w-]{54}\b`), "$1=CODE-OF-INSTANCE-AND-TIME"},
	{regexp.MustCompile(`"appRoot":"[^"]*"`), `"appRoot":"/app"`},
	{regexp.MustCompile(`("settings":\[\{.*?\}),.*?\](,"notices")`), "$1, …]$2"}, // the table of settings determines their number and defaults
}

// send returns the answer, and its text for the transcript.
func (x exchange) send(t *testing.T) (got answered, text string) {
	t.Helper()
	newHub := x.hub
	if newHub == nil {
		newHub = newFullHub
	}
	hub := newHub()
	cfg := fakeConfig(t, hub)
	if x.app != nil {
		x.app(&cfg)
	}
	s := New(App{}, cfg)
	if s.cfg.Problem == nil {
		s.state.SetReady()
	}
	if x.was != nil {
		x.was(s)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	target, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequest(x.method, server.URL, strings.NewReader(x.body))
	if err != nil {
		t.Fatal(err)
	}
	path, query, _ := strings.Cut(x.target, "?")
	r.URL = &url.URL{Scheme: "http", Host: target.Host, Opaque: path, RawQuery: query} // the original path, not cleaned
	r.Host = "localhost:8080"
	if x.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(x.headers); i += 2 {
		r.Header.Set(x.headers[i], x.headers[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatalf("%s: %v", x.command(), err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.TransferEncoding, resp.ContentLength = nil, int64(len(body)) // omit the chunks
	dump, err := httputil.DumpResponse(resp, false)
	if err != nil {
		t.Fatal(err)
	}
	text = string(dump) + string(body)
	for _, c := range changing {
		text = c.what.ReplaceAllString(text, c.with)
	}
	text = regexp.MustCompile(`Content-Length: \d\d+\r\n`).ReplaceAllString(text, "") // follows from the body and differs with the replaced parts
	text = strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n") + "\n"
	return answered{x, s.api, resp.StatusCode, resp.Header, body}, text
}

// answered is an exchange with its answer.
type answered struct {
	exchange
	management *management.API
	status     int
	header     http.Header
	answer     []byte
}

// route returns the route of the request, or nil.
func (a answered) route(t *testing.T) *management.Route {
	t.Helper()
	path, _, _ := strings.Cut(a.target, "?")
	path = strings.TrimPrefix(path, "/api/durabletask/")
	path = strings.TrimPrefix(path, "/runtime/webhooks/durabletask/")
	var segments []string
	for raw := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		segment, err := url.PathUnescape(raw)
		if err != nil {
			return nil
		}
		segments = append(segments, segment)
	}
	for i := range a.management.Routes {
		route := &a.management.Routes[i]
		if _, ok := route.Match(segments); ok && route.Method == a.method {
			return route
		}
	}
	return nil
}

// The files show every route in every state, like curl. They define the API: a change of a file is a
// change of the API.
func TestTranscripts_MatchTheAnswersOfTheAPI(t *testing.T) {
	t.Parallel()
	for name, exchanges := range transcripts() {
		var out strings.Builder
		for _, x := range exchanges {
			_, text := x.send(t)
			fmt.Fprintf(&out, "# %s\n%s\n%s\n", x.note, x.command(), text)
		}
		current(t, "testdata/transcripts/"+name+".txt", out.String())
	}
}
