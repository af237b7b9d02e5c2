//go:build linux

package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

var memory = flag.Bool("memory", false, "measure the memory of an app that gets large bodies, and print tables")

// bulk is the load of one measurement: concurrent starts with bodies of the same size.
type bulk struct {
	bodies, megabytes int
}

// rest is the time that a measurement continues after the last instance has ended.
const rest = time.Minute

// Run with: go test ./functions/internal/e2e -run Memory -memory -v.
func TestMemory_IsBoundedWhileManyLargeBodiesArrive(t *testing.T) {
	if !*memory {
		t.Skip("measures with -memory only")
	}
	stores := []struct {
		name       string
		connection func(testing.TB) string
		edit       func(durableTask map[string]any)
	}{
		{"local file", func(testing.TB) string { return "" }, nil},
		{"partition logs", azuritetest.Start, inPartitionLogs},
		{"queues and tables", azuritetest.Start, nil},
	}
	for _, store := range stores {
		for _, b := range []bulk{{8, 95}, {64, 4}} {
			t.Run(fmt.Sprintf("%s/%d of %d MB", store.name, b.bodies, b.megabytes), func(t *testing.T) {
				a := startStandalone(t, e2eApp, newRoot(t, newHub(), store.connection(t), store.edit), "DURABLE_LOG_LEVEL=info")
				a.measure(b)
			})
		}
	}
}

// measure starts the instances of b. It logs the app's memory every second until one minute after all
// instances have ended.
func (a *app) measure(b bulk) {
	began := time.Now()
	var last time.Duration // time at which the last instance ended
	ended := make(chan struct{})
	go func() { // ends with the callers
		defer close(ended)
		var all sync.WaitGroup
		for n := range b.bodies {
			all.Go(func() {
				if err := a.weigh(fmt.Sprintf("bulk-%d", n), b.megabytes<<20); err != nil {
					a.t.Errorf("instance %d: %v", n, err)
				}
			})
		}
		all.Wait()
		last = time.Since(began)
	}()
	a.t.Logf("%8s %10s %10s  (MB)", "second", "anonymous", "resident")
	peak, anonymous := 0, 0
	until := make(<-chan time.Time)
	for done := false; !done; {
		select {
		case <-ended:
			ended, until = nil, time.After(rest)
		case <-until:
			done = true
		case <-time.After(time.Second):
		}
		var resident int
		anonymous, resident = a.residentMB()
		peak = max(peak, anonymous)
		a.t.Logf("%8.0f %10d %10d", time.Since(began).Seconds(), anonymous, resident)
	}
	a.t.Logf("%d bodies of %d MB: ended after %.0f s, peak %d MB, after another minute %d MB", b.bodies, b.megabytes, last.Seconds(), peak, anonymous)
}

// weigh starts an instance with an input of the given length and waits for its end. It retries while the app
// is busy.
func (a *app) weigh(id string, length int) error {
	ctx, cancel := context.WithTimeout(a.t.Context(), 10*time.Minute)
	defer cancel()
	for {
		body := io.MultiReader(strings.NewReader(`"`), io.LimitReader(letters{}, int64(length-2)), strings.NewReader(`"`))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+"/api/durabletask/orchestrators/Weighs/"+id, body)
		if err != nil {
			return err
		}
		req.ContentLength = int64(length)
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusConflict {
				break
			}
		}
		if pauseErr := sleep(ctx, time.Second); pauseErr != nil {
			return errors.Join(err, pauseErr)
		}
	}
	for {
		got, err := a.tryWithin(ctx, http.MethodGet, "/api/durabletask/instances/"+id+"?showInput=false", nil)
		if err == nil && got.status == http.StatusOK {
			if want := strconv.Itoa(length - 2); !strings.Contains(got.body, `"output":`+want) {
				return fmt.Errorf("unexpected end: %s", got.body)
			}
			return nil
		}
		if err := sleep(ctx, time.Second); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// letters is an endless text.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// residentMB returns the app's anonymous memory and its total resident memory in MB.
func (a *app) residentMB() (anonymous, all int) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.cmd.Process.Pid))
	if err != nil {
		return 0, 0 // the process has ended, which the callers report
	}
	of := func(field string) int {
		found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(status)
		if found == nil {
			a.t.Fatalf("no %s in %s", field, status)
		}
		kilobytes, _ := strconv.Atoi(string(found[1])) // digits
		return kilobytes >> 10
	}
	return of("RssAnon"), of("VmRSS")
}
