//go:build unix

package main_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

func TestOutage_AWrongHostJSONIsAnsweredWith503AndTheReason(t *testing.T) {
	root := newRoot(t, newHub(), azuritetest.Start(t), func(durableTask map[string]any) {
		durableTask["storageProvider"].(map[string]any)["partitionCount"] = 17
	})
	a := startStandalone(t, sampleApp, root)

	wantRefusal(t, a, "partitionCount", "17", "1 to 16")
}

func TestOutage_AMissingConnectionIsAnsweredWith503AndWhatWasLookedFor(t *testing.T) {
	root := newRoot(t, newHub(), "", func(durableTask map[string]any) {
		durableTask["storageProvider"].(map[string]any)["type"] = "AzureStorage"
	})
	a := startStandalone(t, sampleApp, root)

	wantRefusal(t, a, "AzureWebJobsStorage")
}

// wantRefusal checks that a request is refused with a reason that has all words
// in it, that the log has it too, and that the app lives on.
func wantRefusal(t *testing.T, a *app, words ...string) {
	t.Helper()
	got := a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence", nil)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("%d %s, want 503", got.status, got.body)
	}
	for _, word := range words {
		if !strings.Contains(got.body, word) {
			t.Errorf("the answer %s does not say %q", got.body, word)
		}
		// The app answers while it still logs its settings.
		eventually(t, 20*time.Second, fmt.Sprintf("%q in the log", word), func() bool { return strings.Contains(a.log(), word) })
	}
	if got := a.call(http.MethodGet, "/", nil); got.status != http.StatusOK || a.ended() {
		t.Errorf("GET / afterwards: %d, want 200 of a process that lives", got.status)
	}
}

func TestOutage_StorageThatIsDownAtStartIsWaitedFor(t *testing.T) {
	gate, connection := newGate(t, azuritetest.Start(t))
	a := startStandalone(t, sampleApp, newRoot(t, newHub(), connection, nil))
	got := a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence", nil)
	if got.status != http.StatusServiceUnavailable {
		t.Errorf("while storage is down: %d %s, want 503", got.status, got.body)
	}

	gate.open()

	eventually(t, 60*time.Second, "a start to be accepted", func() bool {
		return a.call(http.MethodPost, "/api/orchestrators/E1_HelloSequence?instanceId=x", nil).status == http.StatusAccepted
	})
	a.completed("/api/durabletask/instances/x", 60*time.Second, helloOutput)
}

func TestOutage_StorageThatGoesDownForAWhileLosesNothing(t *testing.T) {
	t.Parallel()
	gate, connection := newGate(t, azuritetest.Start(t))
	gate.open()
	a := startStandalone(t, e2eApp, newRoot(t, newHub(), connection, nil))
	trace := t.TempDir() + "/trace"
	started := a.start("Steps", tenSteps(trace))
	awaitStep(t, trace, 4)

	gate.close()
	time.Sleep(5 * time.Second) // long enough for the retries within a request to give up
	gate.open()

	a.completed("/api/durabletask/instances/"+started.ID, 3*time.Minute, tenSquares)
}

// A gate stands in front of a storage account and lets nothing through until it
// is open: connections are refused, and those that were there are cut.
type gate struct {
	t        *testing.T
	services map[string]string // address in front → address behind

	mu        sync.Mutex // protects the following
	listeners []net.Listener
	conns     []net.Conn
}

// newGate returns a closed gate and the connection string that leads through it.
func newGate(t *testing.T, connection string) (*gate, string) {
	t.Helper()
	g := &gate{t: t, services: map[string]string{}}
	through := regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllStringFunc(connection, func(behind string) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		g.services[l.Addr().String()] = behind
		return l.Addr().String()
	})
	t.Cleanup(g.close)
	return g, through
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for front, behind := range g.services {
		l, err := net.Listen("tcp", front)
		if err != nil {
			g.t.Fatal(err)
		}
		g.listeners = append(g.listeners, l)
		go g.serve(l, behind) // ends when close closes the listener
	}
}

func (g *gate) serve(l net.Listener, behind string) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		up, err := new(net.Dialer).DialContext(context.Background(), "tcp", behind)
		if err != nil {
			conn.Close()
			continue
		}
		g.mu.Lock()
		g.conns = append(g.conns, conn, up)
		g.mu.Unlock()
		pass := func(to, from net.Conn) { // ends when either side closes
			_, _ = io.Copy(to, from)
			to.Close()
		}
		go pass(up, conn)
		go pass(conn, up)
	}
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.listeners {
		l.Close()
	}
	for _, c := range g.conns {
		c.Close()
	}
	g.listeners, g.conns = nil, nil
}
