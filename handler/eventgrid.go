package handler

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/eventgrid"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// An EventGridConfig configures the publication of orchestrations' status changes to an Event Grid
// topic. The zero value publishes nothing.
type EventGridConfig struct {
	// Endpoint is the URL of the topic. Empty disables the publication.
	Endpoint string

	// Key is the key of the topic. KeySetting is the name of the setting that contains it.
	Key, KeySetting string

	// Statuses lists the status changes to publish: Running, Completed, Failed, Terminated. Empty means
	// all of them.
	Statuses []string

	// RetryCount is the number of retries after a network error, status 503 or a status in
	// RetryStatuses. RetryInterval is the pause before each retry, 5 minutes by default.
	RetryCount    int
	RetryInterval time.Duration
	RetryStatuses []int

	// Transport sends the requests. Default: [http.DefaultTransport].
	Transport http.RoundTripper
}

// DefaultEventGridRetryInterval is the default pause before an event is sent again.
const DefaultEventGridRetryInterval = 5 * time.Minute

// Paths of settings that depend on each other.
const (
	topicEndpointPath = settings.DurableTaskPath + ".notifications.eventGrid.topicEndpoint"
	topicKeyPath      = settings.DurableTaskPath + ".notifications.eventGrid.keySettingName"
)

// isTopic reports whether text is a valid topic URL.
func isTopic(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// findTopicKey reads the key of the topic, if a topic is configured. Source describes the origin of the
// endpoint setting, for errors (WebJobs.Extensions.DurableTask/EventGridLifeCycleNotificationHelper.cs,
// the constructor).
func (c *EventGridConfig) findTopicKey(vars settings.Variables, source string) error {
	if c.Endpoint == "" {
		return nil
	}
	if c.KeySetting == "" {
		return fmt.Errorf("%s is set, but %s is not; set it to the name of the setting that contains the topic's key (%s)", topicEndpointPath, topicKeyPath, source)
	}
	key, ok := vars.Lookup(c.KeySetting)
	if !ok || strings.TrimSpace(key) == "" {
		return fmt.Errorf("%s names the setting %s, which is not set; it must be the topic's key", topicKeyPath, c.KeySetting)
	}
	c.Key = strings.TrimSpace(key)
	return nil
}

// startNotifications makes the worker of cfg publish status changes, if a topic is configured. The
// caller must run the returned function, which sends them until its context ends.
func startNotifications(cfg *Config) (run func(context.Context)) {
	c := cfg.EventGrid
	if c.Endpoint == "" {
		return func(context.Context) {}
	}
	if c.RetryInterval == 0 {
		c.RetryInterval = DefaultEventGridRetryInterval
	}
	p := eventgrid.New(eventgrid.Config{
		Endpoint: c.Endpoint, Key: c.Key, Statuses: c.Statuses, RetryCount: c.RetryCount, RetryInterval: c.RetryInterval,
		RetryStatuses: c.RetryStatuses, Transport: c.Transport, Logger: cfg.Logger,
	})
	hub, others := cfg.Storage.TaskHub, cfg.Worker.Lifecycle
	cfg.Worker.Lifecycle = func(e durable.LifecycleEvent) {
		p.Publish(eventgrid.Event{Hub: hub, Function: e.Name, InstanceID: string(e.InstanceID), Status: e.Status.String(), Reason: e.Reason})
		if others != nil {
			others(e)
		}
	}
	return p.Run
}
