package eventgrid

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
)

// The Close method of a test server closes idle connections of http.DefaultTransport, and that can break requests
// of tests that run in parallel. So the variable hides the method for it.
func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

// A topic answers in place of Event Grid.
type topic struct {
	mu      sync.Mutex
	bodies  []string
	answers []int // statuses, 0 for a broken connection; then 200
	block   chan struct{}
}

func (p *topic) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	if p.block != nil {
		select {
		case <-p.block:
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, string(body))
	status := http.StatusOK
	if len(p.answers) > 0 {
		status, p.answers = p.answers[0], p.answers[1:]
	}
	if status == 0 {
		return nil, errors.New("connection reset")
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("{}")), Request: req}, nil
}

func (p *topic) got() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bodies
}

// start runs a publisher in the current bubble until stop is called.
func start(cfg Config) (p *Publisher, stop func()) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	p = New(cfg)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run(ctx)
	}()
	return p, func() {
		cancel()
		<-done
	}
}

// The payload has the members of .NET in the same order
// (WebJobs.Extensions.DurableTask/EventGridLifeCycleNotificationHelper.cs).
func TestPublisher_SendsTheSamePayloadAsDotNet(t *testing.T) {
	got := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got <- fmt.Sprintf("%s %s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Aeg-Sas-Key"), r.Header.Get("Content-Type"), body)
	}))
	defer server.Close()
	p, stop := start(Config{Endpoint: server.URL + "/api/events", Key: "secret"})
	defer stop()
	p.Publish(Event{Hub: "Hub", Function: "Order", InstanceID: "42", Status: Failed, Reason: "it broke"})
	want := regexp.MustCompile(`^POST /api/events secret application/json; charset=utf-8 ` +
		`\[\{"id":"[0-9a-f-]{36}","topic":null,"subject":"durable/orchestrator/Failed",` +
		`"data":\{"hubName":"Hub","functionName":"Order","instanceId":"42","reason":"it broke","runtimeStatus":"Failed"\},` +
		`"eventType":"orchestratorEvent","eventTime":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z","metadataVersion":null,"dataVersion":"1.0"\}\]$`)
	if line := <-got; !want.MatchString(line) {
		t.Errorf("Event Grid got %s", line)
	}
}

func TestPublisher_RetriesAsConfigured(t *testing.T) {
	for _, test := range []struct {
		name    string
		retries int
		answers []int
		want    int
	}{
		{"not at all", 0, []int{503, 200}, 1},
		{"after 503", 2, []int{503, 503, 200}, 3},
		{"after a broken connection", 1, []int{0, 200}, 2},
		{"after a status that is named", 1, []int{429, 200}, 2},
		{"not after another", 5, []int{400, 200}, 1},
		{"until it is enough", 2, []int{503, 503, 503, 503}, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				topic := &topic{answers: test.answers}
				p, stop := start(Config{
					Endpoint: "http://topic", RetryCount: test.retries, RetryInterval: time.Minute, RetryStatuses: []int{429}, Transport: topic,
				})
				p.Publish(Event{InstanceID: "i", Status: Running})
				time.Sleep(time.Hour)
				stop()
				if n := len(topic.got()); n != test.want {
					t.Errorf("%d attempts, want %d", n, test.want)
				}
				ids := map[string]bool{}
				for _, body := range topic.got() {
					ids[regexp.MustCompile(`"id":"[^"]*"`).FindString(body)] = true
				}
				if len(ids) != 1 {
					t.Errorf("the attempts have %d IDs", len(ids))
				}
			})
		})
	}
}

func TestPublisher_NeverDelaysPublish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		topic := &topic{block: make(chan struct{})}
		p, stop := start(Config{Endpoint: "http://topic", Transport: topic, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		began := time.Now()
		for range 1000 {
			p.Publish(Event{InstanceID: "i", Status: Running})
		}
		if waited := time.Since(began); waited != 0 {
			t.Errorf("publishing took %v", waited)
		}
		synctest.Wait()
		if n := p.Dropped(); n < 1000-laneCapacity-1 || n >= 1000 {
			t.Errorf("%d of 1000 were dropped", n)
		}
		close(topic.block)
		synctest.Wait()
		stop()
		if n := int64(len(topic.got())) + p.Dropped(); n != 1000 {
			t.Errorf("%d were sent or counted as dropped", n)
		}
		if n := strings.Count(log.String(), "dropping events"); n != 1 {
			t.Errorf("dropping was logged %d times:\n%s", n, &log)
		}
	})
}

func TestPublisher_KeepsTheOrderOfAnInstanceAndSendsOnlyConfiguredStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := &topic{answers: []int{503}}
		p, stop := start(Config{
			Endpoint: "http://topic", Transport: topic, RetryCount: 1, RetryInterval: time.Minute, Statuses: []string{Running, Completed},
		})
		for _, status := range []string{Running, Failed, Completed} {
			p.Publish(Event{InstanceID: "i", Status: status})
		}
		time.Sleep(time.Hour)
		stop()
		var subjects []string
		for _, body := range topic.got() {
			subjects = append(subjects, regexp.MustCompile(`orchestrator/\w+`).FindString(body))
		}
		if got := strings.Join(subjects, " "); got != "orchestrator/Running orchestrator/Running orchestrator/Completed" {
			t.Errorf("published %s", got)
		}
	})
}

func TestPublisher_SendsRemainingEventsWhenItStopsWithATimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		topic := &topic{answers: []int{503}}
		p, stop := start(Config{Endpoint: "http://topic", Transport: topic, RetryCount: 3, RetryInterval: time.Hour})
		for range 5 {
			p.Publish(Event{InstanceID: "i", Status: Running})
		}
		synctest.Wait()
		began := time.Now()
		stop()
		if n := len(topic.got()); n != 6 {
			t.Errorf("%d attempts, want one that fails and five", n)
		}
		if took := time.Since(began); took > 2*lastTime {
			t.Errorf("stopping took %v", took)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, stop := start(Config{Endpoint: "http://topic", Transport: &topic{block: make(chan struct{})}})
		for range 5 {
			p.Publish(Event{InstanceID: "i", Status: Running})
		}
		synctest.Wait()
		began := time.Now()
		stop()
		if took := time.Since(began); took > 2*lastTime {
			t.Errorf("stopping took %v", took)
		}
		if p.Dropped() == 0 {
			t.Error("events that were not sent do not count as dropped")
		}
	})
}
