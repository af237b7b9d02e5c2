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
		all = append(all, exchange{note: "of an instance: " + id, method: "GET", target: managed + "instances/" + id + "/why"})
	}
	for _, id := range []string{"full", "pending", "missing"} {
		all = append(all, exchange{note: "the history of an instance: " + id, method: "GET", target: managed + "instances/" + id + "/history"})
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
		{note: "JSON that is not valid", method: "POST", target: greet, body: `{"city": `},
		{note: "an ID that is not valid", method: "POST", target: greet + "/a%2Fb"},
		{note: "an ID that starts with @", method: "POST", target: greet + "/@a@b"},
		{note: "waiting for less than the polling interval", method: "POST", target: greet + "?timeout=1&pollingInterval=2"},
		{note: "waiting until the timeout", method: "POST", target: greet + "/order-1" + wait},
		{note: "waiting for an instance that completes", method: "POST", target: greet + "/order-1" + wait, app: endsAtOnce(history.Completed, `{"greeting": "Hi"}`)},
		{note: "waiting for an instance that fails", method: "POST", target: greet + "/order-1" + wait, app: endsAtOnce(history.Failed, "no such city")},
		{
			note: "waiting for an instance that fails, with an error status", method: "POST", app: endsAtOnce(history.Failed, "no such city"),
			target: greet + "/order-1" + wait + "&returnInternalServerErrorOnFailure=true",
		},
		{
			note: "the same without an ID", method: "POST", app: endsAtOnce(history.Failed, "no such city"),
			target: greet + wait + "&returnInternalServerErrorOnFailure=true",
		},
		{note: "waiting for an instance that completes, without an ID", method: "POST", target: greet + wait, app: endsAtOnce(history.Completed, "1")},
	}
	for _, id := range states() {
		out = append(out, exchange{note: "with the ID of an instance: " + id, method: "POST", target: greet + "/" + id})
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
	one("with all properties", "full")
	one("without its input", "full?showInput=False")
	one("with its history", "full?showHistory=true")
	one("with its history and the results in it", "full?showHistory=true&showHistoryOutput=true")
	one("with its history, without inputs", "full?showHistory=true&showInput=false")
	one("an instance that has not started has no history", "pending?showHistory=true")
	one("an output that is not JSON", "text")
	one("a failure", "error")
	one("a failure, with an error status", "error?returnInternalServerErrorOnFailure=true")
	one("a client polls the status while the instance runs", "running?taskHub=MyHub&connection=Storage&code=k%3D")
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
		{note: "by prefix", method: "GET", target: list + "?instanceIdPrefix=c"},
		{note: "by creation time", method: "GET", target: list + "?createdTimeFrom=2026-01-01T00:00:00.000Z&createdTimeTo=2026-02-01T00:00:00.000Z&top=1"},
		{note: "none", method: "GET", target: list + "?instanceIdPrefix=none"},
		{note: "a page size that is not valid", method: "GET", target: list + "?top=0"},
	}
}

func eventExchanges() []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: "to an instance: " + id, method: "POST", target: managed + "instances/" + id + "/raiseEvent/Approve", body: `{"approved": true}`})
	}
	event := managed + "instances/running/raiseEvent/Approve"
	return append(out,
		exchange{note: "without a payload, as the JavaScript client sends it", method: "POST", target: event, headers: []string{"Content-Type", "application/json"}},
		exchange{note: "with a payload that is not JSON", method: "POST", target: event, body: "yes"},
		exchange{note: "with a payload of another content type", method: "POST", target: event, body: "1", headers: []string{"Content-Type", "text/plain"}},
		exchange{note: "with a name that needs escaping", method: "POST", target: managed + "instances/running/raiseevent/a%2Fb%20c", body: "1"},
		exchange{note: "a payload that is not JSON, to an ended instance", method: "POST", target: managed + "instances/completed/raiseEvent/Approve", body: "yes"},
	)
}

func controlExchanges(operation string) []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: operation + " an instance: " + id, method: "POST", target: managed + "instances/" + id + "/" + operation + "?reason=because%20of"})
	}
	return append(out, exchange{note: "without a reason", method: "POST", target: managed + "instances/" + map[string]string{
		"terminate": "running", "suspend": "pending", "resume": "suspended", "rewind": "failed", "restart": "completed",
	}[operation] + "/" + strings.ToUpper(operation)})
}

func rewindExchanges() []exchange {
	return append(controlExchanges("rewind"), exchange{
		note: "a hub whose storage cannot rewind", method: "POST", target: managed + "instances/failed/rewind",
		app: func(cfg *Config) { cfg.Provider = cfg.Provider.(*fullHub).fakeHub },
	})
}

func restartExchanges() []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: "an instance: " + id, method: "POST", target: managed + "instances/" + id + "/restart"})
	}
	for _, id := range states() {
		out = append(out, exchange{note: "under the same ID, an instance: " + id, method: "POST", target: managed + "instances/" + id + "/restart?restartWithNewInstanceId=false"})
	}
	wait := managed + "instances/completed/restart?timeout=0.2&pollingInterval=0.05"
	return append(out,
		exchange{note: "waiting for it to complete", method: "POST", target: wait, app: endsAtOnce(history.Completed, `"again"`)},
		exchange{
			note: "waiting for an instance that fails, with an error status", method: "POST", target: wait + "&restartWithNewInstanceId=false&returnInternalServerErrorOnFailure=true",
			app: endsAtOnce(history.Failed, "again"),
		})
}

func purgeExchanges() []exchange {
	var out []exchange
	for _, id := range states() {
		out = append(out, exchange{note: "an instance: " + id, method: "DELETE", target: managed + "instances/" + id})
	}
	many := managed + "instances?createdTimeFrom=2026-01-01T00:00:00Z"
	return append(out,
		exchange{note: "all ended instances", method: "DELETE", target: many},
		exchange{note: "some ended instances", method: "DELETE", target: many + "&createdTimeTo=2026-02-01&runtimeStatus=Completed,Failed,Running"},
		exchange{note: "no ended instance matches", method: "DELETE", target: many + "&instanceIdPrefix=none"},
		exchange{note: "without a time", method: "DELETE", target: managed + "instances?runtimeStatus=Completed"},
	)
}

var errNoStorage = &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
