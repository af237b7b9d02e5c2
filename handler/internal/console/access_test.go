package console

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

var keys = management.Access{Key: "the key of this test", ReadKey: "the read key of this test"}

// newConsole returns a console whose hub is unavailable. Requests that pass all checks get status 503.
func newConsole(access management.Access) (*Console, *echo.Echo) {
	front := web.New(web.Config{RoutePrefix: "api"})
	state, draining, log := taskhub.NewReadiness(), make(chan struct{}), slog.New(slog.DiscardHandler)
	state.SetUnavailable("It is broken.")
	api := management.New(management.Config{
		Access: access, Configuration: func() management.Configuration { return management.Configuration{} },
	}, front, state, draining, log)
	c := New(Config{TaskHub: "Hub", API: api}, front, state, draining, log)
	e := echo.New()
	e.Pre(front.CanonicalPath)
	e.HTTPErrorHandler = web.AnswerErrors(log)
	c.AddTo(e)
	return c, e
}

// ask sends a request. headers are alternating names and values.
func ask(e *echo.Echo, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost:8080"+base+path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	return w
}

// session returns a cookie of a valid session.
func session(a management.Access, right management.Right) string {
	return sessions{access: a}.newSession(right, time.Now().Add(time.Minute))
}

// These lists are written by hand. A route that is open to everyone, or works without a hub, must be in
// them.
var (
	forAll = []string{"GET login", "POST login", "POST logout", "GET static/console.css", "GET static/console.js", "GET static/htmx.min.js", "GET static/icon.svg"}
	always = append(slices.Clone(forAll), "GET hub")
)

