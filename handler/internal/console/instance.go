package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"golang.org/x/sync/errgroup"
)

var instanceRoutes = []route{
	{method: http.MethodGet, path: "instance", serve: showInstance},
	{method: http.MethodGet, path: "instance/status", serve: showStatus, live: 2 * time.Second},
	{method: http.MethodGet, path: "instance/why", serve: showWhy},
	{method: http.MethodGet, path: "instance/timeline", serve: showTimeline},
	{method: http.MethodGet, path: "instance/children", serve: showChildren},
	{method: http.MethodGet, path: "instance/history", serve: showHistory},
	{method: http.MethodGet, path: "instance/payload", serve: showPart},
	{method: http.MethodPost, path: "instance/act", serve: act},
	{method: http.MethodPost, path: "instance/raise", serve: raise},
}

// instanceID returns the instance ID in the request.
func instanceID(v *visit) durable.InstanceID { return durable.InstanceID(v.value("id")) }

// instanceOf returns the state of the instance in the request.
func instanceOf(v *visit, fetch durable.Fetch) (*durable.InstanceState, error) {
	s, err := v.hub.Client.Status(v.Request().Context(), instanceID(v), fetch)
	if errors.Is(err, durable.ErrInstanceNotFound) {
		return nil, web.AnswerWith(http.StatusNotFound, web.ErrorBody{Message: fmt.Sprintf("There is no instance %q.", instanceID(v))})
	}
	return s, err
}

// maxHistories is the largest number of histories in memory at the same time, over all visits.
const maxHistories = 4

