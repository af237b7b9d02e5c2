package handler

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// A pipeListener accepts connections that tests create in a synctest bubble.
type pipeListener struct{ conns chan net.Conn }

func (l *pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l *pipeListener) Close() error {
	select {
	case <-l.conns:
	default:
		close(l.conns)
	}
	return nil
}

func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// inBubble serves hub while test runs. dial opens a connection.
func inBubble(t *testing.T, hub *fakeHub, test func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	serveInBubble(t, App{}, fakeConfig(t, hub), test)
}

func serveInBubble(t *testing.T, app App, cfg Config, test func(t *testing.T, dial func() net.Conn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := New(app, cfg)
		ctx, stop := context.WithCancel(t.Context())
		l := &pipeListener{conns: make(chan net.Conn)}
		ended := make(chan error)
		go func() { ended <- s.serve(ctx, l) }()
		test(t, func() net.Conn {
			client, server := net.Pipe()
			l.conns <- server
			return client
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		wantNothingInUse(t, s)
	})
}

// send writes text. It blocks until the other side reads it.
func send(t *testing.T, to io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(to, text); err != nil {
		t.Fatal(err)
	}
}

func statusLine(t *testing.T, from io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(from).ReadString('\n')
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

func TestLimits_ASlowBodyTimesOut(t *testing.T) {
	t.Parallel()
	inBubble(t, newFakeHub(), func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		var sending sync.WaitGroup
		defer sending.Wait()
		defer conn.Close()
		began := time.Now()
		send(t, conn, "POST /api/durabletask/orchestrators/Greet HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
		sending.Go(func() {
			for range 100 {
				if _, err := conn.Write([]byte(" ")); err != nil {
					return
				}
				time.Sleep(10 * time.Second)
			}
		})
		if got := statusLine(t, conn); got != "HTTP/1.1 408 Request Timeout" {
			t.Errorf("the answer is %s", got)
		}
		if took := time.Since(began); took != web.BodyTimeout {
			t.Errorf("it took %v, want %v", took, web.BodyTimeout)
		}
	})
}

// An incomplete body is a mistake of the caller.
func TestLimits_AnIncompleteBodyIsABadRequest(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"short":         "Content-Length: 9\r\n\r\n[1,2",
		"badly chunked": "Transfer-Encoding: chunked\r\n\r\n2\r\n12\r\nzz\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			cfg, _ := anyPort(t, newFakeHub())
			base, _ := start(t, New(App{}, cfg))
			conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			send(t, conn, "POST /api/durabletask/orchestrators/F HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"+request)
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if got := statusLine(t, conn); !strings.Contains(got, "400") {
				t.Errorf("%s, want 400", got)
			}
		})
	}
}

func TestLimits_ASlowHeaderEndsTheConnection(t *testing.T) {
	t.Parallel()
	inBubble(t, newFakeHub(), func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		defer conn.Close()
		began := time.Now()
		send(t, conn, "GET / HTTP/1.1\r\nHost:")
		got := statusLine(t, conn)
		if took := time.Since(began); took != readHeaderTimeout || strings.Contains(got, "200") {
			t.Errorf("after %v: %s, want the end after %v", took, got, readHeaderTimeout)
		}
	})
}

// If no client reads an answer, the server closes the connection. The time limit of bodies does not
// apply while a request waits for an instance.
func TestLimits_SendingAnAnswerIsLimitedAndWaitingForAnInstanceIsNot(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("big", history.Completed, func(s *provider.InstanceState) { s.Output = new(`"` + strings.Repeat("x", 1<<20) + `"`) })
	inBubble(t, hub, func(t *testing.T, dial func() net.Conn) {
		idle := dial()
		defer idle.Close()
		send(t, idle, "GET /api/durabletask/instances/big HTTP/1.1\r\nHost: x\r\n\r\n")
		time.Sleep(web.AnswerTimeout + time.Second)
		rest, err := io.ReadAll(idle)
		if err != nil || len(rest) > 1<<16 {
			t.Errorf("%d bytes, %v: the answer could still be taken", len(rest), err)
		}

		waiting := dial()
		defer waiting.Close()
		began := time.Now()
		send(t, waiting, "POST /api/durabletask/orchestrators/Greet?timeout=600&pollingInterval=10 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1")
		if got := statusLine(t, waiting); got != "HTTP/1.1 202 Accepted" || time.Since(began) < 10*time.Minute {
			t.Errorf("after %v: %s, want 202 after 10 minutes", time.Since(began), got)
		}
	})
}

func TestLimits_HeaderHasALargestSize(t *testing.T) {
	t.Parallel()
	inBubble(t, newFakeHub(), func(t *testing.T, dial func() net.Conn) {
		conn := dial()
		var sending sync.WaitGroup
		defer sending.Wait()
		defer conn.Close()
		sending.Go(func() {
			// The answer may arrive before the server has read everything.
			_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Long: "+strings.Repeat("x", 2*web.MaxHeader)+"\r\n\r\n")
		})
		if got := statusLine(t, conn); got != "HTTP/1.1 431 Request Header Fields Too Large" {
			t.Errorf("the answer is %s", got)
		}
	})
}

func TestLimits_DepthIsCountedOutsideOfStrings(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", web.MaxJSONDepth)
	for text, want := range map[string]bool{
		deep: false, deep + "[": true, `"` + deep + `["`: false, `"\"` + deep + `["`: false, `{"a":` + deep: true,
		strings.Repeat("[]", 10_000): false, `"\\"` + deep + "[": true,
	} {
		if got := web.IsTooDeep([]byte(text)); got != want {
			t.Errorf("%.20s…: %v, want %v", text, got, want)
		}
	}
	// A payload that is stored anyway does not prevent the answer.
	hub := newFakeHub()
	hub.put("i", history.Completed, func(s *provider.InstanceState) {
		s.Output = new(strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999))
	})
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for _, target := range []string{"instances/i", "instances"} {
		if w := call(s, "GET", managed+target, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"output":"[[[`) {
			t.Errorf("%s: %d %.200s", target, w.Code, w.Body)
		}
	}
}
