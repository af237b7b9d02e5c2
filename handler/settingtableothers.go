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
		Path: "tracing.traceInputsAndOutputs", FlatName: "traceInputsAndOutputs", Values: boolValue{}, Default: "`false`",
		Description: "writes payloads to the log", NeverEffective: "payloads are never logged",
	},
	{
		Path: "tracing.traceReplayEvents", FlatName: "logReplayEvents", Values: boolValue{}, Default: "`false`",
		Description: "logs replayed events", NeverEffective: "replays are not logged",
	},
	{
		Path: "tracing.allowVerboseLinuxTelemetry", Values: boolValue{}, Default: "`false`",
		Description: "sends more telemetry to the platform", NeverEffective: noTelemetry,
	},
	{
		Path: "tracing.distributedTracingEnabled", Values: boolValue{}, Default: "`false`",
		Description: "traces instances", NeverEffective: noTracing,
	},
	{
		Path: "tracing.distributedTracingProtocol", Values: choiceValue{Names: []string{"HttpCorrelationProtocol", "W3CTraceContext"}},
		Default: "`HttpCorrelationProtocol`", Description: "the naming of traces of version 1", NeverEffective: noTracing,
	},
	{
		Path: "tracing.version", Values: choiceValue{Names: []string{"None", "V1", "V2"}}, Default: "`V1`",
		Description: "the version of the trace format", NeverEffective: noTracing,
	},
}

const (
	noTelemetry = "the app sends nothing to the platform; the log goes to standard output"
	noTracing   = "tracing is on if the app exports traces, and always of version 2"
)

// notificationRows are the settings of Event Grid notifications.
var notificationRows = []settingRow{
	{
		Path: "notifications.eventGrid.topicEndpoint", FlatName: "eventGridTopicEndpoint",
		Values: textValue{
			Resolved: true, EmptyIsUnset: true, Words: "a URL",
			Mismatch: func(value string) string {
				if isTopic(value) {
					return ""
				}
				return "a URL such as https://topic.region.eventgrid.azure.net/api/events"
			},
			Set: func(cfg *Config, value string) { cfg.EventGrid.Endpoint = value },
		},
		Default: "none", Get: func(cfg *Config) any { return cfg.EventGrid.Endpoint },
		Description: "the Event Grid topic to which the app publishes status changes of orchestrations",
	},
	{
		Path: "notifications.eventGrid.keySettingName", FlatName: "eventGridKeySettingName",
		Values: textValue{EmptyIsUnset: true, Mismatch: settings.CheckSettingName, Hidden: true, Words: "the name of a setting", Set: func(cfg *Config, value string) {
			cfg.EventGrid.KeySetting = value
		}},
		Default: "none", Get: func(cfg *Config) any { return cfg.EventGrid.KeySetting },
		Description: "the setting or environment variable with the topic's key",
	},
	{
		Path: "notifications.eventGrid.publishRetryCount", FlatName: "eventGridPublishRetryCount",
		Values:  wholeValue{Low: 0, High: 1000, Set: func(cfg *Config, n int) { cfg.EventGrid.RetryCount = n }},
		Default: "0", Get: func(cfg *Config) any { return cfg.EventGrid.RetryCount },
		Description: "the number of retries after a failed publish",
	},
	{
		Path: "notifications.eventGrid.publishRetryInterval", FlatName: "eventGridPublishRetryInterval",
		Values: spanValue{Low: time.Millisecond, High: time.Hour, Set: func(cfg *Config, d time.Duration) { cfg.EventGrid.RetryInterval = d }}, Default: "`00:05:00`",
		Get:         func(cfg *Config) any { return cmp.Or(cfg.EventGrid.RetryInterval, DefaultEventGridRetryInterval) },
		Description: "the pause before each retry. Other events of the instance wait meanwhile",
	},
	{
		Path: "notifications.eventGrid.publishRetryHttpStatus",
		Values: listValue{Item: settings.Schema{"type": "integer", "minimum": 100, "maximum": 599}, Words: "a list of HTTP statuses", Store: func(cfg *Config, s settings.Setting) bool {
			n, err := strconv.Atoi(strings.TrimSpace(s.Text))
			cfg.EventGrid.RetryStatuses = append(cfg.EventGrid.RetryStatuses, n)
			return err == nil && n >= 100 && n <= 599
		}},
		Default: "none", Get: func(cfg *Config) any { return strings.Trim(fmt.Sprint(cfg.EventGrid.RetryStatuses), "[]") },
		Description: "the HTTP statuses that cause a retry, in addition to network errors and 503",
	},
	{
		Path: "notifications.eventGrid.publishEventTypes", FlatName: "eventGridPublishEventTypes",
		Values: listValue{
			Item:  settings.Schema{"type": "string", "enum": []string{"Started", "Completed", "Failed", "Terminated"}},
			Words: "a list of `Started`, `Completed`, `Failed`, `Terminated`", Store: func(cfg *Config, s settings.Setting) bool {
				status, ok := eventTypes[strings.ToLower(strings.TrimSpace(s.Text))]
				cfg.EventGrid.Statuses = append(cfg.EventGrid.Statuses, status)
				return ok
			},
		},
		Default: "all", Get: func(cfg *Config) any { return cmp.Or(strings.Join(cfg.EventGrid.Statuses, " "), "all") },
		Description: "the status changes that are published",
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
		Path: "useGracefulShutdown", Values: boolValue{}, Default: "`false`",
		Description: "lets running functions complete when the app stops", NeverEffective: "running functions always get time to complete",
	},
	{
		Path: "localRpcEndpointEnabled", Values: boolValue{}, Default: "by language",
		Description: "opens a management endpoint for the worker", NeverEffective: "the app is the worker and has its own",
	},
	{
		Path: "maxGrpcMessageSizeInBytes", Values: wholeValue{Low: 1, High: math.MaxInt32}, Default: "4194304",
		Description: "the largest gRPC message", NeverEffective: noGRPC,
	},
	{
		Path: "grpcHttpClientTimeout", Values: spanValue{Low: time.Second, High: 24 * time.Hour}, Default: "`00:01:40`",
		Description: "the timeout of a gRPC call", NeverEffective: noGRPC,
	},
}

const noGRPC = "the app has no gRPC endpoint"
