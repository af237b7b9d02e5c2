package azuritetest

import (
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"regexp"
	"time"
)

// delayVariable names the environment variable that makes Azurite slow; see [Start].
const delayVariable = "DURABLE_TEST_DELAY"

var endpointURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// delayed returns a connection string of proxies before the services of another
// one if the environment asks for delays, else that one.
func delayed(connection string) (string, error) {
	text := os.Getenv(delayVariable)
	if text == "" {
		return connection, nil
	}
	most, err := time.ParseDuration(text)
	if err != nil || most <= 0 {
		return "", fmt.Errorf("%s=%q is not a duration above 0, such as 250ms", delayVariable, text)
	}
	var failed error
	connection = endpointURL.ReplaceAllStringFunc(connection, func(endpoint string) string {
		proxy, err := delay(endpoint, most)
		if err != nil {
			failed = err
		}
		return proxy
	})
	return connection, failed
}

// delay starts a proxy before a service, which ends with the process, and returns
// where it is.
func delay(endpoint string, most time.Duration) (string, error) {
	target, err := url.Parse(endpoint)
	if err != nil {
		return "", err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			time.Sleep(somewhat(most))
			r.SetURL(target)
		},
		ModifyResponse: func(*http.Response) error {
			time.Sleep(somewhat(most))
			return nil
		},
		ErrorLog: log.New(io.Discard, "", 0), // whoever asks is told, or has gone
	}
	return httptest.NewServer(proxy).URL, nil
}

// somewhat is no time at all three times out of four, else up to most.
func somewhat(most time.Duration) time.Duration {
	if rand.IntN(4) > 0 {
		return 0
	}
	return rand.N(most)
}
