package console

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
	"golang.org/x/sync/errgroup"
)

// measured answers a request. It fails the test if the answer exceeds most bytes or allocates more than
// garbage bytes. It logs the time.
func (a *hubApp) measured(path string, most, garbage int) string {
	a.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	body := a.part(path)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	made := int(after.TotalAlloc - before.TotalAlloc)
	a.Logf("%-70.70s %8v %8s, %8s allocated", path, took.Round(time.Millisecond), sizeOf(len(body)), sizeOf(made))
	if len(body) > most || made > garbage {
		a.Errorf("%s has %d bytes and allocates %d, want at most %d and %d", path, len(body), made, most, garbage)
	}
	return body
}

// many is the number of instances of a large hub. A page must cost as much as with a few instances.
func many() int {
	if raceEnabled {
		return 5_000
	}
	return 100_000
}

func TestInstances_APageCostsTheSameInAHubOfAnySize(t *testing.T) {
	a := newHubApp(t, usual()...)
	var group errgroup.Group
	var next atomic.Int64
	for range 64 {
		group.Go(func() error {
			for {
				n := int(next.Add(1))
				if n > many() {
					return nil
				}
				id := durable.InstanceID(fmt.Sprintf("i-%06d", n))
				if _, err := a.client.StartByName(t.Context(), "Quick", nil, id, durable.StartAt(time.Now().Add(time.Hour))); err != nil {
					return err
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"instances", "instances?size=500", "instances?prefix=i-004", "instances?createdFrom=2020-01-01&status=Pending", "instance?id=i-000001"} {
		page := a.measured(path, 600<<10, 24<<20)
		if next := follow(page, nextPage); next != "" {
			a.measured(next, 600<<10, 24<<20)
		}
	}
	// These requests read all instances but hold only a few at a time.
	a.measured("instances?name=Nobody", 100<<10, 2<<10*many())
	a.measured("instances?tag=none", 100<<10, 4<<10*many())
	w := a.post("instances/preview", url.Values{"action": {"terminate"}, "scope": {"filter"}})
	if w.Code != http.StatusOK || w.Body.Len() > 100<<10 {
		t.Errorf("the preview: %d, %d bytes", w.Code, w.Body.Len())
	}
	t.Log(attribute(w.Body.String(), `<p><b>([^.]*)`))
}

func TestInstance_PartsOfALongHistoryAreSmall(t *testing.T) {
	processtest.SkipInShortRuns(t)
	const sent = 50_000
	a := newHubApp(t, durable.Orchestrator("Sends", func(ctx *durable.Context, _ durable.Void) (string, error) {
		for range sent {
			if err := durable.Event[string]("Ping").RaiseFrom(ctx, "nobody", "hello"); err != nil {
				return "", err
			}
		}
		return durable.Event[string]("Go").Wait(ctx).Await()
	}))
	a.start("Sends", "i")
	patience.Until(t, "the instance sends all events", func() bool {
		h, err := a.client.History(t.Context(), "i")
		if err != nil {
			t.Fatal(err)
		}
		return len(h) >= sent
	})
	a.measured("instance?id=i", 100<<10, 8<<20)
	timeline := a.measured("instance/timeline?id=i", 400<<10, 200<<20)
	if !strings.Contains(timeline, "of 50000 actions") {
		t.Errorf("the timeline does not have all actions: %.2000s", timeline)
	}
	zoomed := a.measured(follow(timeline, `hx-get="([^"]+from=[^"]+)">Zoom in`), 400<<10, 200<<20)
	if !strings.Contains(zoomed, "50000 in total") && !strings.Contains(zoomed, "of 50000 actions") { // all steps in one window
		t.Errorf("a part of the timeline: %.2000s", zoomed)
	}
	second := a.measured(follow(timeline, `hx-get="([^"]+row=200[^"]*)"`), 400<<10, 200<<20)
	if !strings.Contains(second, "201 to 400 of 50000 actions") {
		t.Errorf("the second page of the timeline: %.2000s", second)
	}
	events := a.measured("instance/history?id=i", 400<<10, 200<<20)
	last := a.measured(follow(events, `hx-get="([^"]+)"[^>]*>Last<`), 400<<10, 200<<20)
	if rows := strings.Count(last, `<tr id="event-`); rows == 0 || rows > eventsPerPage {
		t.Errorf("the last page has %d rows", rows)
	}
	a.measured(follow(last, `hx-get="([^"]+field=Input[^"]*)"`), 4<<10, 200<<20)
	a.measured("instance/children?id=i", 4<<10, 200<<20)
	a.measured("instance/why?id=i", 4<<10, 800<<20)
}

func TestInstance_ALargePayloadIsNeverInAPage(t *testing.T) {
	const size = 5 << 20
	a := newHubApp(t, usual()...)
	a.await(a.start("Waits", "i"), history.Running)
	if err := a.client.RaiseEvent(t.Context(), "i", "Approval", []byte(`"`+strings.Repeat("<x> ", size/4)+`"`)); err != nil {
		t.Fatal(err)
	}
	a.await("i", history.Completed)
	for _, path := range []string{"instances", "instance?id=i", "instance/status?id=i", "instance/timeline?id=i", "instance/history?id=i", "instance/why?id=i"} {
		a.measured(path, 100<<10, 100<<20)
	}
	output := a.measured("instance/payload?id=i&field=output", 10*maxShown, 100<<20)
	a.measured(follow(a.part("instance/history?id=i"), `<td class="nowrap">EventRaised</td>(?s:.*?)hx-get="([^"]+field=Input[^"]*)"`), 10*maxShown, 100<<20)
	w := a.send(http.MethodGet, follow(output, `href="([^"]+download=1[^"]*)"`), nil, nil)
	if w.Code != http.StatusOK || w.Body.Len() != size+2 {
		t.Errorf("the download: %d, %d bytes", w.Code, w.Body.Len())
	}
}

// Only a few histories are in memory at the same time, even for many requests.
func TestInstance_PartsLimitTheHistoriesInMemory(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	a.await(a.start("Waits", "i"), history.Running)
	for range maxHistories {
		a.console.reading <- struct{}{}
	}
	for _, part := range []string{"why", "timeline", "history", "children", "payload"} {
		ctx, stop := context.WithCancel(t.Context())
		stop() // the browser has disconnected
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1"+base+"/instance/"+part+"?id=i&event=1", nil)
		r.Header.Set("Cookie", a.cookie)
		w := httptest.NewRecorder()
		a.echo.ServeHTTP(w, r)
		if w.Code == http.StatusOK {
			t.Errorf("%s does not wait: %s", part, w.Body)
		}
	}
	for range maxHistories {
		<-a.console.reading
	}
	for _, part := range []string{"why", "timeline", "history", "children"} {
		a.part("instance/" + part + "?id=i")
	}
	if n := len(a.console.reading); n != 0 {
		t.Errorf("%d histories are still in memory", n)
	}
}
