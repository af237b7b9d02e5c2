package azuritetest

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestDelayed_UsesAProxy(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Etag", r.Header.Get("If-Match"))
		w.WriteHeader(http.StatusAccepted)
		_, _ = fmt.Fprint(w, r.Method, " ", r.URL)
	}))
	defer service.Close()
	direct := "QueueEndpoint=" + strings.Replace(service.URL, "localhost", "127.0.0.1", 1) + "/account;"

	t.Setenv(delayVariable, "")
	if got, err := delayed(direct); got != direct || err != nil {
		t.Errorf("without a delay: %q, %v; want the original endpoint", got, err)
	}
	t.Setenv(delayVariable, "1ms")
	connection, err := delayed(direct)
	if err != nil || connection == direct {
		t.Fatalf("with a delay: %q, %v; want another endpoint", connection, err)
	}
	endpoint := strings.TrimSuffix(strings.TrimPrefix(connection, "QueueEndpoint="), ";")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, endpoint+"/q?timeout=%271%27", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("If-Match", "an ETag")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if want := "PUT /account/q?timeout=%271%27"; err != nil || string(body) != want || resp.StatusCode != http.StatusAccepted || resp.Header.Get("Etag") != "an ETag" {
		t.Errorf("%s, %q, %v, header %v; want %q and the whole response", resp.Status, body, err, resp.Header, want)
	}

	for _, text := range []string{"long", "0s", "-1s"} {
		t.Setenv(delayVariable, text)
		if _, err := delayed(direct); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s=%s: error %v, want one with the value", delayVariable, text, err)
		}
	}
}

func TestRandomDelay_IsMostlyZeroAndLimited(t *testing.T) {
	const limit = time.Second
	waits := 0
	for range 1000 {
		d := randomDelay(limit)
		if d < 0 || d > limit {
			t.Fatalf("randomDelay returned %v, want at most %v", d, limit)
		}
		if d > 0 {
			waits++
		}
	}
	if waits < 150 || waits > 350 {
		t.Errorf("%d of 1000 delays are positive, want about 250", waits)
	}
}
