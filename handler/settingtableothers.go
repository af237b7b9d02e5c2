package handler

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/eventgrid"
)

// tracingRows say what is told of what runs.
var tracingRows = []settingRow{
	{
		path: "tracing.traceInputsAndOutputs", flat: "traceInputsAndOutputs", values: boolValue{}, initial: "`false`",
		does: "puts payloads into the log", inert: "payloads are never logged",
	},
	{
		path: "tracing.traceReplayEvents", flat: "logReplayEvents", values: boolValue{}, initial: "`false`",
		does: "logs what is replayed", inert: "replays are not logged",
	},
	{
		path: "tracing.allowVerboseLinuxTelemetry", values: boolValue{}, initial: "`false`",
		does: "sends more telemetry to the platform", inert: noTelemetry,
	},
	{
		path: "tracing.distributedTracingEnabled", values: boolValue{}, initial: "`false`",
		does: "traces instances", inert: noTracing,
	},
	{
		path: "tracing.distributedTracingProtocol", values: choiceValue{names: []string{"HttpCorrelationProtocol", "W3CTraceContext"}},
		initial: "`HttpCorrelationProtocol`", does: "how traces of version 1 are named", inert: noTracing,
	},
	{
		path: "tracing.version", values: choiceValue{names: []string{"None", "V1", "V2"}}, initial: "`V1`",
		does: "which kind of traces there are", inert: noTracing,
	},
}

const (
	noTelemetry = "nothing is sent to the platform: what is logged goes to standard output"
	noTracing   = "tracing is on when the environment names an OTLP endpoint (`OTEL_EXPORTER_OTLP_ENDPOINT`), and of version 2"
)

// notificationRows are about telling Event Grid of instances.
var notificationRows = []settingRow{
	{
		path: "notifications.eventGrid.topicEndpoint", flat: "eventGridTopicEndpoint",
		values: textValue{
			resolved: true, emptyIsUnset: true, words: "a URL",
			must: func(value string) string {
				if isTopic(value) {
					return ""
				}
				return "a URL such as https://topic.region.eventgrid.azure.net/api/events"
			},
			set: func(cfg *Config, value string) { cfg.EventGrid.Endpoint = value },
		},
		initial: "none", get: func(cfg *Config) any { return cfg.EventGrid.Endpoint },
		does: "the Event Grid topic that is told when orchestrations begin and end, see Event Grid below",
	},
	{
		path: "notifications.eventGrid.keySettingName", flat: "eventGridKeySettingName",
		values: textValue{emptyIsUnset: true, must: mustBeSettingName, hidden: true, words: "the name of a setting", set: func(cfg *Config, value string) {
			cfg.EventGrid.KeySetting = value
		}},
		initial: "none", get: func(cfg *Config) any { return cfg.EventGrid.KeySetting },
		does: "the setting, an environment variable, that has the topic's key",
	},
	{
		path: "notifications.eventGrid.publishRetryCount", flat: "eventGridPublishRetryCount",
		values:  wholeValue{low: 0, high: 1000, set: func(cfg *Config, n int) { cfg.EventGrid.RetryCount = n }},
		initial: "0", get: func(cfg *Config) any { return cfg.EventGrid.RetryCount },
		does: "how often an event is sent again that the topic did not take",
	},
	{
		path: "notifications.eventGrid.publishRetryInterval", flat: "eventGridPublishRetryInterval",
		values: spanValue{low: time.Millisecond, high: time.Hour, set: func(cfg *Config, d time.Duration) { cfg.EventGrid.RetryInterval = d }}, initial: "`00:05:00`",
		get:  func(cfg *Config) any { return cmp.Or(cfg.EventGrid.RetryInterval, DefaultEventGridRetryInterval) },
		does: "the pause before that. Other events of the instance wait meanwhile",
	},
	{
		path: "notifications.eventGrid.publishRetryHttpStatus",
		values: listValue{item: settingSchema{"type": "integer", "minimum": 100, "maximum": 599}, words: "a list of HTTP statuses", each: func(cfg *Config, s setting) bool {
			n, err := strconv.Atoi(strings.TrimSpace(s.text))
			cfg.EventGrid.RetryStatuses = append(cfg.EventGrid.RetryStatuses, n)
			return err == nil && n >= 100 && n <= 599
		}},
		initial: "none", get: func(cfg *Config) any { return strings.Trim(fmt.Sprint(cfg.EventGrid.RetryStatuses), "[]") },
		does: "after which answers an event is sent again, besides errors of the network and 503",
	},
	{
		path: "notifications.eventGrid.publishEventTypes", flat: "eventGridPublishEventTypes",
		values: listValue{
			item:  settingSchema{"type": "string", "enum": []string{"Started", "Completed", "Failed", "Terminated"}},
			words: "a list of `Started`, `Completed`, `Failed`, `Terminated`", each: func(cfg *Config, s setting) bool {
				status, ok := eventTypes[strings.ToLower(strings.TrimSpace(s.text))]
				cfg.EventGrid.Statuses = append(cfg.EventGrid.Statuses, status)
				return ok
			},
		},
		initial: "all", get: func(cfg *Config) any { return cmp.Or(strings.Join(cfg.EventGrid.Statuses, " "), "all") },
		does: "what the topic is told of",
	},
}

// eventTypes are the statuses that event types stand for.
var eventTypes = map[string]string{
	"started": eventgrid.Running, "running": eventgrid.Running, "completed": eventgrid.Completed,
	"failed": eventgrid.Failed, "terminated": eventgrid.Terminated,
}

// otherRows are settings of parts of the extension that there are none of here.
var otherRows = []settingRow{
	{
		path: "useGracefulShutdown", values: boolValue{}, initial: "`false`",
		does: "lets running functions come to an end when the app stops", inert: "that is always so",
	},
	{
		path: "localRpcEndpointEnabled", values: boolValue{}, initial: "by language",
		does: "opens a management endpoint for the worker", inert: "the app is the worker and has its own",
	},
	{
		path: "maxGrpcMessageSizeInBytes", values: wholeValue{low: 1, high: math.MaxInt32}, initial: "4194304",
		does: "how long a gRPC message may be", inert: noGRPC,
	},
	{
		path: "grpcHttpClientTimeout", values: spanValue{low: time.Second, high: 24 * time.Hour}, initial: "`00:01:40`",
		does: "how long a gRPC call may take", inert: noGRPC,
	},
}

const noGRPC = "there is no gRPC endpoint"
