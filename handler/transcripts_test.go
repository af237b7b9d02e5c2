package handler

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

const managed = "/api/durabletask/"

// transcripts returns the exchanges of each file.
func transcripts() map[string][]exchange {
	return map[string][]exchange{
		"start":     startExchanges(),
		"status":    statusExchanges(),
		"list":      listExchanges(),
		"tracking":  trackingExchanges(),
		"why":       whyExchanges(),
		"event":     eventExchanges(),
		"terminate": controlExchanges("terminate"),
		"suspend":   controlExchanges("suspend"),
		"resume":    controlExchanges("resume"),
		"rewind":    rewindExchanges(),
		"restart":   restartExchanges(),
		"purge":     purgeExchanges(),
		"entities":  entityExchanges(),
		"app":       appExchanges(),
		"refused":   refusedExchanges(),
	}
}

func whyExchanges() (all []exchange) {
	for _, id := range append(states(), "full") {
		all = append(all, exchange{note: "of one that is " + id, method: "GET", target: managed + "instances/" + id + "/why"})
	}
	for _, id := range []string{"full", "pending", "missing"} {
		all = append(all, exchange{note: "the history of one that is " + id, method: "GET", target: managed + "instances/" + id + "/history"})
	}
	return all
}

// states returns the IDs of instances in each status, and an ID that does not exist.
func states() []string {
	out := []string{}
	for s := history.Running; s <= history.Suspended; s++ {
		out = append(out, strings.ToLower(s.String()))
	}
	return append(out, "missing")
}

// endsAtOnce makes every started instance end at once.
func endsAtOnce(status history.RuntimeStatus, output string) func(*Config) {
	return func(cfg *Config) {
		cfg.Provider = &endingHub{cfg.Provider.(*fullHub), status, output}
	}
}

type endingHub struct {
	*fullHub
	status history.RuntimeStatus
	output string
}

func (h *endingHub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	if err := h.fullHub.StartInstance(ctx, start, refuse); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	state := h.instances[start.Target.InstanceID]
	state.Status, state.Output = h.status, &h.output
	return nil
}

func startExchanges() []exchange {
	greet := managed + "orchestrators/Greet"
	wait := "?timeout=0.2&pollingInterval=0.05"
	out := []exchange{
		{note: "with an ID and an input", method: "POST", target: greet + "/order-1", body: `{"city": "Oslo"}`},
		{note: "without an ID", method: "POST", target: greet},
		{note: "with a key and a version; the URLs carry the key on", method: "POST", target: greet + "/order-1?code=secret&version=1.2"},
		{note: "with an ID that needs escaping", method: "POST", target: greet + "/my%20id%40home"},
		{note: "at the path of the .NET extension", method: "POST", target: "/runtime/webhooks/durabletask/orchestrators/Greet/order-1"},
		{note: "JSON that is none", method: "POST", target: greet, body: `{"city": `},
		{note: "an ID that cannot be one", method: "POST", target: greet + "/a%2Fb"},
		{note: "an ID in front of which entities have an @", method: "POST", target: greet + "/@a@b"},
		{note: "waiting for less time than between two looks", method: "POST", target: greet + "?timeout=1&pollingInterval=2"},
		{note: "waiting, in vain", method: "POST", target: greet + "/order-1" + wait},
		{note: "waiting for one that completes", method: "POST", target: greet + "/order-1" + wait, app: endsAtOnce(history.Completed, `{"greeting": "Hi"}`)},
		{note: "waiting for one that fails", method: "POST", target: greet + "/order-1" + wait, app: endsAtOnce(history.Failed, "no such city")},
		{
			note: "waiting for one that fails, which is to be an error", method: "POST", app: endsAtOnce(history.Failed, "no such city"),
			target: greet + "/order-1" + wait + "&returnInternalServerErrorOnFailure=true",
		},
		{
			note: "the same without an ID", method: "POST", app: endsAtOnce(history.Failed, "no such city"),
			target: greet + wait + "&returnInternalServerErrorOnFailure=true",
		},
		{note: "waiting for one that completes, without an ID", method: "POST", target: greet + wait, app: endsAtOnce(history.Completed, "1")},
	}
	for _, id := range states() {
		out = append(out, exchange{note: "with the ID of an instance that is " + id, method: "POST", target: greet + "/" + id})
	}
	return out
}

// exampleHub has an instance with all properties.
func exampleHub() *fullHub {
	h := newFullHub()
	h.put("full", history.Completed, func(s *provider.InstanceState) {
		s.Name, s.Version = "MyOrchestrator", "1.2"
		s.Input, s.Output, s.CustomStatus = new(`{"city":"Oslo"}`), new(`[1,2,3]`), new(`"done"`)
	})
	h.put("text", history.Terminated, func(s *provider.InstanceState) { s.Output = new("not needed any more") })
	h.put("error", history.Failed, func(s *provider.InstanceState) { s.Output = new("Orchestrator function 'X' failed: <out> & over") })
	h.histories["full"] = everyEvent()
	return h
}

