package handler

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkPayload measures the allocated bytes per byte of a large payload. It measures an input from
// the start request to the hub, and from the hub to the answer of a status request.
func BenchmarkPayload(b *testing.B) {
	const length = 16 << 20
	input := []byte(`"` + strings.Repeat("x", length-2) + `"`)
	for name, open := range everyHub {
		b.Run(name, func(b *testing.B) {
			s := readyServer(b, App{}, fakeConfig(b, open(b)))
			measure := func(method string, code int, target func(i int) string) func(b *testing.B) {
				return func(b *testing.B) {
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					for i := 0; b.Loop(); i++ {
						r := httptest.NewRequest(method, "http://localhost:8080"+managed+target(i), nil)
						if method == http.MethodPost {
							r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(input)), length
						}
						var w unread
						if s.ServeHTTP(&w, r); w.code != code {
							b.Fatalf("%s %s: %d", method, r.URL, w.code)
						}
					}
					runtime.ReadMemStats(&after)
					b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N*length), "B/payloadB")
				}
			}
			b.Run("POST", measure(http.MethodPost, http.StatusAccepted, func(i int) string { return "orchestrators/Greet/i" + strconv.Itoa(i) }))
			b.Run("GET", measure(http.MethodGet, http.StatusAccepted, func(int) string { return "instances/i0" }))
		})
	}
}

// An unread answer discards what is written.
type unread struct {
	header http.Header
	code   int
}

func (u *unread) Header() http.Header {
	if u.header == nil {
		u.header = http.Header{}
	}
	return u.header
}

func (u *unread) Write(p []byte) (int, error) { return len(p), nil }

func (u *unread) WriteHeader(code int) { u.code = code }
