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

// An EventGridConfig configures the publication of orchestrations' status changes to an
// Event Grid topic. The zero value publishes nothing.
type EventGridConfig struct {
	// Endpoint is the topic's URL. Empty turns publication off.
	Endpoint string

	// Key is the topic's key, KeySetting the name of the setting that has it.
	Key, KeySetting string

	// Statuses to publish: Running, Completed, Failed, Terminated. Empty means all.
	Statuses []string

	// RetryCount is the number of retries of an event, after errors of the network,
	// status 503 and RetryStatuses. RetryInterval is the pause before each, default
	// 5 minutes.
	RetryCount    int
	RetryInterval time.Duration
	RetryStatuses []int

	// Transport carries the requests. Default: [http.DefaultTransport].
	Transport http.RoundTripper
}

// DefaultEventGridRetryInterval is the pause before an event is sent again.
const DefaultEventGridRetryInterval = 5 * time.Minute

// The paths of settings that depend on each other.
const (
	topicEndpointPath = settings.DurableTaskPath + ".notifications.eventGrid.topicEndpoint"
	topicKeyPath      = settings.DurableTaskPath + ".notifications.eventGrid.keySettingName"
)

// isTopic reports whether a text is the URL of a topic.
func isTopic(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http")
}

// findTopicKey finds the key of the topic, if there is one. Source is where the topic's
// setting comes from (WebJobs.Extensions.DurableTask/EventGridLifeCycleNotificationHelper.cs,
// the constructor).
func (c *EventGridConfig) findTopicKey(vars settings.Variables, source string) error {
	if c.Endpoint == "" {
		return nil
	}
	if c.KeySetting == "" {
		return fmt.Errorf("%s is given, but not %s, the name of the setting that has the topic's key (%s)", topicEndpointPath, topicKeyPath, source)
	}
	key, ok := vars.Lookup(c.KeySetting)
	if !ok || strings.TrimSpace(key) == "" {
		return fmt.Errorf("%s names the setting %s, which is not set; it must be the topic's key", topicKeyPath, c.KeySetting)
	}
	c.Key = strings.TrimSpace(key)
	return nil
}

// startNotifications makes cfg's worker publish status changes, if there is a topic. The
// returned function sends them until its context ends.
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
