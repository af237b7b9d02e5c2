package simulated_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"html"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// tallied is an entity that counts.
type tallied int

func (n *tallied) Add(_ *durable.EntityContext, by int) (int, error) {
	*n += tallied(by)
	return int(*n), nil
}

// move calls and signals two entities, and then calls them while they are locked.
func move(ctx *durable.Context, _ int) (string, error) {
	const a, b = durable.EntityKey[tallied]("a"), durable.EntityKey[tallied]("b")
	if _, err := durable.CallEntity(ctx, a, (*tallied).Add, 1).Await(); err != nil {
		return "", err
	}
	durable.SignalFrom(ctx, b, (*tallied).Add, 1)
	unlock := durable.LockEntities(ctx, a, b)
	defer unlock()
	for _, key := range []durable.EntityKey[tallied]{a, b} {
		if _, err := durable.CallEntity(ctx, key, (*tallied).Add, 1).Await(); err != nil {
			return "", err
		}
	}
	return "moved", nil
}

// dotnetHub makes the worker of a hub behave like a .NET worker. The messages of an entity's batch
// are visible before its state is stored, and the state does not list them. The worker ignores the
// markers of steps, and the message that wakes an instance with steps is a GenericEvent like any other.
type dotnetHub struct{ provider.Provider }

func (h dotnetHub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	item, err := h.Provider.NextOrchestration(ctx)
	if err == nil {
		item.Session = dotnetSession{item.Session}
		item.History = slices.DeleteFunc(slices.Clone(item.History), func(e history.Event) bool {
			_, isMarker := history.StepStartOf(e)
			return isMarker
		})
		for i := range item.Messages {
			if e := item.Messages[i].Event; item.Messages[i].WakesSteps() {
				item.Messages[i].Event = &history.GenericEvent{Header: *e.Head()}
			}
		}
	}
	return item, err
}

type dotnetSession struct{ provider.Session }

func (s dotnetSession) Commit(ctx context.Context, cp *provider.Checkpoint) error {
	cp.SendLast, cp.HideUntilDeleted = false, false
	for _, e := range cp.NewEvents {
		if e, isStart := e.(*history.ExecutionStarted); isStart && e.Input != nil {
			e.Input = new(stateWithoutOurs(*e.Input))
		}
	}
	return s.Session.Commit(ctx, cp)
}

// dotnet is a transport that hides everything that .NET ignores. With it, a worker identifies the
// messages that an entity consumed only by .NET's sorter. It knows neither the outbox nor the
// batches of entities, and chooses new IDs for requests, because histories do not contain them.
type dotnet struct{ watched }

func (d dotnet) Do(req *http.Request) (*http.Response, error) {
	resp, err := d.watched.Do(req)
	if err != nil || resp.Body == nil {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	switch {
	case strings.Contains(req.URL.Query().Get("$filter"), pendingFilter):
		body = []byte(`{"value":[]}`) // .NET does not search for lost starts
	case strings.Contains(req.URL.Path, "SimHistory"):
		body = withoutOurs(body)
	case strings.HasSuffix(req.URL.Path, "/messages"):
		body = messageText.ReplaceAllFunc(body, func(text []byte) []byte {
			var out bytes.Buffer
			_ = xml.EscapeText(&out, ourMembers.ReplaceAll([]byte(html.UnescapeString(string(text))), nil))
			return bytes.ReplaceAll(bytes.ReplaceAll(out.Bytes(), []byte("&lt;MessageText&gt;"), []byte("<MessageText>")),
				[]byte("&lt;/MessageText&gt;"), []byte("</MessageText>"))
		})
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return resp, nil
}

// pendingFilter is part of the queries for pending instances.
const pendingFilter = "RuntimeStatus eq 'Pending' and "

var (
	messageText = regexp.MustCompile(`<MessageText>[^<]*</MessageText>`)
	// ourMembers matches members in JSON and in JSON strings within JSON.
	ourMembers = regexp.MustCompile(`,\\*"(EntityBatch|origin)\\*":\\*"[^"\\]*\\*"`)
)

// withoutOurs returns the response to a history query without the columns and members that .NET
// ignores.
func withoutOurs(body []byte) []byte {
	var answer map[string]any
	if json.Unmarshal(body, &answer) != nil {
		return body // the response to a transaction
	}
	rows, isList := answer["value"].([]any)
	if !isList {
		rows = []any{answer}
	}
	for _, row := range rows {
		row := row.(map[string]any)
		delete(row, "EntityBatches")
		input, _ := row["Input"].(string)
		switch row["EventType"] {
		case "EventSent":
			delete(row, "Input")
		case "EventRaised":
			row["Input"] = string(ourMembers.ReplaceAll([]byte(input), nil))
		case "ExecutionStarted":
			row["Input"] = stateWithoutOurs(input)
		}
	}
	stripped, err := json.Marshal(answer)
	if err != nil {
		return body
	}
	return stripped
}

// stateWithoutOurs returns an entity's state without the members that .NET ignores. It returns
// other inputs unchanged.
func stateWithoutOurs(input string) string {
	var state map[string]any
	if json.Unmarshal([]byte(input), &state) != nil || state["sorter"] == nil {
		return input
	}
	for _, member := range []string{"memory", "outbox", "lockId", "lockOrigin"} {
		delete(state, member)
	}
	forgetIDs(state["sorter"].(map[string]any))
	stripped, _ := json.Marshal(state)
	return string(ourMembers.ReplaceAll(stripped, nil))
}

// forgetIDs reduces a sorter to the members that .NET has: the last timestamp per sender, up to
// which .NET discards all messages.
func forgetIDs(sorter map[string]any) {
	senders, _ := sorter["ReceivedFromInstance"].(map[string]any)
	for _, sender := range senders {
		maps.DeleteFunc(sender.(map[string]any), func(member string, _ any) bool {
			return !slices.Contains([]string{"Last", "ExecutionId", "Buffered"}, member)
		})
	}
}