func TestRoutes_WithoutASessionOrAHubMatchTheHandWrittenLists(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, r := range allRoutes {
		name := r.method + " " + r.path
		if seen[name] {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = true
		if r.forAll != slices.Contains(forAll, name) || r.always != slices.Contains(always, name) {
			t.Errorf("%s: for all %v, always %v; the lists say otherwise", name, r.forAll, r.always)
		}
		if r.method != http.MethodGet && r.method != http.MethodPost {
			t.Errorf("%s: a browser sends GET and POST", name)
		}
		if r.live > 0 && r.method != http.MethodGet {
			t.Errorf("%s: only a GET route can be sent as events", name)
		}
	}
}

// Each route except those in forAll requires a session with a current key.
func TestAccess_EachRouteRequiresASession(t *testing.T) {
	t.Parallel()
	_, e := newConsole(keys)
	others := management.Access{Key: "another key", ReadKey: "another read key"}
	write := session(keys, management.Write)
	late := sessions{access: keys}.newSession(management.Write, time.Now().Add(-time.Second))
	for _, r := range append(slices.Clone(allRoutes), route{method: http.MethodGet, path: "nowhere"}, route{method: http.MethodDelete, path: "hub"}) {
		for name, cookie := range map[string]string{
			"none": "", "nonsense": "x", "made with another key": session(others, management.Write), "over": late,
			"of a reader, changed": strings.Replace(session(keys, management.Read), "read", "write", 1),
			"of longer":            strings.Replace(write, ".", ".9", 1), "the key itself": keys.Key, "cut": write[:len(write)-1],
		} {
			w := ask(e, r.method, "/"+r.path, "", "Cookie", sessionCookie+"="+cookie)
			want := http.StatusUnauthorized
			if r.method == http.MethodGet {
				want = http.StatusSeeOther
			}
			if refused := w.Code == want && (want != http.StatusSeeOther || w.Header().Get("Location") == base+"/login"); refused == r.forAll && r.path != "logout" {
				t.Errorf("%s %q with a session that is %s: %d %s", r.method, r.path, name, w.Code, w.Header())
			}
			if r.live > 0 {
				if w := ask(e, r.method, "/"+r.path, "", "Cookie", sessionCookie+"="+cookie, "Accept", "text/event-stream"); w.Code != http.StatusUnauthorized {
					t.Errorf("%s as events with a session that is %s: %d", r.path, name, w.Code)
				}
			}
		}
	}
	for _, right := range []management.Right{management.Read, management.Write} {
		for _, r := range allRoutes {
			if w := ask(e, http.MethodGet, "/"+r.path, "", "Cookie", sessionCookie+"="+session(keys, right)); r.method == http.MethodGet && w.Code != http.StatusOK && w.Code != http.StatusServiceUnavailable {
				t.Errorf("%s with the right %v: %d %s", r.path, right, w.Code, w.Body)
			}
		}
	}
	// Without a read key no session can be for reading, not even one made with an empty key.
	oneKey := management.Access{Key: keys.Key}
	if _, e := newConsole(oneKey); ask(e, http.MethodGet, "/hub", "", "Cookie", sessionCookie+"="+session(oneKey, management.Read)).Code != http.StatusSeeOther {
		t.Error("a session for reading is valid without a read key")
	}
}

// A form that changes something must come from a page of the session, and its sender must be allowed to
// write.
func TestForms_AreRefusedUnlessTheyComeFromAPageOfTheSession(t *testing.T) {
	t.Parallel()
	for name, access := range map[string]management.Access{"with keys": keys, "without keys": {}} {
		c, e := newConsole(access)
		write, reader := session(keys, management.Write), session(keys, management.Read)
		token := c.sessions.token(write, management.Write)
		if access.Key == "" {
			token = c.sessions.token("", management.Write)
		}
		for _, tt := range []struct {
			name, cookie, token string
			headers             []string
			want                int
		}{
			{"as it should be", write, token, []string{"Origin", "http://localhost:8080", "Sec-Fetch-Site", "same-origin"}, http.StatusServiceUnavailable},
			{"of an old browser", write, token, nil, http.StatusServiceUnavailable},
			{"no token", write, "", nil, http.StatusForbidden},
			{"a token of another session", write, c.sessions.token("other", management.Write), nil, http.StatusForbidden},
			{"a page of another site", write, token, []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
			{"a page of another site, an old browser", write, token, []string{"Origin", "https://evil.example"}, http.StatusForbidden},
			{"a page of another port", write, token, []string{"Origin", "http://localhost:3000", "Sec-Fetch-Site", "same-site"}, http.StatusForbidden},
			{"a reader", reader, c.sessions.token(reader, management.Read), nil, http.StatusForbidden},
			{"a reader with the token of a writer", reader, token, nil, http.StatusForbidden},
		} {
			if access.Key == "" && strings.Contains(tt.name, "reader") {
				continue
			}
			for _, r := range allRoutes {
				if r.method != http.MethodPost || r.forAll {
					continue
				}
				headers := append([]string{"Cookie", sessionCookie + "=" + tt.cookie}, tt.headers...)
				if w := ask(e, r.method, "/"+r.path, csrfField+"="+tt.token+"&name=n&operation=o", headers...); w.Code != tt.want {
					t.Errorf("%s: %s: %s: %d %s, want %d", name, r.path, tt.name, w.Code, w.Body, tt.want)
				}
				if w := ask(e, r.method, "/"+r.path, "", append(headers, csrfHeader, tt.token)...); w.Code != tt.want {
					t.Errorf("%s: %s: %s in the header: %d, want %d", name, r.path, tt.name, w.Code, tt.want)
				}
			}
		}
	}
}

// Every answer has headers that forbid the browser to load other files and to run inline scripts.
func TestPages_HaveTheContentSecurityPolicy(t *testing.T) {
	t.Parallel()
	_, e := newConsole(keys)
	for _, r := range append(slices.Clone(allRoutes), route{method: http.MethodGet, path: "nowhere"}) {
		for _, cookie := range []string{"", session(keys, management.Write)} {
			w := ask(e, r.method, "/"+r.path, "", "Cookie", sessionCookie+"="+cookie)
			h := w.Header()
			if h.Get("Content-Security-Policy") != "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'" ||
				h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "same-origin" {
				t.Errorf("%s %q: %v", r.method, r.path, h)
			}
			if kept := h.Get("Cache-Control") != "no-store"; kept != strings.HasPrefix(r.path, "static/") {
				t.Errorf("%s %q: Cache-Control %q", r.method, r.path, h.Get("Cache-Control"))
			}
		}
	}
}

func TestSession_IsACookieThatDoesNotRevealTheKey(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key, right string
	}{{keys.Key, "write"}, {keys.ReadKey, "read"}} {
		_, e := newConsole(keys)
		for _, w := range []*httptest.ResponseRecorder{
			ask(e, http.MethodPost, "/login", "code="+strings.ReplaceAll(tt.key, " ", "+")),
			ask(e, http.MethodGet, "/login?code="+strings.ReplaceAll(tt.key, " ", "+"), ""),
		} {
			if w.Code != http.StatusSeeOther || w.Header().Get("Location") != base || len(w.Result().Cookies()) != 1 {
				t.Fatalf("%d %v", w.Code, w.Header())
			}
			got := w.Result().Cookies()[0]
			if got.Path != base || !got.HttpOnly || got.SameSite != http.SameSiteStrictMode || got.Secure || got.MaxAge != 12*60*60 {
				t.Errorf("the cookie is %+v", got)
			}
			// The value consists of a right, a time, a random text and a digest. It does not contain
			// the key.
			value := regexp.MustCompile(`^` + tt.right + `\.\d+\.\w{26}\.([-\w]+)$`).FindStringSubmatch(got.Value)
			if value == nil {
				t.Fatalf("the cookie has the value %q", got.Value)
			}
			if digest, err := base64.RawURLEncoding.DecodeString(value[1]); err != nil || len(digest) != sha256.Size || strings.Contains(string(digest), tt.key) {
				t.Errorf("the digest of the cookie is %q, error %v", digest, err)
			}
			// Another process accepts it, and so does this process after a restart.
			_, other := newConsole(keys)
			if w := ask(other, http.MethodGet, "/hub", "", "Cookie", got.String()); w.Code != http.StatusOK {
				t.Errorf("another process: %d", w.Code)
			}
		}
	}
	_, e := newConsole(keys)
	for _, body := range []string{"", "code=", "code=wrong", "code=" + keys.Key + "x"} {
		if w := ask(e, http.MethodPost, "/login", body); w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 {
			t.Errorf("%q: %d %v", body, w.Code, w.Header())
		}
	}
	if w := ask(e, http.MethodPost, "/login", "code="+keys.Key, "Origin", "https://evil.example"); w.Code != http.StatusForbidden {
		t.Errorf("from a page of another site: %d", w.Code)
	}
	if w := ask(e, http.MethodPost, "/logout", "", "Cookie", sessionCookie+"="+session(keys, management.Write)); len(w.Result().Cookies()) != 1 || w.Result().Cookies()[0].MaxAge >= 0 {
		t.Errorf("sign out: %v", w.Header())
	}
	first, second := session(keys, management.Write), session(keys, management.Write)
	ask(e, http.MethodPost, "/logout", "", "Cookie", sessionCookie+"="+first)
	if w := ask(e, http.MethodGet, "/hub", "", "Cookie", sessionCookie+"="+first); w.Code != http.StatusSeeOther {
		t.Errorf("a copy of a session that was signed out: %d", w.Code)
	}
	if w := ask(e, http.MethodGet, "/hub", "", "Cookie", sessionCookie+"="+second); w.Code != http.StatusOK {
		t.Errorf("another session of the same second: %d", w.Code)
	}
	r := httptest.NewRequest(http.MethodPost, "https://app.example"+base+"/login", strings.NewReader("code="+keys.Key))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	if cookies := w.Result().Cookies(); len(cookies) != 1 || !cookies[0].Secure {
		t.Errorf("over https: %v", w.Header())
	}
}

func TestSession_LastsTwelveHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, e := newConsole(keys)
		cookie := ask(e, http.MethodPost, "/login", "code="+keys.Key).Result().Cookies()[0].String()
		for _, want := range []int{http.StatusOK, http.StatusSeeOther} {
			time.Sleep(12*time.Hour - time.Second)
			if w := ask(e, http.MethodGet, "/hub", "", "Cookie", cookie); w.Code != want {
				t.Errorf("%d, want %d", w.Code, want)
			}
		}
	})
}

