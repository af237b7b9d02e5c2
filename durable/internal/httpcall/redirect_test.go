package httpcall_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/httpcall"
	"github.com/google/go-cmp/cmp"
)

// visit is a request that a host received during redirects.
type visit struct {
	URL, Method, Body string
	Secrets           string // the received credentials, as initials of their headers
}

// secrets are headers that must not reach another origin.
var secrets = []string{
	"Authorization", "Cookie", "X-Functions-Key", "Ocp-Apim-Subscription-Key", "Api-Key", "X-Api-Key", "Proxy-Authorization",
	"X-Auth-Token", "X-Vault-Token", "X-Goog-Api-Key", "Aeg-Sas-Key", "X-Of-Nobody-Yet",
}

// followRedirects follows redirects from the first URL to the last and returns the requests.
// CrossOriginHeaders contains X-Trace.
func followRedirects(t *testing.T, status int, urls ...string) []visit {
	t.Helper()
	var visits []visit
	hop := transport(func(r *http.Request) (*http.Response, error) {
		v := visit{URL: r.URL.String(), Method: r.Method}
		if r.Body != nil {
			body, _ := io.ReadAll(r.Body)
			v.Body = string(body)
		}
		for _, name := range secrets {
			if r.Header.Get(name) != "" {
				v.Secrets += name[:1]
			}
		}
		if r.Header.Get("X-Trace") == "" || r.Header.Get("Referer") != "" {
			t.Errorf("%s received X-Trace %q and Referer %q; want a trace and no referrer", r.URL, r.Header.Get("X-Trace"), r.Header.Get("Referer"))
		}
		visits = append(visits, v)
		if n := len(visits); n < len(urls) {
			return answer(r, status, http.Header{"Location": {urls[n]}}, "moved"), nil
		}
		return answer(r, 200, nil, "here"), nil
	})
	h := http.Header{"X-Trace": {"1"}}
	for _, name := range secrets {
		h.Set(name, "secret")
	}
	_, err := httpcall.Client{Transport: hop, ContentLimit: 100, CrossOriginHeaders: []string{"x-trace"}}.Do(t.Context(), httpcall.Request{Method: "POST", URL: urls[0], Header: h, Content: "c"})
	if err != nil {
		t.Fatal(err)
	}
	return visits
}

// all is the value of visit.Secrets if all secrets were received.
const all = "ACXOAXPXXXAX"

func TestRedirect_SendsNoCredentialsAfterAnotherOrigin(t *testing.T) {
	t.Parallel()
	got := followRedirects(t, 307, "https://a/1", "https://a/2", "https://sub.a/3", "https://a/4")
	want := []visit{
		{"https://a/1", "POST", "c", all},
		{"https://a/2", "POST", "c", all},
		{"https://sub.a/3", "POST", "c", ""},
		{"https://a/4", "POST", "c", ""},
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("visits (-got +want):\n%s", diff)
	}
}

func TestRedirect_BecomesAGetAsInBrowsers(t *testing.T) {
	t.Parallel()
	got := followRedirects(t, 302, "https://a/1", "https://a/2")
	want := []visit{{"https://a/1", "POST", "c", all}, {"https://a/2", "GET", "", all}}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("visits (-got +want):\n%s", diff)
	}
}

// The rules are the same as in .NET's HttpClientHandler.
func TestRedirect_IsTheResponseIfItIsNotFollowed(t *testing.T) {
	t.Parallel()
	long := make([]string, 60)
	for i := range long {
		long[i] = "http://a/"
	}
	for _, c := range []struct {
		name string
		urls []string
		want int // visits
	}{
		{"from https to http", []string{"https://a/", "http://a/"}, 1},
		{"to another scheme", []string{"https://a/", "ftp://a/"}, 1},
		{"from http to https", []string{"http://a/", "https://a/"}, 2},
		{"for the 51st time", long, 51},
	} {
		if got := len(followRedirects(t, 307, c.urls...)); got != c.want {
			t.Errorf("%s: %d visits, want %d", c.name, got, c.want)
		}
	}
}

func TestRedirect_KeepsTheRefererAndHostOfTheCaller(t *testing.T) {
	t.Parallel()
	var got []string
	hop := transport(func(r *http.Request) (*http.Response, error) {
		got = append(got, r.Host+" "+r.Header.Get("Referer"))
		next := []string{"/2", "https://b/3", ""}[len(got)-1]
		if next == "" {
			return answer(r, 200, nil, ""), nil
		}
		return answer(r, 307, http.Header{"Location": {next}}, ""), nil
	})
	h := http.Header{"Host": {"virtual"}, "Referer": {"mine"}}
	if _, err := (httpcall.Client{Transport: hop, ContentLimit: 1}).Do(t.Context(), httpcall.Request{URL: "https://a/1", Header: h}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, []string{"virtual mine", "virtual mine", "b mine"}); diff != "" {
		t.Errorf("hosts and referrers (-got +want):\n%s", diff)
	}
}