// withHistorySlot calls use, which reads a history, once fewer than [maxHistories] others are in memory.
func withHistorySlot(v *visit, use func(ctx context.Context) error) error {
	ctx := v.Request().Context()
	select {
	case v.console.reading <- struct{}{}:
		defer func() { <-v.console.reading }()
		return use(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// withHistory calls use with the history of the instance in the request. use must not retain it.
func withHistory(v *visit, use func(events []history.Event) error) error {
	return withHistorySlot(v, func(ctx context.Context) error {
		events, err := v.hub.Client.History(ctx, instanceID(v))
		if err == nil && len(events) == 0 {
			_, err = instanceOf(v, durable.Fetch{}) // fails if the instance does not exist
		}
		if err != nil {
			return err
		}
		return use(events)
	})
}

// An instanceView is the data of the page of an instance.
type instanceView struct {
	*durable.InstanceState
	Query   string // identifies the instance
	Actions []action
	Curl    []curlLine
	Custom  shownPayload
}

// ID returns the instance ID.
func (i instanceView) ID() string { return i.Instance.InstanceID }

// Ended reports whether the instance has ended.
func (i instanceView) Ended() bool { return i.Status.IsTerminal() }

// A curlLine is a command that calls the management API.
type curlLine struct{ Does, Command string }

func shownInstance(v *visit, s *durable.InstanceState) instanceView {
	return instanceView{InstanceState: s, Query: instanceQuery(s.Instance.InstanceID), Actions: actionsIn([]history.RuntimeStatus{s.Status}), Custom: showPayload(s.CustomStatus)}
}

// showInstance answers GET instance. Parts that need the history are loaded later.
func showInstance(v *visit) error {
	s, err := instanceOf(v, durable.Fetch{})
	if err != nil {
		return err
	}
	view := shownInstance(v, s)
	view.Curl = curlLines(v, s)
	return v.page("instance", s.Instance.InstanceID, view)
}

// curlLines returns commands for the instance. Path segments are escaped, so they contain no special
// characters of a shell.
func curlLines(v *visit, s *durable.InstanceState) []curlLine {
	base := v.console.front.Origin(v.Request()) + v.console.front.ManagementBases()[0] + "/instances/" + url.PathEscape(s.Instance.InstanceID)
	key := ""
	switch {
	case v.console.cfg.API.Access.Key == "":
	case v.right == management.Write:
		key = ` -H "x-functions-key: $DURABLE_KEY"`
	default:
		key = ` -H "x-functions-key: $DURABLE_READ_KEY"`
	}
	lines := []curlLine{
		{"Status", "curl" + key + " '" + base + "'"},
		{"Reasons for waiting", "curl" + key + " '" + base + "/why'"},
		{"History", "curl" + key + " '" + base + "/history'"},
	}
	if v.right == management.Write {
		lines = append(lines, curlLine{"Raise an event", "curl" + key + " -H 'content-type: application/json' -d '{}' '" + base + "/raiseEvent/NAME'"})
		for _, a := range actions {
			command := "curl -X POST" + key + " '" + base + "/" + a.Name + "'"
			if a.Name == "purge" {
				command = "curl -X DELETE" + key + " '" + base + "'"
			}
			lines = append(lines, curlLine{a.Title(), command})
		}
	}
	return lines
}

// showStatus answers GET instance/status, a part that is updated continuously.
func showStatus(v *visit) error {
	s, err := instanceOf(v, durable.Fetch{})
	if err != nil {
		return err
	}
	return v.part("instance", "status", shownInstance(v, s))
}

// showWhy answers GET instance/why.
func showWhy(v *visit) error {
	return withHistorySlot(v, func(ctx context.Context) error {
		w, err := v.console.cfg.API.Why(ctx, instanceID(v))
		if err != nil {
			return err
		}
		return v.part("instance", "why", w)
	})
}

// A timelineView is the data of the timeline, with other facts from the history.
type timelineView struct {
	*timeline
	Query   string
	Parent  string
	Trace   string // URL
	Failure string
	Events  int
}

// maxReplayed is the largest number of events in a history that is replayed to show awaited events in
// the timeline.
const maxReplayed = 5000

// showTimeline answers GET instance/timeline.
func showTimeline(v *visit) error {
	return withHistory(v, func(events []history.Event) error {
		steps := stepsOf(events)
		view := timelineView{Query: instanceQuery(string(instanceID(v))), Events: len(events)}
		began, end := time.Now().UTC(), time.Now().UTC()
		if start := history.StartOf(events); start != nil {
			began = start.Timestamp
			if start.Parent != nil {
				view.Parent = start.Parent.Instance.InstanceID
			}
			view.Trace = traceURL(v.console.cfg.TraceURL, start)
		}
		if done, ok := lastEvent(events).(*history.ExecutionCompleted); ok {
			end = done.Timestamp
			if done.Failure != nil {
				view.Failure = showPayload(payloadOf(done, "FailureDetails")).Text
			}
		} else if len(events) > 0 && len(events) <= maxReplayed {
			if w, err := v.console.cfg.API.Why(v.Request().Context(), instanceID(v)); err == nil {
				steps = withAwaited(steps, events, w.Reasons)
			}
		}
		view.timeline = drawTimeline(steps, began, end, v.QueryParams())
		return v.part("timeline", "timeline", view)
	})
}

// lastEvent returns the last event of a history other than the start or end of an episode, or nil.
func lastEvent(events []history.Event) history.Event {
	for _, e := range slices.Backward(events) {
		if e.Type() != history.TypeOrchestratorStarted && e.Type() != history.TypeOrchestratorCompleted {
			return e
		}
	}
	return nil
}

// withAwaited adds the events that the instance is waiting for, and the durable steps without a record.
func withAwaited(steps []step, events []history.Event, reasons []durable.Reason) []step {
	for _, r := range reasons {
		kind, began := stepEvent, r.Since
		if r.Kind == durable.ReasonStep {
			kind = stepDurable
			if !r.RunningSince.IsZero() {
				began = r.RunningSince
			}
		}
		if r.Kind != durable.ReasonEvent && r.Kind != durable.ReasonStep || isScheduled(events, r.TaskID) {
			continue
		}
		open := attempt{Begin: began, Outcome: outcomeOpen}
		if failed := failedAttempts(steps, r); failed != nil {
			failed.Attempts = append(failed.Attempts, open)
			continue
		}
		steps = append(steps, step{Kind: kind, Name: r.Name, Position: -1, Attempts: []attempt{open}})
	}
	return steps
}

// isScheduled reports whether a history has the start of an activity or step.
func isScheduled(events []history.Event, id int) bool {
	return slices.ContainsFunc(events, func(e history.Event) bool {
		return e.Type() == history.TypeTaskScheduled && e.Head().EventID == id
	})
}

// failedAttempts returns the durable step whose attempts before the current one have failed, or nil.
func failedAttempts(steps []step, r durable.Reason) *step {
	for i := range slices.Backward(steps) {
		s := &steps[i]
		if s.Kind == stepDurable && s.Name == r.Name && s.Outcome() == outcomeFailed && len(s.Attempts) == r.Attempt-1 {
			return s
		}
	}
	return nil
}

// traceURL returns the URL of the trace of an execution, or "" for an unknown trace.
func traceURL(template string, start *history.ExecutionStarted) string {
	if template == "" || start.ParentTraceContext == nil {
		return ""
	}
	parts := strings.Split(start.ParentTraceContext.TraceParent, "-") // version, trace, span, flags
	if len(parts) < 3 {
		return ""
	}
	return strings.NewReplacer("{traceId}", url.PathEscape(parts[1]), "{spanId}", url.PathEscape(parts[2])).Replace(template)
}

// A child is a child of an instance.
type child struct {
	ID, Name, Query string
	State           *durable.InstanceState // nil if the child does not exist
}

// A childList is a page of children.
type childList struct {
	Children       []child
	First          int // number of the first child, starting at 1
	All            int
	Previous, Next string // queries
}

// From returns the number of the first child, starting at 0.
func (l childList) From() int { return l.First - 1 }

// Last returns the number of the last child, starting at 1.
func (l childList) Last() int { return l.From() + len(l.Children) }

// childrenPerPage is the number of children per page; readConcurrency is the number of concurrent reads.
const (
	childrenPerPage = 50
	readConcurrency = 8
)

// showChildren answers GET instance/children with the children that the execution has started.
func showChildren(v *visit) error {
	first, _ := strconv.Atoi(v.value("from"))
	list := childList{First: max(first, 0) + 1}
	err := withHistory(v, func(events []history.Event) error {
		seen := map[string]bool{}
		for _, e := range events {
			c, ok := e.(*history.SubOrchestrationInstanceCreated)
			if !ok || seen[c.InstanceID] {
				continue
			}
			seen[c.InstanceID] = true
			if list.All++; list.All >= list.First && len(list.Children) < childrenPerPage {
				list.Children = append(list.Children, child{ID: c.InstanceID, Name: c.Name, Query: instanceQuery(c.InstanceID)})
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(v.Request().Context())
	group.SetLimit(readConcurrency)
	for i := range list.Children {
		c := &list.Children[i]
		group.Go(func() error { return c.read(ctx, v.hub.Client) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	to := func(from int) string {
		return url.Values{"id": {string(instanceID(v))}, "from": {strconv.Itoa(from)}}.Encode()
	}
	if list.From() > 0 {
		list.Previous = to(max(0, list.From()-childrenPerPage))
	}
	if list.Last() < list.All {
		list.Next = to(list.Last())
	}
	return v.part("instance", "children", list)
}

// read loads the child's state. It leaves State nil if the child does not exist.
func (c *child) read(ctx context.Context, client *durable.Client) error {
	s, err := client.Status(ctx, durable.InstanceID(c.ID), durable.Fetch{})
	if errors.Is(err, durable.ErrInstanceNotFound) {
		return nil
	}
	c.State = s
	return err
}

// A historyPage is a page of a history.
type historyPage struct {
	Rows           []historyRow
	First          int // number of the first event, starting at 1
	All            int
	Previous, Next string // queries
	Last           string
}

// From returns the number of the first event, starting at 0.
func (p historyPage) From() int { return p.First - 1 }

// End returns the number of the last event, starting at 1.
func (p historyPage) End() int { return p.First + len(p.Rows) - 1 }

// eventsPerPage is the number of events per page.
const eventsPerPage = 200

// showHistory answers GET instance/history with a page of the table.
func showHistory(v *visit) error {
	return withHistory(v, func(events []history.Event) error {
		from, _ := strconv.Atoi(v.value("from"))
		from = min(max(from, 0), max(0, len(events)-1)/eventsPerPage*eventsPerPage)
		page := historyPage{First: from + 1, All: len(events)}
		execution := executionOf(events)
		for i, e := range events[from:min(from+eventsPerPage, len(events))] {
			page.Rows = append(page.Rows, historyRowOf(from+i, e, func(field string) string {
				return url.Values{
					"id": {string(instanceID(v))}, "execution": {execution}, "event": {strconv.Itoa(from + i)}, "field": {field},
				}.Encode()
			}))
		}
		to := func(from int) string {
			return url.Values{"id": {string(instanceID(v))}, "from": {strconv.Itoa(from)}}.Encode()
		}
		if from > 0 {
			page.Previous = to(max(0, from-eventsPerPage))
		}
		if end := from + eventsPerPage; end < len(events) {
			page.Next, page.Last = to(end), to((len(events)-1)/eventsPerPage*eventsPerPage)
		}
		return v.part("instance", "history", page)
	})
}

// executionOf returns the execution ID of a history.
func executionOf(events []history.Event) string {
	if start := history.StartOf(events); start != nil {
		return start.Instance.ExecutionID
	}
	return ""
}

// A payloadView is a payload with a download link.
type payloadView struct {
	shownPayload
	Download string // query
}

// showPart answers GET instance/payload with the first bytes of a payload or, with download=1, all of
// it.
func showPart(v *visit) error {
	text, err := wantedPayload(v)
	if err != nil {
		return err
	}
	if v.value("download") == "" {
		q := v.QueryParams()
		q.Set("download", "1")
		return v.part("instance", "payload", payloadView{showPayload(text), q.Encode()})
	}
	if text == nil {
		text = new(string)
	}
	return v.download(cmp.Or(v.value("field"), "payload"), *text)
}

// errOtherExecution reports that the page shows another execution than the current one.
var errOtherExecution = web.AnswerWith(http.StatusNotFound, web.ErrorBody{Message: "The instance has started a new execution. Load the page again."})

// wantedPayload returns the payload in the request: a field of an event or, without event, of the
// instance.
func wantedPayload(v *visit) (text *string, err error) {
	if event := v.value("event"); event != "" {
		n, err := strconv.Atoi(event)
		if err != nil {
			return nil, web.BadRequest("event is %q; want the number of an event.", event)
		}
		err = withHistory(v, func(events []history.Event) error {
			if n < 0 || n >= len(events) || executionOf(events) != v.value("execution") {
				return errOtherExecution
			}
			text = payloadOf(events[n], v.value("field"))
			return nil
		})
		return text, err
	}
	field := v.value("field")
	s, err := instanceOf(v, durable.Fetch{Input: field == "input", Output: field == "output"})
	if err != nil {
		return nil, err
	}
	switch field {
	case "input":
		return s.Input, nil
	case "output":
		return s.Output, nil
	case "customStatus":
		return s.CustomStatus, nil
	}
	return nil, web.BadRequest("field is %q; want input, output or customStatus.", field)
}
