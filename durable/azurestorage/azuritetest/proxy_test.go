package azuritetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/google/go-cmp/cmp"
)

// proxied returns a proxy in front of a service that echoes request bodies, and the URL of the
// service at the proxy. served returns the bodies that the service has received.
func proxied(t *testing.T, plan Plan) (p *Proxy, url string, served func() []string) {
	t.Helper()
	var mu sync.Mutex
	var bodies []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		mu.Lock()
		bodies = append(bodies, string(body))
		mu.Unlock()
		if string(body) == "wait" {
			<-r.Context().Done()
			mu.Lock()
			defer mu.Unlock()
			bodies = append(bodies, "the caller disconnected")
			return
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, string(body))
	}))
	t.Cleanup(service.Close)
	p = NewProxy()
	t.Cleanup(p.Stop)
	p.SetPlan(plan)
	url, err := p.Service("echo", service.URL+"/some")
	if err != nil {
		t.Fatal(err)
	}
	return p, url, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), bodies...)
	}
}

// post sends text on a new connection and returns the body of the response.
func post(ctx context.Context, url, text string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(text))
	if err != nil {
		return "", err
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return "", errors.New(resp.Status)
	}
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestProxy_FollowsItsPlan(t *testing.T) {
	long := strings.Repeat("x", 10_000)
	for _, test := range []struct {
		fate   Handling
		text   string
		served []string
		answer bool
	}{
		{Handling{}, "a", []string{"a"}, true},
		{Handling{DeliveryDelay: time.Millisecond, ResponseDelay: time.Millisecond}, "a", []string{"a"}, true},
		{Handling{Fault: Drop}, "a", nil, false},
		{Handling{Fault: DropResponse}, "a", []string{"a"}, false},
		{Handling{Fault: Cut}, "a", []string{"a"}, false},
		{Handling{Fault: Cut}, long, []string{long}, false},
		{Handling{Fault: Twice}, "a", []string{"a", "a"}, true},
		{Handling{Fault: Refuse}, "a", nil, false},
		{Handling{Fault: Abandon, ResponseDelay: 100 * time.Millisecond}, "wait", []string{"wait", "the caller disconnected"}, false},
	} {
		t.Run(fmt.Sprint(test.fate, " of ", len(test.text)), func(t *testing.T) {
			asked := make(chan Call, 10)
			p, url, served := proxied(t, func(call Call) Handling {
				asked <- call
				return test.fate
			})
			got, err := post(t.Context(), url, test.text)
			if test.answer != (err == nil && got == test.text) {
				t.Errorf("response %q, %v; want a response: %v", got, err, test.answer)
			}
			patience.Until(t, fmt.Sprintf("%q arrived", test.served), func() bool { return slices.Equal(test.served, served()) })
			if call, want := <-asked, (Call{"echo", "POST", "/some"}); call != want || len(asked) > 0 {
				t.Errorf("the plan got %s and %d more calls, want only %s", call, len(asked), want)
			}
			if n := p.Faults()[test.fate.Fault]; n != 1 {
				t.Errorf("%d requests had the fault, want 1", n)
			}
		})
	}
}

// A request in flight is delivered even if the caller has disconnected.
func TestProxy_DeliversADelayedRequestAfterTheCallerDisconnects(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan struct{})
	_, url, served := proxied(t, func(Call) Handling {
		leave()
		<-gone
		return Handling{DeliveryDelay: time.Millisecond}
	})
	if _, err := post(ctx, url, "late"); !errors.Is(err, context.Canceled) {
		t.Fatalf("the caller's error is %v, want Canceled", err)
	}
	close(gone)
	patience.Until(t, "the request arrived", func() bool { return len(served()) > 0 })
}

func TestProxy_RejectsConnectionsWhileItIsStopped(t *testing.T) {
	p, url, served := proxied(t, nil)
	for range 2 {
		if _, err := post(t.Context(), url, "there"); err != nil {
			t.Fatal(err)
		}
		p.Stop()
		if _, err := post(t.Context(), url, "away"); err == nil {
			t.Error("a request succeeded while the proxy was stopped")
		}
		if err := p.Restart(); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"there", "there"}, served()); diff != "" {
		t.Errorf("delivered requests (-want +got):\n%s", diff)
	}
}

// A plan gets the same calls of real storage requests as a Counter.
func TestProxy_NamesTheRequestsOfTheSDKs(t *testing.T) {
	p := NewProxy()
	t.Cleanup(p.Stop)
	var mu sync.Mutex
	asked := map[Call]int{}
	p.SetPlan(func(call Call) Handling {
		mu.Lock()
		defer mu.Unlock()
		asked[call]++
		return Handling{}
	})
	connection, err := p.Storage(Start(t))
	if err != nil {
		t.Fatal(err)
	}
	counter := NewCounter(connection, nil)
	counter.CountEmptyPolls = true
	askEverything(t, connection, counter, anyName())
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff(counter.Counts(), asked); diff != "" {
		t.Errorf("calls (-counter +plan):\n%s", diff)
	}
}

func TestWeather_IsTheSameForTheSameSeed(t *testing.T) {
	calls := []Call{{"queue", "PutMessage", "a"}, {"table", "InsertEntity", "b"}}
	forecast := func(seed uint64) (fates []Handling) {
		plan := RandomPlan(seed, 10, time.Second)
		for i := range 1000 {
			fates = append(fates, plan(calls[i%2]))
		}
		return fates
	}
	one, counts, faulty := forecast(1), map[Fault]int{}, 0
	if diff := cmp.Diff(one, forecast(1)); diff != "" {
		t.Errorf("the same seed gives other fates:\n%s", diff)
	}
	if cmp.Equal(one, forecast(2)) {
		t.Error("another seed gives the same fates")
	}
	for _, fate := range one {
		if fate != (Handling{}) {
			faulty++
			counts[fate.Fault]++
		}
		if fate.DeliveryDelay >= time.Second || fate.ResponseDelay >= time.Second {
			t.Errorf("%+v, want less than a second", fate)
		}
	}
	if faulty < 50 || faulty > 200 {
		t.Errorf("%d of 1000 requests have a fault, want about 100", faulty)
	}
	for _, f := range []Fault{NoFault, Drop, DropResponse, Cut, Twice} {
		if counts[f] == 0 {
			t.Errorf("no request has the fault %q", f)
		}
	}
}