// While the app cannot serve, the console shows the reason.
func TestPages_ShowWhyTheHubIsUnavailable(t *testing.T) {
	t.Parallel()
	_, e := newConsole(management.Access{})
	if w := ask(e, http.MethodGet, "", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "It is broken.") || !strings.Contains(w.Body.String(), "</html>") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(e, http.MethodGet, "/overview/now", "", "Hx-Request", "true"); w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "</html>") {
		t.Errorf("a part: %d %s", w.Code, w.Body)
	}
}

// A connection records what is sent over it.
type connection struct{ *httptest.ResponseRecorder }

// SetWriteDeadline does nothing. A recorder itself does not support deadlines.
func (connection) SetWriteDeadline(time.Time) error { return nil }

// A slowPart changes every ten seconds.
func slowPart(began time.Time) *route {
	return &route{method: http.MethodGet, live: 2 * time.Second, always: true, serve: func(v *visit) error {
		return v.part("error", "message", time.Since(began).Truncate(10*time.Second).String()+"\n<")
	}}
}

func TestStream_SendsAPartWhenItChangesAndEndsBeforeTheLimitOfThePlatform(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, e := newConsole(management.Access{})
		began, w := time.Now(), connection{httptest.NewRecorder()}
		v := &visit{Context: e.NewContext(httptest.NewRequest(http.MethodGet, base, nil), w), console: c, right: management.Write}
		v.Request().Header.Set("Accept", "text/event-stream")
		if err := v.stream(slowPart(began)); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 200*time.Second || w.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("it took %v, %v", took, w.Header())
		}
		body := w.Body.String()
		if n := strings.Count(body, "data: <p"); n != 20 && n != 21 {
			t.Errorf("%d events in 200 s:\n%s", n, body)
		}
		if !strings.HasPrefix(body, "data: <p class=\"error\" role=\"alert\">0s\ndata: &lt;</p>\n\n") || !w.Flushed {
			t.Errorf("it begins with %.100q", body)
		}
	})
}

