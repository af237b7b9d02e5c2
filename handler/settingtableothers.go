package handler

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/eventgrid"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/settings"
)

// tracingRows are the settings of traces and logs. None has an effect.
var tracingRows = []settingRow{
	{
		Path: "tracing.traceInputsAndOutputs", Flat: "traceInputsAndOutputs", Values: boolValue{}, Initial: "`false`",
		Does: "writes payloads to the log", Inert: "payloads are never logged",
	},
	{
		Path: "tracing.traceReplayEvents", Flat: "logReplayEvents", Values: boolValue{}, Initial: "`false`",
		Does: "logs replayed events", Inert: "replays are not logged",
	},
	{
		Path: "tracing.allowVerboseLinuxTelemetry", Values: boolValue{}, Initial: "`false`",
		Does: "sends more telemetry to the platform", Inert: noTelemetry,
	},
	{
		Path: "tracing.distributedTracingEnabled", Values: boolValue{}, Initial: "`false`",
		Does: "traces instances", Inert: noTracing,
	},
	{
		Path: "tracing.distributedTracingProtocol", Values: choiceValue{Names: []string{"HttpCorrelationProtocol", "W3CTraceContext"}},
		Initial: "`HttpCorrelationProtocol`", Does: "the naming of traces of version 1", Inert: noTracing,
	},
	{
		Path: "tracing.version", Values: choiceValue{Names: []string{"None", "V1", "V2"}}, Initial: "`V1`",
		Does: "the version of the trace format", Inert: noTracing,
	},
}

const (
	noTelemetry = "the app sends nothing to the platform; the log goes to standard output"
	noTracing   = "tracing is on if the app exports traces, and always of version 2"
)

// notificationRows are the settings of Event Grid notifications.
var notificationRows = []settingRow{
	{
		Path: "notifications.eventGrid.topicEndpoint", Flat: "eventGridTopicEndpoint",
		Values: textValue{
			Resolved: true, EmptyIsUnset: true, Words: "a URL",
			Want: func(value string) string {
				if isTopic(value) {
					return ""
				}
				return "a URL such as https://topic.region.eventgrid.azure.net/api/events"
			},
			Set: func(cfg *Config, value string) { cfg.EventGrid.Endpoint = value },
		},
		Initial: "none", Get: func(cfg *Config) any { return cfg.EventGrid.Endpoint },
		Does: "the Event Grid topic to which the app publishes status changes of orchestrations",
	},
	{
		Path: "notifications.eventGrid.keySettingName", Flat: "eventGridKeySettingName",
		Values: textValue{EmptyIsUnset: true, Want: settings.WantSettingName, Hidden: true, Words: "the name of a setting", Set: func(cfg *Config, value string) {
			cfg.EventGrid.KeySetting = value
		}},
		Initial: "none", Get: func(cfg *Config) any { return cfg.EventGrid.KeySetting },
		Does: "the setting or environment variable with the topic's key",
	},
	{
		Path: "notifications.eventGrid.publishRetryCount", Flat: "eventGridPublishRetryCount",
		Values:  wholeValue{Low: 0, High: 1000, Set: func(cfg *Config, n int) { cfg.EventGrid.RetryCount = n }},
		Initial: "0", Get: func(cfg *Config) any { return cfg.EventGrid.RetryCount },
		Does: "the number of retries after a failed publish",
	},
	{
		Path: "notifications.eventGrid.publishRetryInterval", Flat: "eventGridPublishRetryInterval",
		Values: spanValue{Low: time.Millisecond, High: time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.EventGrid.RetryInterval = d }}, Initial: "`00:05:00`",
		Get:  func(cfg *Config) any { return cmp.Or(cfg.EventGrid.RetryInterval, DefaultEventGridRetryInterval) },
		Does: "the pause before each retry. Other events of the instance wait meanwhile",
	},
	{
		Path: "notifications.eventGrid.publishRetryHttpStatus",
		Values: listValue{Item: settings.Schema{"type": "integer", "minimum": 100, "maximum": 599}, Words: "a list of HTTP statuses", Each: func(cfg *Config, s settings.Setting) bool {
			n, err := strconv.Atoi(strings.TrimSpace(s.Text))
			cfg.EventGrid.RetryStatuses = append(cfg.EventGrid.RetryStatuses, n)
			return err == nil && n >= 100 && n <= 599
		}},
		Initial: "none", Get: func(cfg *Config) any { return strings.Trim(fmt.Sprint(cfg.EventGrid.RetryStatuses), "[]") },
		Does: "the HTTP statuses that cause a retry, in addition to network errors and 503",
	},
	{
		Path: "notifications.eventGrid.publishEventTypes", Flat: "eventGridPublishEventTypes",
		Values: listValue{
			Item:  settings.Schema{"type": "string", "enum": []string{"Started", "Completed", "Failed", "Terminated"}},
			Words: "a list of `Started`, `Completed`, `Failed`, `Terminated`", Each: func(cfg *Config, s settings.Setting) bool {
				status, ok := eventTypes[strings.ToLower(strings.TrimSpace(s.Text))]
				cfg.EventGrid.Statuses = append(cfg.EventGrid.Statuses, status)
				return ok
			},
		},
		Initial: "all", Get: func(cfg *Config) any { return cmp.Or(strings.Join(cfg.EventGrid.Statuses, " "), "all") },
		Does: "the status changes that are published",
	},
}

// eventTypes maps event types in lower case to orchestration statuses.
var eventTypes = map[string]string{
	"started": eventgrid.Running, "running": eventgrid.Running, "completed": eventgrid.Completed,
	"failed": eventgrid.Failed, "terminated": eventgrid.Terminated,
}

// otherRows are settings of features of the .NET extension that this app does not have.
var otherRows = []settingRow{
	{
		Path: "useGracefulShutdown", Values: boolValue{}, Initial: "`false`",
		Does: "lets running functions complete when the app stops", Inert: "running functions always get time to complete",
	},
	{
		Path: "localRpcEndpointEnabled", Values: boolValue{}, Initial: "by language",
		Does: "opens a management endpoint for the worker", Inert: "the app is the worker and has its own",
	},
	{
		Path: "maxGrpcMessageSizeInBytes", Values: wholeValue{Low: 1, High: math.MaxInt32}, Initial: "4194304",
		Does: "the largest gRPC message", Inert: noGRPC,
	},
	{
		Path: "grpcHttpClientTimeout", Values: spanValue{Low: time.Second, High: 24 * time.Hour}, Initial: "`00:01:40`",
		Does: "the timeout of a gRPC call", Inert: noGRPC,
	},
}

const noGRPC = "the app has no gRPC endpoint"
