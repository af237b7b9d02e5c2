// Package eventgrid publishes status changes of orchestrations to an Event Grid topic, like the .NET
// extension (WebJobs.Extensions.DurableTask/EventGridLifeCycleNotificationHelper.cs).
//
// Publishing never delays an orchestration. Events wait in queues. An event for which its queue has no
// room is dropped and counted.
package eventgrid

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Names of the published statuses.
const (
	Running    = "Running"
	Completed  = "Completed"
	Failed     = "Failed"
	Terminated = "Terminated"
)

// Config configures a [Publisher].
type Config struct {
	// Endpoint is the URL of the topic. Key is the key of the topic.
	Endpoint, Key string

	// Statuses lists the statuses to publish. Empty means all.
	Statuses []string

	// RetryCount is the number of retries after a network error, status 503 or a status in
	// RetryStatuses. RetryInterval is the pause before each retry.
	RetryCount    int
	RetryInterval time.Duration
	RetryStatuses []int

	Logger *slog.Logger
	// Transport sends the requests. Default: [http.DefaultTransport].
	Transport http.RoundTripper
}

// An Event reports that an orchestration has reached a status.
type Event struct {
	Hub, Function, InstanceID, Status, Reason string
}

// Events wait in lanes. All events of an instance are in the same lane, so they are sent in order.
const (
	lanes        = 8
	laneCapacity = 250

	// sendTime limits one attempt. lastTime limits the sending of remaining events when the publisher
	// stops.
	sendTime = 30 * time.Second
	lastTime = time.Second
)

// A Publisher publishes events. Create one with [New].
type Publisher struct {
	cfg     Config
	client  *http.Client
	seed    maphash.Seed
	lanes   [lanes]chan queued
	dropped atomic.Int64
	warned  atomic.Bool // a warning about dropped events was logged, or is about to be
}

// A queued event has an ID. All attempts use the same ID, so that receivers can detect duplicates.
type queued struct {
	id    string
	event Event
	at    time.Time
}

// New returns a Publisher. It sends events while [Publisher.Run] runs.
func New(cfg Config) *Publisher {
	p := &Publisher{cfg: cfg, client: &http.Client{Transport: cfg.Transport, Timeout: sendTime}, seed: maphash.MakeSeed()}
	for i := range p.lanes {
		p.lanes[i] = make(chan queued, laneCapacity)
	}
	return p
}

// Publish queues an event and returns at once. If the queue is full, it drops the event.
func (p *Publisher) Publish(e Event) {
	if len(p.cfg.Statuses) > 0 && !slices.Contains(p.cfg.Statuses, e.Status) {
		return
	}
	select {
	case p.lanes[maphash.String(p.seed, e.InstanceID)%lanes] <- queued{uuid.NewString(), e, time.Now()}:
	default:
		n := p.dropped.Add(1)
		if p.warned.CompareAndSwap(false, true) {
			p.cfg.Logger.Warn("Event Grid is too slow or unreachable; dropping events", "dropped", n)
		}
	}
}

// Dropped returns the number of dropped events.
func (p *Publisher) Dropped() int64 { return p.dropped.Load() }

// Run sends events until ctx ends. Then it sends the remaining events, for at most lastTime.
func (p *Publisher) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, lane := range p.lanes {
		all.Go(func() { p.serve(ctx, lane) })
	}
	all.Wait()
	if n := p.Dropped(); n > 0 {
		p.cfg.Logger.Warn("some events were not published to Event Grid", "dropped", n)
	}
}

func (p *Publisher) serve(ctx context.Context, lane <-chan queued) {
	var left []queued
	for ctx.Err() == nil {
		select {
		case q := <-lane:
			if p.deliver(ctx, q) {
				left = append(left, q)
			}
			if len(lane) == 0 && p.warned.CompareAndSwap(true, false) {
				p.cfg.Logger.Info("Event Grid has caught up", "dropped", p.Dropped())
			}
		case <-ctx.Done():
		}
	}
	for {
		select {
		case q := <-lane:
			left = append(left, q)
			continue
		default:
		}
		break
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
	defer cancel()
	for _, q := range left {
		if last.Err() != nil || p.attempt(last, q) {
			p.dropped.Add(1)
		}
	}
}

// deliver sends an event, with retries as configured. If ctx ends while another attempt may still
// deliver the event, it returns left = true.
func (p *Publisher) deliver(ctx context.Context, q queued) (left bool) {
	for n := 0; ; n++ {
		again := p.attempt(ctx, q)
		switch {
		case !again:
			return false
		case ctx.Err() != nil:
			return true
		case n >= p.cfg.RetryCount:
			return false
		}
		pause := time.NewTimer(p.cfg.RetryInterval)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return true
		}
	}
}

// attempt sends an event once. It returns again = true if a retry may succeed.
func (p *Publisher) attempt(ctx context.Context, q queued) (again bool) {
	began := time.Now()
	attrs := []any{
		"taskHub", q.event.Hub, "functionName", q.event.Function, "instanceId", q.event.InstanceID, "state", q.event.Status,
	}
	status, answer, err := p.post(ctx, q)
	attrs = append(attrs, "latencyMs", time.Since(began).Milliseconds())
	switch {
	case err != nil:
		p.cfg.Logger.Error("EventGridNotificationException", append(attrs, "error", err)...)
		return true
	case status < http.StatusMultipleChoices:
		p.cfg.Logger.Debug("EventGridNotificationCompleted", append(attrs, "statusCode", status)...)
		return false
	}
	p.cfg.Logger.Error("EventGridNotificationFailed", append(attrs, "statusCode", status, "details", answer)...)
	return status == http.StatusServiceUnavailable || slices.Contains(p.cfg.RetryStatuses, status)
}

func (p *Publisher) post(ctx context.Context, q queued) (status int, answer string, err error) {
	body, err := json.Marshal([]wireEvent{q.wire()})
	if err != nil {
		return 0, "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.Endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("aeg-sas-key", p.cfg.Key)
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, "", fmt.Errorf("send the event to Event Grid: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1024)) // for the log
	if err != nil {
		return 0, "", fmt.Errorf("read the answer of Event Grid: %w", err)
	}
	return resp.StatusCode, string(text), nil
}

// A wireEvent is the JSON of an event, with the members of .NET in the same order. Event Grid itself
// sets the topic and the metadata version (EventGridLifeCycleNotificationHelper.cs,
// CreateEventGridEvent).
type wireEvent struct {
	ID              string   `json:"id"`
	Topic           *string  `json:"topic"`
	Subject         string   `json:"subject"`
	Data            wireData `json:"data"`
	EventType       string   `json:"eventType"`
	EventTime       string   `json:"eventTime"`
	MetadataVersion *string  `json:"metadataVersion"`
	DataVersion     string   `json:"dataVersion"`
}

type wireData struct {
	HubName       string `json:"hubName"`
	FunctionName  string `json:"functionName"`
	InstanceID    string `json:"instanceId"`
	Reason        string `json:"reason"`
	RuntimeStatus string `json:"runtimeStatus"`
}

func (q queued) wire() wireEvent {
	e := q.event
	return wireEvent{
		ID: q.id, Subject: "durable/orchestrator/" + e.Status, EventType: "orchestratorEvent", DataVersion: "1.0",
		EventTime: q.at.UTC().Format("2006-01-02T15:04:05.9999999Z"),
		Data:      wireData{HubName: e.Hub, FunctionName: e.Function, InstanceID: e.InstanceID, Reason: e.Reason, RuntimeStatus: e.Status},
	}
}
