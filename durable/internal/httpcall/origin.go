package httpcall

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// SameOrigin reports whether two URLs have scheme, host and port in common: what
// may be told to the one may be told to the other.
func SameOrigin(a, b *url.URL) bool {
	return strings.EqualFold(a.Scheme, b.Scheme) && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	switch strings.ToLower(u.Scheme) {
	case "http":
		return "80"
	case "https":
		return "443"
	}
	return ""
}

// FunctionsKey is the header with the key of an Azure function.
const FunctionsKey = "X-Functions-Key"

// credentials are headers that say who sends a request, in canonical form.
// Those after the cookies are what API gateways, search services and models in
// Azure and many others take keys in.
var credentials = []string{
	"Authorization", "Proxy-Authorization", "Www-Authenticate", "Cookie", "Cookie2",
	FunctionsKey, "Ocp-Apim-Subscription-Key", "Api-Key", "X-Api-Key",
}

// StripCredentials takes out of h what another origin must not learn.
func StripCredentials(h http.Header) {
	for name := range h {
		if slices.Contains(credentials, http.CanonicalHeaderKey(name)) {
			delete(h, name)
		}
	}
}

// redirectsMax is how many redirects are followed (.NET's
// HttpClientHandler.MaxAutomaticRedirections).
const redirectsMax = 50

// redirect decides whether a redirect is followed: by the rules of .NET's
// HttpClientHandler not more than 50, and none to something less safe than
// before. One that is not followed is the response.
//
// Credentials go to no other origin, nor back again from there. .NET takes only
// Authorization out.
func redirect(next *http.Request, via []*http.Request) error {
	first, last := via[0], via[len(via)-1]
	switch {
	case len(via) > redirectsMax,
		next.URL.Scheme != "http" && next.URL.Scheme != "https",
		last.URL.Scheme == "https" && next.URL.Scheme == "http":
		return http.ErrUseLastResponse
	}
	// The referrer that net/http adds has the query, and with it perhaps a key.
	next.Header.Del("Referer")
	if given := first.Header.Get("Referer"); given != "" {
		next.Header.Set("Referer", given)
	}
	// A Host that the caller chose is for the first origin.
	elsewhere := func(r *http.Request) bool { return !SameOrigin(first.URL, r.URL) }
	if elsewhere(next) || slices.ContainsFunc(via, elsewhere) {
		StripCredentials(next.Header)
		next.Host = next.URL.Host
	}
	return nil
}
