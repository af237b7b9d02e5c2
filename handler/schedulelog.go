package handler

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// logStart logs that an instance is to begin, as .NET's client does
// (WebJobs.Extensions.DurableTask/ContextImplementations/DurableClient.cs,
// StartNewAsync).
func (c outageClient) logStart(ctx context.Context, m provider.TaskMessage) {
	start, ok := m.Event.(*history.ExecutionStarted)
	if !ok || !c.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	c.log.LogAttrs(ctx, slog.LevelDebug, "a function is scheduled", slog.String("event", "FunctionScheduled"),
		slog.String("instanceId", start.Instance.InstanceID), slog.String("executionId", start.Instance.ExecutionID),
		slog.String("name", start.Name), slog.String("functionType", "Orchestrator"), slog.String("reason", "NewInstance"))
}

// logSignal logs that an entity is to perform an operation (DurableClient.cs,
// SignalEntityAsyncInternal). Events that come to orchestrations are logged when
// they have come.
func (c outageClient) logSignal(ctx context.Context, m provider.TaskMessage) {
	e, ok := m.Event.(*history.EventRaised)
	if !ok || !c.log.Enabled(ctx, slog.LevelDebug) || e.Input == nil || !strings.HasPrefix(e.Name, "op") {
		return
	}
	name, isEntity := strings.CutPrefix(m.Target.InstanceID, "@")
	name, _, _ = strings.Cut(name, "@")
	var request struct {
		Operation string `json:"op"`
	}
	if !isEntity || json.Unmarshal([]byte(*e.Input), &request) != nil {
		return
	}
	c.log.LogAttrs(ctx, slog.LevelDebug, "a function is scheduled", slog.String("event", "FunctionScheduled"),
		slog.String("instanceId", m.Target.InstanceID), slog.String("name", name), slog.String("functionType", "Entity"),
		slog.String("operation", request.Operation), slog.String("reason", "EntitySignal:"+request.Operation))
}
