package handler

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// FuzzInvocation sends arbitrary invocations to functions of every shape. The answer is non-empty JSON
// with status 200 or 500, unless the request is not an invocation. Text, bytes and times that are
// encoded like the host encodes them arrive unchanged.
func FuzzInvocation(f *testing.F) {
	paths, err := filepath.Glob("testdata/invocations/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		request, _, _ := strings.Cut(string(text), "-- sees --\n")
		function, body, _ := strings.Cut(strings.TrimPrefix(request, "POST /"), "\n")
		f.Add(function, body)
	}
	f.Add("Any", `{"Data":{"input":"\"\\\"\\\\\\\"x"},"Metadata":{"RetryContext":7}}`)
	f.Add("HubMany", `{"Data":{"events":"[[[[[[]]]]]]"},"Metadata":{"SequenceNumberArray":{}}}`)
	var text string
	var content []byte
	var moment time.Time
	app := goldenApp(&sightings{})
	app.Triggers = append(app.Triggers,
		Manual("Text", func(_ context.Context, _ *Invocation, s string) error { text = s; return nil }),
		Manual("Content", func(_ context.Context, _ *Invocation, b []byte) error { content = b; return nil }),
		Manual("Moment", func(_ context.Context, _ *Invocation, at time.Time) error { moment = at; return nil }),
	)
	s := newHosted(f, app)
	names := regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
	f.Fuzz(func(t *testing.T, function, body string) {
		if !names.MatchString(function) {
			return
		}
		code, answer := invoke(s, function, body)
		if code != http.StatusOK && code != http.StatusInternalServerError && code != http.StatusNotFound || !json.Valid([]byte(answer)) {
			t.Fatalf("POST /%s %s: %d %q", function, body, code, answer)
		}
		want := strings.ToValidUTF8(body, "\ufffd")
		if code, answer := invoke(s, "Text", inputOf(t, want)); code != http.StatusOK || text != want {
			t.Errorf("text %q arrived as %q: %d %s", want, text, code, answer)
		}
		if code, answer := invoke(s, "Content", wrap(t, []byte(body))); code != http.StatusOK || string(content) != body {
			t.Errorf("bytes %q arrived as %q: %d %s", body, content, code, answer)
		}
		at := time.Unix(int64(len(body))*7919, 0).UTC()
		if code, answer := invoke(s, "Moment", wrap(t, at.Format("2006-01-02T15:04:05"))); code != http.StatusOK || !moment.Equal(at) {
			t.Errorf("time %v arrived as %v: %d %s", at, moment, code, answer)
		}
	})
}

// inputOf returns an invocation whose payload is a text, encoded twice as JSON.
func inputOf(t *testing.T, text string) string {
	t.Helper()
	inner, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return wrap(t, string(inner))
}

// wrap returns an invocation whose payload is v as JSON.
func wrap(t *testing.T, v any) string {
	t.Helper()
	value, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return `{"Data":{"input":` + string(value) + `},"Metadata":{"sys":{}}}`
}
