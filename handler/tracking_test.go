package handler

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

// An auditedHub is a hub with tracking records.
type auditedHub struct {
	*fullHub
	records map[string][]provider.TrackingRecord
}

// Tracking returns pages. A continuation is the number of the first record.
func (h *auditedHub) Tracking(_ context.Context, id string, q provider.TrackingQuery) (*provider.TrackingPage, error) {
	first := 0
	if q.Continuation != "" {
		var err error
		if first, err = strconv.Atoi(q.Continuation); err != nil {
			return nil, fmt.Errorf("%q: %w", q.Continuation, provider.ErrContinuation)
		}
	}
	rest := h.records[id][first:]
	page := &provider.TrackingPage{Records: rest[:min(len(rest), q.PageSize)]}
	if len(rest) > q.PageSize {
		page.Continuation = strconv.Itoa(first + q.PageSize)
	}
	return page, h.outage
}

// withAudit gives the app's hub the tracking records of an orchestration that fails.
func withAudit(cfg *Config) {
	head := func(id, second int) history.Header {
		return history.Header{EventID: id, Timestamp: fakeTime.Add(time.Duration(second) * time.Second)}
	}
	none := history.NoEventID
	running, failed := new(`{"OrchestrationStatus":"Running"}`), new(`{"OrchestrationStatus":"Failed"}`)
	events := []history.Event{
		&history.OrchestratorStarted{Header: head(none, 0)},
		&history.ExecutionStarted{Header: head(none, 0), Name: "Greet", Input: new(`{"city":"Oslo"}`)},
		&history.TaskScheduled{Header: head(0, 1), Name: "SayHello"},
		&history.OrchestratorCompleted{Header: head(none, 1)},
		&history.HistoryState{Header: head(none, 1), State: running},
		&history.OrchestratorStarted{Header: head(none, 2)},
		&history.TaskCompleted{Header: head(none, 2), TaskScheduledID: 0, Result: new(`"Hello Os`)},
		&history.ExecutionCompleted{
			Header: head(1, 3), Status: history.Failed,
			Failure: &history.FailureDetails{ErrorType: "GreetingError", ErrorMessage: "it is too long"},
		},
		&history.OrchestratorCompleted{Header: head(none, 3)},
		&history.HistoryState{Header: head(none, 3), State: failed},
	}
	records := make([]provider.TrackingRecord, len(events))
	for i, ev := range events {
		records[i] = provider.TrackingRecord{ExecutionID: "0b6d5b1a", SequenceNumber: i, Event: ev}
	}
	records[6].Shortened = []string{"Result"}
	cfg.Provider = &auditedHub{cfg.Provider.(*fullHub), map[string][]provider.TrackingRecord{"failed": slices.Clip(records)}}
}

func trackingExchanges() []exchange {
	one := managed + "instances/failed/tracking"
	return []exchange{
		{note: "all, with results", method: "GET", target: one + "?showHistoryOutput=true", app: withAudit},
		{note: "without inputs, the first page", method: "GET", target: one + "/?top=4&showInput=false", app: withAudit},
		{note: "the next page", method: "GET", target: one + "?top=3", headers: []string{management.HeaderContinuation, "4"}, app: withAudit},
		{note: "the last page", method: "GET", target: one + "?top=3", headers: []string{management.HeaderContinuation, "7"}, app: withAudit},
		{note: "an unknown page", method: "GET", target: one, headers: []string{management.HeaderContinuation, "x"}, app: withAudit},
		{note: "of an unknown instance", method: "GET", target: managed + "instances/missing/tracking", app: withAudit},
		{note: "a page size that is not valid", method: "GET", target: one + "?top=0", app: withAudit},
		{note: "a hub without tracking", method: "GET", target: one},
	}
}
