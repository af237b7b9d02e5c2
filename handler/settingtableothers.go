package handler

import (
	"math"
	"time"
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
		path: "notifications.eventGrid.topicEndpoint", flat: "eventGridTopicEndpoint", values: textValue{resolved: true, words: "a URL"},
		initial: "none", does: "the topic that is told when instances begin and end", inert: noEventGrid,
	},
	{
		path: "notifications.eventGrid.keySettingName", flat: "eventGridKeySettingName", values: textValue{words: "the name of a setting"},
		initial: "none", does: "the setting that has its key", inert: noEventGrid,
	},
	{
		path: "notifications.eventGrid.publishRetryCount", flat: "eventGridPublishRetryCount", values: wholeValue{low: 0, high: 1000}, initial: "0",
		does: "how often telling it is tried again", inert: noEventGrid,
	},
	{
		path: "notifications.eventGrid.publishRetryInterval", flat: "eventGridPublishRetryInterval",
		values: spanValue{low: time.Second, high: time.Hour}, initial: "`00:05:00`",
		does: "the pause before that", inert: noEventGrid,
	},
	{
		path: "notifications.eventGrid.publishRetryHttpStatus", values: listValue{schemaNode{"type": "integer", "minimum": 100, "maximum": 599}, "a list of HTTP statuses"},
		initial: "none", does: "after which answers besides network errors it is tried again", inert: noEventGrid,
	},
	{
		path: "notifications.eventGrid.publishEventTypes", flat: "eventGridPublishEventTypes",
		values:  listValue{schemaNode{"type": "string", "enum": []string{"Started", "Completed", "Failed", "Terminated"}}, "a list of `Started`, `Completed`, `Failed`, `Terminated`"},
		initial: "all", does: "what it is told of", inert: noEventGrid,
	},
}

const noEventGrid = "Event Grid is not told of anything"

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