func TestStream_EndsWithTheServerOrTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(drain, leave func()){
			"the server stops":   func(drain, _ func()) { drain() },
			"the caller leaves":  func(_, leave func()) { leave() },
			"it goes as a whole": func(_, _ func()) {},
		} {
			c, e := newConsole(management.Access{})
			draining := make(chan struct{})
			c.draining = draining
			ctx, leave := context.WithCancel(t.Context())
			var w http.ResponseWriter = connection{httptest.NewRecorder()}
			wait := time.Minute
			if name == "it goes as a whole" {
				w, wait = httptest.NewRecorder(), 0
			}
			v := &visit{Context: e.NewContext(httptest.NewRequest(http.MethodGet, base, nil).WithContext(ctx), w), console: c, right: management.Write}
			began := time.Now()
			time.AfterFunc(time.Minute, func() { end(func() { close(draining) }, leave) })
			if err := v.stream(slowPart(began)); err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took != wait {
				t.Errorf("%s: it ends after %v, want %v", name, took, wait)
			}
			leave()
		}
	})
}

// Signing out ends the session's open streams.
func TestStream_EndsWhenTheSessionIsSignedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, e := newConsole(keys)
		cookie := sessionCookie + "=" + c.sessions.newSession(management.Write, time.Now().Add(time.Hour))
		v := &visit{Context: e.NewContext(httptest.NewRequest(http.MethodGet, base, nil), connection{httptest.NewRecorder()}), console: c, right: management.Write}
		v.Request().Header.Set("Cookie", cookie)
		start := time.Now()
		time.AfterFunc(time.Minute-time.Second, func() { ask(e, http.MethodPost, "/logout", "", "Cookie", cookie) })
		if err := v.stream(slowPart(start)); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("the stream ends after %v, want a minute", took)
		}
	})
}

func TestEndedSessions_DiscardsExpiredSessions(t *testing.T) {
	t.Parallel()
	var ended endedSessions
	start := time.Now()
	ended.add("first", start)
	ended.add("second", start.Add(sessionTime-time.Second))
	if !ended.has("first") || !ended.has("second") || ended.has("third") {
		t.Errorf("ended are %v, want the first and the second", ended.until)
	}
	ended.add("third", start.Add(sessionTime))
	if ended.has("first") || !ended.has("second") || !ended.has("third") {
		t.Errorf("after the first has expired, ended are %v, want the second and the third", ended.until)
	}
}

func TestVisible_EscapesInvisibleCharacters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"order-7 ä 日本 ‘x’": "order-7 ä 日本 ‘x’", "a\u202eb": `a\u202eb`, "\u2066a\u2069\u200f": `\u2066a\u2069\u200f`, "zero\u200bwidth\ufeff": `zero\u200bwidth\ufeff`,
		"soft\u00adhyphen\u034f": `soft\u00adhyphen\u034f`, "filler\u3164\ufe0f": `filler\u3164\ufe0f`, "tab\tline\n\x00": `tab\tline\n\x00`, "no-break\u00a0space\u2003": `no-break\u00a0space\u2003`,
		"tag\U000e0041": `tag\U000e0041`, "a\u2028b": `a\u2028b`,
	} {
		if got := visible(text); got != want {
			t.Errorf("%q shows as %q, want %q", text, got, want)
		}
	}
}

func TestFiles_AreServedUnchanged(t *testing.T) {
	t.Parallel()
	_, e := newConsole(keys)
	for _, name := range fileNames {
		w := ask(e, http.MethodGet, "/static/"+name+"?v=1", "")
		text, err := io.ReadAll(w.Body)
		want, _ := files.ReadFile("static/" + name)
		if w.Code != http.StatusOK || err != nil || string(text) != string(want) || contentTypes["."+name[strings.LastIndex(name, ".")+1:]] != w.Header().Get("Content-Type") {
			t.Errorf("%s: %d %v %v", name, w.Code, err, w.Header())
		}
	}
	for _, name := range []string{"htmx.LICENSE", "", "../templates/hub.html", "nothing.js"} {
		if w := ask(e, http.MethodGet, "/static/"+name, "", "Cookie", sessionCookie+"="+session(keys, management.Write)); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}