func statusExchanges() []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: id, method: "GET", target: managed + "instances/" + id})
	}
	one := func(note, target string) {
		out = append(out, exchange{note: note, method: "GET", target: managed + "instances/" + target, hub: exampleHub})
	}
	one("with all that there is", "full")
	one("without its input", "full?showInput=False")
	one("with its history", "full?showHistory=true")
	one("with its history and the results in it", "full?showHistory=true&showHistoryOutput=true")
	one("with its history, without inputs", "full?showHistory=true&showInput=false")
	one("one that has not begun has no history yet", "pending?showHistory=true")
	one("an output that is not JSON", "text")
	one("a failure, which is an answer", "error")
	one("a failure that is to be an error", "error?returnInternalServerErrorOnFailure=true")
	one("what a client keeps asking while it runs", "running?taskHub=MyHub&connection=Storage&code=k%3D")
	one("in capitals, with a slash at the end", "full/?SHOWINPUT=false")
	return out
}

func listExchanges() []exchange {
	list := managed + "instances"
	return []exchange{
		{note: "all", method: "GET", target: list},
		{note: "the first page", method: "GET", target: list + "/?top=3&showInput=false"},
		{note: "the next page", method: "GET", target: list + "?top=3&showInput=false", headers: []string{"x-ms-continuation-token", provider.EncodeContinuation("failed")}},
		{note: "by status", method: "GET", target: list + "?runtimeStatus=Running,Completed&runtimeStatus=Pending"},
		{note: "by the beginning of their IDs", method: "GET", target: list + "?instanceIdPrefix=c"},
		{note: "by when they were created", method: "GET", target: list + "?createdTimeFrom=2026-01-01T00:00:00.000Z&createdTimeTo=2026-02-01T00:00:00.000Z&top=1"},
		{note: "none", method: "GET", target: list + "?instanceIdPrefix=none"},
		{note: "no page is that small", method: "GET", target: list + "?top=0"},
	}
}

func eventExchanges() []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: "to one that is " + id, method: "POST", target: managed + "instances/" + id + "/raiseEvent/Approve", body: `{"approved": true}`})
	}
	event := managed + "instances/running/raiseEvent/Approve"
	return append(out,
		exchange{note: "without a payload, as the JavaScript client sends it", method: "POST", target: event, headers: []string{"Content-Type", "application/json"}},
		exchange{note: "with a payload that is not JSON", method: "POST", target: event, body: "yes"},
		exchange{note: "with a payload that does not say it is JSON", method: "POST", target: event, body: "1", headers: []string{"Content-Type", "text/plain"}},
		exchange{note: "whose name needs escaping", method: "POST", target: managed + "instances/running/raiseevent/a%2Fb%20c", body: "1"},
		exchange{note: "a payload that is not JSON for one that has ended", method: "POST", target: managed + "instances/completed/raiseEvent/Approve", body: "yes"},
	)
}

func controlExchanges(operation string) []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: operation + " one that is " + id, method: "POST", target: managed + "instances/" + id + "/" + operation + "?reason=because%20of"})
	}
	return append(out, exchange{note: "without a reason", method: "POST", target: managed + "instances/" + map[string]string{
		"terminate": "running", "suspend": "pending", "resume": "suspended", "rewind": "failed", "restart": "completed",
	}[operation] + "/" + strings.ToUpper(operation)})
}

func rewindExchanges() []exchange {
	return append(controlExchanges("rewind"), exchange{
		note: "when what stores the hub cannot", method: "POST", target: managed + "instances/failed/rewind",
		app: func(cfg *Config) { cfg.Provider = cfg.Provider.(*fullHub).fakeHub },
	})
}

func restartExchanges() []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: "one that is " + id, method: "POST", target: managed + "instances/" + id + "/restart"})
	}
	for _, id := range states() {
		out = append(out, exchange{note: "under the same ID, one that is " + id, method: "POST", target: managed + "instances/" + id + "/restart?restartWithNewInstanceId=false"})
	}
	wait := managed + "instances/completed/restart?timeout=0.2&pollingInterval=0.05"
	return append(out,
		exchange{note: "waiting for it to complete", method: "POST", target: wait, app: endsAtOnce(history.Completed, `"again"`)},
		exchange{
			note: "waiting for one that fails, which is to be an error", method: "POST", target: wait + "&restartWithNewInstanceId=false&returnInternalServerErrorOnFailure=true",
			app: endsAtOnce(history.Failed, "again"),
		})
}

func purgeExchanges() []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: "one that is " + id, method: "DELETE", target: managed + "instances/" + id})
	}
	many := managed + "instances?createdTimeFrom=2026-01-01T00:00:00Z"
	return append(out,
		exchange{note: "all that have ended", method: "DELETE", target: many},
		exchange{note: "some of them", method: "DELETE", target: many + "&createdTimeTo=2026-02-01&runtimeStatus=Completed,Failed,Running"},
		exchange{note: "none that have ended match", method: "DELETE", target: many + "&instanceIdPrefix=none"},
		exchange{note: "without a time", method: "DELETE", target: managed + "instances?runtimeStatus=Completed"},
	)
}

var errNoStorage = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
