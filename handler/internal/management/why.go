package management

import (
	"net/http"
	"slices"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/statusjson"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// whyAPI implements the operations that explain what instances wait for and return histories.
type whyAPI struct{ *API }

// why answers GET instances/{id}/why.
func (m whyAPI) why(id durable.InstanceID) operation {
	return func(c echo.Context, _ web.Query) error {
		w, err := m.Why(c.Request().Context(), id)
		if err != nil {
			return err
		}
		answer := statusjson.Why{
			InstanceID: w.State.Instance.InstanceID, Name: w.State.Name, RuntimeStatus: w.State.Status.String(),
		}
		for _, r := range w.Reasons {
			answer.Reasons = append(answer.Reasons, reasonJSON(r))
		}
		return web.WriteJSON(c, http.StatusOK, answer)
	}
}

// markRunning marks the reasons whose activities and steps run in this process.
func markRunning(reasons []durable.Reason, running []durable.RunningActivity) {
	for i := range reasons {
		if r := &reasons[i]; r.Kind == durable.ReasonActivity || r.Kind == durable.ReasonStep {
			n := slices.IndexFunc(running, func(a durable.RunningActivity) bool { return a.TaskID == r.TaskID })
			r.RunsHere = new(n >= 0)
			if n >= 0 {
				r.RunningSince = running[n].Since
			}
		}
	}
}

// addHeld inserts the reason why the worker holds an instance back, as the first one. If the worker
// does not run the orchestrator, it also marks the other reasons: their completion does not resume the
// instance.
func addHeld(w *durable.Diagnosis, reason string, by durable.BlockedFunction) {
	if by.Kind == "orchestrator" {
		for i := range w.Reasons {
			r := &w.Reasons[i]
			r.IsNotAwaited = r.IsNotAwaited || r.TaskID >= 0 && r.Kind != durable.ReasonHistoryMismatch || r.Kind == durable.ReasonEvent
		}
	}
	w.Reasons = slices.Insert(w.Reasons, 0, durable.Reason{Kind: durable.ReasonHeldBack, TaskID: -1, Since: by.Since, Detail: reason})
}

func reasonJSON(r durable.Reason) statusjson.Reason {
	reason := statusjson.Reason{
		Kind: string(r.Kind), Text: r.String(), Name: r.Name, Attempt: r.Attempt, Attempts: r.Attempts, HeldBy: string(r.HeldBy),
		Since: timeOrNone(r.Since), Due: timeOrNone(r.Due), Where: r.Where, Stack: r.Stack,
		IsNotAwaited: r.IsNotAwaited, IsOutcomeStored: r.IsOutcomeStored, LastError: r.LastError,
		RunsHere: r.RunsHere, RunningSince: timeOrNone(r.RunningSince),
	}
	if r.TaskID >= 0 {
		reason.TaskID = &r.TaskID
	}
	if p := r.QueuePosition; p != nil {
		reason.QueuePosition = &statusjson.QueuePosition{Owner: p.Owner, MessagesAhead: p.MessagesAhead, IsExact: p.IsExact, StartMissing: p.StartMissing}
		if p.Partition >= 0 {
			reason.QueuePosition.Partition = &p.Partition
		}
	}
	for _, id := range r.InstanceIDs {
		reason.InstanceIDs = append(reason.InstanceIDs, string(id))
	}
	return reason
}

func timeOrNone(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// history answers GET instances/{id}/history with the complete events of the current execution.
func (m whyAPI) history(id durable.InstanceID) operation {
	return func(c echo.Context, _ web.Query) error {
		ctx := c.Request().Context()
		events, err := m.instances.History(ctx, id)
		if err == nil && len(events) == 0 {
			_, err = m.instances.Status(ctx, id, durable.Fetch{})
		}
		if err != nil {
			return err
		}
		text, err := durable.MarshalHistory(events)
		if err != nil {
			return err
		}
		return c.JSONBlob(http.StatusOK, text)
	}
}
