package handler

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/labstack/echo/v4"
)

// Bodies beyond the room for all of them are refused, at the app's own routes too,
// whether their length is known or not, and what was taken up is given back.
func TestBodies_OfAllRequestsHaveALimit(t *testing.T) {
	t.Parallel()
	const size = 1000
	held, proceed := make(chan struct{}), make(chan struct{})
	app := App{Routes: func(api *echo.Group, _ *durable.Client) {
		api.POST("/hold", func(c echo.Context) error {
			if _, err := io.ReadAll(c.Request().Body); err != nil {
				return err
			}
			held <- struct{}{}
			<-proceed
			return c.NoContent(http.StatusNoContent)
		})
	}}
	cfg := fakeConfig(t, newFakeHub())
	cfg.MaxRequestBody, cfg.MaxRequestBodies = size, 2*size+10
	s := readyServer(t, app, cfg)
	ask := func(target string, length int, known bool) *httptest.ResponseRecorder {
		var body io.Reader = strings.NewReader(`"` + strings.Repeat("x", length-2) + `"`)
		if !known {
			body = io.MultiReader(body)
		}
		r := httptest.NewRequest(http.MethodPost, "http://localhost:8080"+target, body)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w
	}
	for range 2 { // the second round finds all room given back
		var holding sync.WaitGroup
		for _, known := range []bool{true, false} {
			holding.Go(func() {
				if w := ask("/api/hold", size, known); w.Code != http.StatusNoContent {
					t.Errorf("length known %v: %d %s", known, w.Code, w.Body)
				}
			})
			<-held
		}
		for _, target := range []string{"/api/hold", managed + "orchestrators/Greet"} {
			for _, known := range []bool{true, false} {
				w := ask(target, 11, known)
				if w.Code != http.StatusServiceUnavailable || w.Header().Get(echo.HeaderRetryAfter) == "" {
					t.Errorf("%s, length known %v: %d %s, want 503", target, known, w.Code, w.Body)
				}
			}
		}
		if w := ask(managed+"orchestrators/Greet", 10, true); w.Code != http.StatusAccepted {
			t.Errorf("one for which there is room: %d %s", w.Code, w.Body)
		}
		if w := call(s, http.MethodGet, managed+"instances", ""); w.Code != http.StatusOK {
			t.Errorf("one without a body: %d %s", w.Code, w.Body)
		}
		for _, known := range []bool{true, false} {
			if w := ask(managed+"orchestrators/Greet", size+1, known); known && w.Code != http.StatusRequestEntityTooLarge {
				t.Errorf("one that is too long: %d %s", w.Code, w.Body)
			}
		}
		proceed <- struct{}{}
		proceed <- struct{}{}
		holding.Wait()
	}
	if left := s.bodies.left.Load(); left != cfg.MaxRequestBodies {
		t.Errorf("%d bytes are left in the end, want %d", left, cfg.MaxRequestBodies)
	}
}
