package handler

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

var quiet = slog.New(slog.DiscardHandler)

// For any host.json and any variable that overrides it, the result is a usable configuration or a
// problem with its source.
func FuzzHostJSON(f *testing.F) {
	sample, err := os.ReadFile("../" + settings.HostJSONFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample, "storageProvider__partitionCount", "3")
	for _, c := range settingCases() {
		for value := range c.good {
			f.Add([]byte(nested(c.path, value)), strings.ReplaceAll(c.path, ".", "__"), c.overridden)
		}
		for value := range c.bad {
			f.Add([]byte(nested(c.path, value)), strings.ToUpper(c.path), c.overridden)
		}
	}
	f.Add([]byte(`{"durableTask": {"hubName": "%X%"}, "version": 2}`), "hubName", "%%")
	f.Fuzz(func(t *testing.T, text []byte, name, value string) {
		found, err := settings.ParseHostJSON(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "host.json ") {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		cfg := configure(settings.Environment{}, found, []string{storageSetting, "AzureFunctionsJobHost__extensions__durableTask__" + name + "=" + value})
		if _, err := jsontext.Marshal(cfg.effective()); err != nil {
			t.Errorf("the effective configuration: %v", err)
		}
		if cfg.Problem != nil {
			return
		}
		if err := cfg.Storage.Validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
		if err := cfg.Worker.Validate(); err != nil {
			t.Errorf("accepted, but %v", err)
		}
	})
}

// Any request gets an answer that is not a server error. The body is JSON or empty.
func FuzzManagement(f *testing.F) {
	for _, exchanges := range transcripts() {
		for _, x := range exchanges {
			path, query, _ := strings.Cut(strings.TrimPrefix(x.target, managed), "?")
			f.Add(x.method, path, query, x.body, x.headers == nil)
		}
	}
	cfg := Config{RoutePrefix: "api", Logger: quiet}
	cfg.Storage.TaskHub = "MyHub"
	f.Fuzz(func(t *testing.T, method, path, query, body string, isJSON bool) {
		target, err := url.Parse("http://localhost:8080" + managed + path)
		if err != nil || strings.Contains(strings.ToLower(query), "timeout") {
			return // net/http refuses the request, or the request only waits
		}
		target.RawQuery = query
		r, err := http.NewRequest(method, target.String(), strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL, r.RequestURI = target, target.RequestURI()
		if isJSON {
			r.Header.Set("Content-Type", "application/json")
		}
		cfg := cfg
		cfg.Provider = newFullHub()
		s := New(App{}, cfg)
		s.state.SetReady()
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		wrongStatus := strings.Contains(w.Body.String(), "because instance is in the ") || strings.Contains(w.Body.String(), `"runtimeStatus":"Failed"`)
		if w.Code < 200 || w.Code >= 500 && !wrongStatus && w.Code != http.StatusNotImplemented {
			t.Errorf("%s %s: %d %s", method, target, w.Code, w.Body)
		}
		if text := w.Body.Bytes(); len(text) > 0 && !json.Valid(text) {
			t.Errorf("%s %s: the body is %q", method, target, text)
		}
		if location := w.Header().Get("Location"); location != "" {
			if _, err := url.Parse(location); err != nil {
				t.Errorf("%s %s: %v", method, target, err)
			}
		}
	})
}
