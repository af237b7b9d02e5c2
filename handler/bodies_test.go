package handler

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/durablefunctions-go/durablefunctions/durable"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// The server refuses bodies above the total limit, also at the app's own routes, with and without a
// known length. It releases the memory that they reserved.
func TestBodies_OfAllRequestsHaveATotalLimit(t *testing.T) {
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
	for range 2 { // the second round needs all memory of the first
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
	if left := s.front.Bodies.Available.Load(); left != cfg.MaxRequestBodies {
		t.Errorf("%d bytes are left in the end, want %d", left, cfg.MaxRequestBodies)
	}
}

// A caller that sends only a part of a body reserves memory only for that part, and not forever.
func TestBodies_ReserveMemoryForReceivedBytesOnly(t *testing.T) {
	t.Parallel()
	app := App{Routes: func(api *echo.Group, _ *durable.Client) {
		api.POST("/read", func(c echo.Context) error {
			if _, err := io.Copy(io.Discard, c.Request().Body); err != nil {
				return err
			}
			return c.NoContent(http.StatusNoContent)
		})
	}}
	cfg := fakeConfig(t, newFakeHub())
	cfg.MaxRequestBody, cfg.MaxRequestBodies = 1000, 2000
	serveInBubble(t, app, cfg, func(t *testing.T, dial func() net.Conn) {
		begin := func(target string, sent int) net.Conn {
			conn := dial()
			send(t, conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n%s", target, strings.Repeat(" ", sent)))
			synctest.Wait()
			return conn
		}
		finish := func(target string) string {
			conn := begin(target, 1000)
			defer conn.Close()
			return statusLine(t, conn)
		}
		read, start := "/api/read", managed+"orchestrators/Greet"
		var callers []net.Conn
		for range 10 {
			callers = append(callers, begin(read, 1), begin(start, 1))
		}
		for target, want := range map[string]string{read: "204 No Content", start: "202 Accepted"} {
			if got := finish(target); got != "HTTP/1.1 "+want {
				t.Errorf("%s while other callers send no body: %s, want %s", target, got, want)
			}
		}
		callers = append(callers, begin(read, 999))
		for _, target := range []string{read, start} {
			if got := finish(target); got != "HTTP/1.1 503 Service Unavailable" {
				t.Errorf("%s without room: %s, want 503", target, got)
			}
		}
		for i, conn := range callers {
			if got := statusLine(t, conn); got != "HTTP/1.1 408 Request Timeout" {
				t.Errorf("caller %d, whose body stops: %s, want 408", i, got)
			}
			conn.Close()
		}
		for range 2 {
			if got := finish(read); got != "HTTP/1.1 204 No Content" {
				t.Errorf("after they gave up: %s, want 204", got)
			}
		}
	})
}

// The memory of a large body is returned to the system after an answer, and after a refusal halfway.
func TestBodies_MemoryOfLargeBodiesIsReturned(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		room, length int64
		code         int
		frees        bool
	}{
		"answered":           {1 << 30, web.LargeBody, http.StatusNoContent, true},
		"small":              {1 << 30, 1000, http.StatusNoContent, false},
		"refused on the way": {web.LargeBody + 1000, web.LargeBody + 2000, http.StatusServiceUnavailable, true},
		"refused early":      {1000, web.LargeBody, http.StatusServiceUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := App{Routes: func(api *echo.Group, _ *durable.Client) {
				api.POST("/read", func(c echo.Context) error {
					if _, err := io.Copy(io.Discard, c.Request().Body); err != nil {
						return err
					}
					return c.NoContent(http.StatusNoContent)
				})
			}}
			s := readyServer(t, app, fakeConfig(t, newFakeHub()))
			s.cfg.MaxRequestBodies = tt.room
			s.front.Bodies.Available.Store(tt.room)
			body := io.LimitReader(blanks{}, tt.length) // of unknown length
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "http://localhost:8080/api/read", body))
			if freeing := s.front.Bodies.IsFreeing.Load(); w.Code != tt.code || freeing != tt.frees {
				t.Errorf("status %d, memory will be returned: %v; want %d, %v", w.Code, freeing, tt.code, tt.frees)
			}
		})
	}
}

// blanks is an endless body of spaces.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// If concurrent bodies need more memory than is left, some fail and the others complete. None waits.
func TestBodies_ThatCompeteForMemoryFailInsteadOfWaiting(t *testing.T) {
	t.Parallel()
	var room web.BodyMemory
	room.Available.Store(25)
	var bodies []*web.ReservingBody
	for range 4 {
		bodies = append(bodies, &web.ReservingBody{ReadCloser: io.NopCloser(strings.NewReader("0123456789")), Memory: &room, Answer: httptest.NewRecorder()})
	}
	whole, refused := 0, 0
	for range 11 {
		for i, b := range bodies {
			if b == nil {
				continue
			}
			switch _, err := b.Read(make([]byte, 1)); {
			case err == nil:
				continue
			case errors.Is(err, web.ErrBodyMemory):
				refused++ // as if its route did not end before the other bodies are read
			case errors.Is(err, io.EOF):
				whole++
				room.Available.Add(b.Reserved)
			}
			bodies[i] = nil
		}
	}
	if whole != 2 || refused != 2 || room.Available.Load() != 25 {
		t.Errorf("%d are whole and %d refused, want 2 and 2; %d bytes are left, want 25", whole, refused, room.Available.Load())
	}
}

// The buffer of a body grows with the received data and ends with the size of the body.
func TestBodies_BufferGrowsWithReceivedData(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, web.InitialBuffer - 1, web.InitialBuffer, web.InitialBuffer + 1, 5 * web.InitialBuffer, 3 << 20} {
		for _, known := range []bool{true, false} {
			want := bytes.Repeat([]byte("x"), size)
			r := httptest.NewRequest(http.MethodPost, "/", &growing{t: t, left: want})
			if r.ContentLength = -1; known {
				r.ContentLength = int64(size)
			}
			got, err := web.ReadAll(r)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: got %d, %v", size, len(got), err)
			}
			if known && cap(got) > size+1 {
				t.Errorf("%d bytes are in memory of %d", size, cap(got))
			}
		}
	}
}

// A growing body arrives in pieces. It fails the test if the buffer is much larger than necessary.
type growing struct {
	t    *testing.T
	left []byte
	read int
}

func (g *growing) Read(p []byte) (int, error) {
	if most := max(web.InitialBuffer, 3*g.read+1); len(p) > most {
		g.t.Errorf("room for %d bytes when %d have come, want at most %d", len(p), g.read, most)
	}
	n := copy(p[:min(len(p), 1000)], g.left)
	g.left, g.read = g.left[n:], g.read+n
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}
