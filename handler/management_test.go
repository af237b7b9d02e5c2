package handler

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/jsontext"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/taskhub"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/google/go-cmp/cmp"
)

// answerText formats the parts of an answer that tests compare.
func answerText(s *Server, method, target, body string, headers ...string) string {
	w := call(s, method, target, body, headers...)
	out := fmt.Sprint(w.Code)
	for _, name := range []string{"Location", "Retry-After", "Content-Type"} {
		if value := w.Header().Get(name); value != "" {
			out += fmt.Sprintf("\n%s: %s", name, value)
		}
	}
	if values, ok := w.Header()[http.CanonicalHeaderKey(management.HeaderContinuation)]; ok {
		out += fmt.Sprintf("\n%s: %s", management.HeaderContinuation, strings.Join(values, ","))
	}
	if w.Body.Len() > 0 {
		out += "\n" + w.Body.String()
	}
	return out
}

func compare(t *testing.T, what, got, want string) {
	t.Helper()
	if diff := cmp.Diff(got, strings.TrimSpace(want)); diff != "" {
		t.Errorf("%s: got, want:\n%s", what, diff)
	}
}

// See HttpApiHandler.cs, HandleStartOrchestratorRequestAsync and CreateCheckStatusResponseMessage.
func TestStart_AnswersWithTheCheckStatusPayload(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	got := answerText(s, "POST", "/api/durabletask/orchestrators/Greet/my%20id@1?code=k%3D%3D", ` {"city": "Oslo"} `)
	compare(t, "start", got, `
202
Location: http://localhost:8080/api/durabletask/instances/my%20id%401?taskHub=MyHub&connection=Storage&code=k%3D%3D
Retry-After: 10
Content-Type: application/json; charset=utf-8
{"id":"my id@1","statusQueryGetUri":"http://localhost:8080/api/durabletask/instances/my%20id%401?taskHub=MyHub&connection=Storage&code=k%3D%3D","sendEventPostUri":"http://localhost:8080/api/durabletask/instances/my%20id%401/raiseEvent/{eventName}?taskHub=MyHub&connection=Storage&code=k%3D%3D","terminatePostUri":"http://localhost:8080/api/durabletask/instances/my%20id%401/terminate?reason={text}&taskHub=MyHub&connection=Storage&code=k%3D%3D","rewindPostUri":"http://localhost:8080/api/durabletask/instances/my%20id%401/rewind?reason={text}&taskHub=MyHub&connection=Storage&code=k%3D%3D","purgeHistoryDeleteUri":"http://localhost:8080/api/durabletask/instances/my%20id%401?taskHub=MyHub&connection=Storage&code=k%3D%3D","restartPostUri":"http://localhost:8080/api/durabletask/instances/my%20id%401/restart?taskHub=MyHub&connection=Storage&code=k%3D%3D","suspendPostUri":"http://localhost:8080/api/durabletask/instances/my%20id%401/suspend?reason={text}&taskHub=MyHub&connection=Storage&code=k%3D%3D","resumePostUri":"http://localhost:8080/api/durabletask/instances/my%20id%401/resume?reason={text}&taskHub=MyHub&connection=Storage&code=k%3D%3D"}
`)
	state := hub.instances["my id@1"]
	if state == nil || state.Name != "Greet" || *state.Input != `{"city": "Oslo"}` {
		t.Errorf("the hub has %+v", state)
	}
}

func TestStart_InputIsTheUnchangedBody(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for i, tt := range []struct {
		body string
		want *string
	}{
		{"", nil}, {"  \n", nil}, {`""`, new(`""`)}, {"null", new("null")}, {`{"b":1.50, "a":"<é>"}`, new(`{"b":1.50, "a":"<é>"}`)}, {"\ufeff[1]", new("[1]")},
	} {
		id := fmt.Sprint("i", i)
		if w := call(s, "POST", "/api/durabletask/orchestrators/Greet/"+id, tt.body); w.Code != http.StatusAccepted {
			t.Errorf("%q: status %d: %s", tt.body, w.Code, w.Body)
			continue
		}
		if diff := cmp.Diff(hub.instances[id].Input, tt.want); diff != "" {
			t.Errorf("%q: got, want:\n%s", tt.body, diff)
		}
	}
}

func TestStart_WithoutAnIDGeneratesOneOf32Digits(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	call(s, "POST", "/api/durabletask/orchestrators/Greet/", "1")
	for id := range hub.instances {
		if len(id) != 32 || strings.Trim(id, "0123456789abcdef") != "" {
			t.Errorf("the ID is %q, want 32 hexadecimal digits", id)
		}
	}
	if len(hub.instances) != 1 {
		t.Errorf("%d instances, want 1", len(hub.instances))
	}
}

func TestStart_RefusesInvalidRequests(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("busy", history.Running, nil)
	hub.put("over", history.Failed, nil)
	s := readyServer(t, App{}, fakeConfig(t, hub))
	const jsonAnswer = "\nContent-Type: application/json; charset=utf-8\n"
	argument := func(says string) string {
		body, err := jsontext.Marshal(web.ErrorBody{Message: "One or more of the arguments submitted is incorrect", ErrorCause: &web.ErrorCause{ExceptionMessage: says, ExceptionType: "System.ArgumentException"}})
		if err != nil {
			t.Fatal(err)
		}
		return "400" + jsonAnswer + string(body)
	}
	for _, tt := range []struct{ name, target, body, want string }{
		{"a live ID", "busy", "", "409" + jsonAnswer + `{"Message":"An Orchestration instance with the status Running already exists."}`},
		{"bad JSON", "x", "{", "400" + jsonAnswer + `{"Message":"Invalid JSON content","ExceptionMessage":"unexpected end of JSON input","ExceptionType":"Newtonsoft.Json.JsonReaderException","StackTrace":""}`},
		{"an entity's ID", "@c@k", "", argument("Orchestration instance ids must not start with @.")},
		{"a slash in the ID", "a%2Fb", "", argument(durable.ValidateInstanceID("a/b").Error())},
		{"polling longer than the wait", "y?timeout=1&pollingInterval=2", "", argument("Total timeout 1 should be bigger than retry timeout 2")},
		{"a long version", "y?version=" + strings.Repeat("1", 40<<10), "", argument("The version of an orchestrator must not exceed 1024 bytes; it has 40960.")},
		{"another hub", "z?taskhub=Theirs", "", "400" + jsonAnswer + `{"Message":"This app serves task hub \"MyHub\"; the request is for task hub \"Theirs\"."}`},
		{"another connection", "z?connection=Theirs", "", "400" + jsonAnswer + `{"Message":"This app serves the task hub of connection \"Storage\"; the request is for connection \"Theirs\"."}`},
	} {
		compare(t, tt.name, answerText(s, "POST", "/api/durabletask/orchestrators/Greet/"+tt.target, tt.body), tt.want)
	}
	for _, target := range []string{"over", "q1?taskHub=myhub&connection=AzureWebJobsStorage", "q2?taskHub=&connection="} {
		if w := call(s, "POST", "/api/durabletask/orchestrators/Greet/"+target, ""); w.Code != http.StatusAccepted {
			t.Errorf("%s: status %d: %s", target, w.Code, w.Body)
		}
	}
	if n := len(hub.instances); n != 4 {
		t.Errorf("%d instances, want 4", n)
	}
}

// See HttpApiHandler.cs, WaitForCompletionOrCreateCheckStatusResponseAsync.
func TestStart_WaitsForTheOutputOnRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		after  time.Duration
		status history.RuntimeStatus
		output *string
		query  string
		want   string
	}{
		{"completed", 3 * time.Second, history.Completed, new(`["a"]`), "", "200\nContent-Type: application/json; charset=utf-8\n" + `["a"]`},
		{"completed without output", 3 * time.Second, history.Completed, nil, "", "200\nContent-Type: application/json; charset=utf-8\nnull"},
		{"failed", 3 * time.Second, history.Failed, new("boom"), "", `200
Content-Type: application/json; charset=utf-8
{"name":"Greet","instanceId":"i","runtimeStatus":"Failed","input":null,"customStatus":null,"output":"boom","createdTime":"2026-01-05T10:20:30Z","lastUpdatedTime":"2026-01-05T10:20:41Z"}`},
		{"failed, as an error", 3 * time.Second, history.Failed, new("boom"), "&returnInternalServerErrorOnFailure=true", `500
Content-Type: application/json; charset=utf-8
{"name":"Greet","instanceId":"i","runtimeStatus":"Failed","input":null,"customStatus":null,"output":"boom","createdTime":"2026-01-05T10:20:30Z","lastUpdatedTime":"2026-01-05T10:20:41Z"}`},
		{"too late", time.Hour, history.Completed, nil, "", `202
Location: http://localhost:8080/api/durabletask/instances/i?taskHub=MyHub&connection=Storage
Retry-After: 10
Content-Type: application/json; charset=utf-8
{"id":"i","statusQueryGetUri":"http://localhost:8080/api/durabletask/instances/i?taskHub=MyHub&connection=Storage","sendEventPostUri":"http://localhost:8080/api/durabletask/instances/i/raiseEvent/{eventName}?taskHub=MyHub&connection=Storage","terminatePostUri":"http://localhost:8080/api/durabletask/instances/i/terminate?reason={text}&taskHub=MyHub&connection=Storage","rewindPostUri":"http://localhost:8080/api/durabletask/instances/i/rewind?reason={text}&taskHub=MyHub&connection=Storage","purgeHistoryDeleteUri":"http://localhost:8080/api/durabletask/instances/i?taskHub=MyHub&connection=Storage","restartPostUri":"http://localhost:8080/api/durabletask/instances/i/restart?taskHub=MyHub&connection=Storage","suspendPostUri":"http://localhost:8080/api/durabletask/instances/i/suspend?reason={text}&taskHub=MyHub&connection=Storage","resumePostUri":"http://localhost:8080/api/durabletask/instances/i/resume?reason={text}&taskHub=MyHub&connection=Storage"}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			hub := newFakeHub()
			s := readyServer(t, App{}, fakeConfig(t, hub))
			timer := time.AfterFunc(tt.after, func() { hub.put("i", tt.status, func(i *provider.InstanceState) { i.Output = tt.output }) })
			defer timer.Stop()
			began := time.Now()
			got := answerText(s, "POST", "/api/durabletask/orchestrators/Greet/i?timeout=10.5&pollingInterval=0.5"+tt.query, "")
			compare(t, tt.name, got, tt.want)
			if took, most := time.Since(began), min(tt.after+time.Second, 10500*time.Millisecond); took > most {
				t.Errorf("%s: took %v, want at most %v", tt.name, took, most)
			}
		})
	}
}

func TestStart_WaitingEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := readyServer(t, App{}, fakeConfig(t, newFakeHub()))
		time.AfterFunc(time.Second, func() { close(s.draining) })
		began := time.Now()
		w := call(s, "POST", "/api/durabletask/orchestrators/Greet/i?timeout=3600&pollingInterval=60", "")
		if took := time.Since(began); w.Code != http.StatusAccepted || took != time.Second {
			t.Errorf("status %d after %v, want 202 after 1s", w.Code, took)
		}
	})
}

// See HttpApiHandler.cs, HandleTerminateInstanceRequestAsync and HandleRaiseEventRequestAsync.
func TestMessages_AreSentOnlyToInstancesThatHaveNotEnded(t *testing.T) {
	t.Parallel()
	const refusedType = `{"Message":"Only application/json request content is supported"}`
	const badJSON = `{"Message":"Invalid JSON content","ExceptionMessage":"invalid character 'x' looking for beginning of value","ExceptionType":"Newtonsoft.Json.JsonReaderException","StackTrace":""}`
	for _, tt := range []struct {
		target, contentType, body string
		code                      int
		answer                    string
		want                      history.Event
	}{
		{"live/terminate?reason=no%20more", "", "", 202, "", &history.ExecutionTerminated{Reason: new("no more")}},
		{"live/TERMINATE", "", "", 202, "", &history.ExecutionTerminated{Reason: new("")}},
		{"ended/terminate", "", "", 410, "", nil},
		{"unknown/terminate", "", "", 404, "", nil},
		{"live/raiseEvent/Approve", "application/json", `{"by": "me"}`, 202, "", &history.EventRaised{Name: "Approve", Input: new(`{"by": "me"}`)}},
		{"live/RAISEEVENT/a%2Fb%20%C3%A9", "application/json; charset=utf-8", "true", 202, "", &history.EventRaised{Name: "a/b é", Input: new("true")}},
		{"live/raiseEvent/Nothing", "application/json", "", 202, "", &history.EventRaised{Name: "Nothing", Input: new("null")}},
		{"live/raiseEvent/Text", "text/plain", "x", 400, refusedType, nil},
		{"live/raiseEvent/None", "", "", 400, refusedType, nil},
		{"live/raiseEvent/Bad", "application/json", "x", 400, badJSON, nil},
		{"ended/raiseEvent/E", "application/json", "1", 410, "", nil},
		{"ended/raiseEvent/E", "text/plain", "1", 410, "", nil},
		{"unknown/raiseEvent/E", "application/json", "1", 404, "", nil},
		{"unknown/raiseEvent/E", "application/json", "x", 404, "", nil},
	} {
		hub := newFakeHub()
		hub.put("live", history.Running, nil)
		hub.put("ended", history.Terminated, nil)
		s := readyServer(t, App{}, fakeConfig(t, hub))
		w := call(s, "POST", "/api/durabletask/instances/"+tt.target, tt.body, "Content-Type", tt.contentType)
		if w.Code != tt.code || w.Body.String() != tt.answer {
			t.Errorf("%s: %d %s, want %d %s", tt.target, w.Code, w.Body, tt.code, tt.answer)
		}
		var got history.Event
		if sent := hub.messages(); len(sent) == 1 {
			if got = sent[0].Event; sent[0].Target.InstanceID != "live" {
				t.Errorf("%s: sent to %s", tt.target, sent[0].Target.InstanceID)
			}
			*got.Head() = history.Header{}
		}
		if diff := cmp.Diff(got, tt.want); diff != "" {
			t.Errorf("%s: sent, want:\n%s", tt.target, diff)
		}
	}
}

// An unknown path, a wrong method and an unknown operation all get status 404, not 405
// (HttpApiHandler.cs, HandleRequestAsync).
func TestManagement_AnUnknownPathIs404WithoutABody(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("i", history.Running, nil)
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for _, request := range []string{
		"GET /api/durabletask", "GET /api/durabletask/", "GET /api/durabletask/nothing", "GET /api/durabletask/orchestrators",
		"GET /api/durabletask/orchestrators/Greet", "PUT /api/durabletask/orchestrators/Greet", "POST /api/durabletask/orchestrators/Greet/i/more",
		"POST /api/durabletask/instances", "PUT /api/durabletask/instances/i", "POST /api/durabletask/instances/i",
		"DELETE /api/durabletask/instances/missing", "DELETE /api/durabletask/instances/i/x", "HEAD /api/durabletask/instances/i", "OPTIONS /api/durabletask/instances/i",
		"GET /api/durabletask/instances/i/terminate", "POST /api/durabletask/instances/i/explode", "GET /api/durabletask/instances/i/suspend",
		"PUT /api/durabletask/instances/i/resume", "DELETE /api/durabletask/instances/i/rewind", "GET /api/durabletask/instances/i/restart",
		"POST /api/durabletask/instances/missing/suspend", "POST /api/durabletask/instances/missing/resume",
		"GET /api/durabletask/instances/i/raiseEvent/e", "POST /api/durabletask/instances/i/raiseEvent", "POST /api/durabletask/instances/i/raiseEvent/e/f",
		"POST /api/durabletask/instances//terminate", "GET /api/durabletask/instances//i", "GET /api/durabletask/instances/missing",
		"GET /api/durabletask/entities/Counter/k/more", "GET /api/durabletask/makeprimary", "POST /api/durabletask/configuration",
	} {
		method, target, _ := strings.Cut(request, " ")
		w := call(s, method, target, "")
		if w.Code != http.StatusNotFound || w.Body.Len() > 0 {
			t.Errorf("%s: %d %q, want 404 and nothing", request, w.Code, w.Body)
		}
	}
	if n := len(hub.messages()); n > 0 {
		t.Errorf("%d messages were sent", n)
	}
}

func TestManagement_PathsIgnoreCaseAndTrailingSlashes(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("a/b é+@#?%", history.Running, nil)
	hub.put("@counter@K", history.Running, nil)
	s := readyServer(t, App{}, fakeConfig(t, hub))
	const special = "a%2Fb%20%C3%A9%2B%40%23%3F%25"
	for _, target := range []string{
		"/api/durabletask/instances/" + special, "/API/DurableTask/INSTANCES/" + special + "/", "/api/durabletask//instances/" + special,
		"/runtime/webhooks/durabletask/instances/" + special, "/Runtime/WebHooks/durableTask/instances/" + special,
		"/api/durabletask/instances/a%2fb%20é+@%23%3F%25", "/api/durabletask/instances/@counter@K", "/api/durabletask/instances/", "/api/durabletask/Instances",
	} {
		if w := call(s, "GET", target, ""); w.Code != http.StatusAccepted && w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	for _, target := range []string{"/api/durabletaskx/instances", "/other/durabletask/instances", "/runtime/webhooks/other/instances"} {
		if w := call(s, "GET", target, ""); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d %s, want 404", target, w.Code, w.Body)
		}
	}
}

func TestManagement_OfficialPathExistsOnlyStandalone(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("i", history.Running, nil)
	cfg := fakeConfig(t, hub)
	if w := call(readyServer(t, App{}, cfg), "GET", "/runtime/webhooks/durabletask/instances/i", ""); w.Code != http.StatusAccepted {
		t.Errorf("standalone: %d", w.Code)
	}
	cfg.BehindHost = true
	if w := call(readyServer(t, App{}, cfg), "GET", "/runtime/webhooks/durabletask/instances/i", ""); w.Code != http.StatusNotFound {
		t.Errorf("behind the host: %d", w.Code)
	}
}

func TestOutage_EachKindHasItsOwnMessage(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&embedded.CorruptError{Path: "hub.db", Cause: errors.New("record 7")}, "The part of the task hub's file that the request needs is damaged"},
		{&fs.PathError{Op: "write", Path: "hub.db", Err: syscall.ENOSPC}, "The disk of the task hub's file is full"},
		{&fs.PathError{Op: "stat", Path: "hub.db", Err: syscall.ENOENT}, "The task hub's file was deleted or moved"},
		{&azcore.ResponseError{StatusCode: http.StatusNotFound, ErrorCode: "TableNotFound"}, "The task hub was deleted. The app creates it again"},
		{&azcore.ResponseError{StatusCode: http.StatusConflict, ErrorCode: "QueueBeingDeleted"}, "The task hub was deleted. The app creates it again"},
		{&partitionlog.UnreadableError{Partition: 3, Cause: errors.New("records")}, "is damaged or missing"},
		{taskhub.ErrNotOpen, "cannot be reached or does not answer"},
	} {
		hub.fail(&taskhub.OutageError{Err: tt.err})
		if w := call(s, "GET", "/api/durabletask/instances/i", ""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%v: %d %s, want %q", tt.err, w.Code, w.Body, tt.want)
		}
	}
}

func TestManagement_DistinguishesAnOutageFromOtherErrors(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for _, tt := range []struct {
		name string
		err  error
		want string
	}{
		{
			"connection refused", fmt.Errorf("get row:\n--------------------------------\n %w", &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}),
			"503\nRetry-After: 5\nContent-Type: application/json; charset=utf-8\n" +
				`{"Message":"The storage of the task hub cannot be reached or does not answer. Try again later.","ExceptionMessage":"read status of instance i: get row: dial tcp: refused","ExceptionType":"DurableTask.AzureStorage.Storage.DurableTaskStorageException","StackTrace":""}`,
		},
		{
			"anything else", errors.New("decode row"),
			"500\nContent-Type: application/json; charset=utf-8\n" +
				`{"Message":"Something went wrong while processing your request","ExceptionMessage":"read status of instance i: decode row","ExceptionType":"System.Exception","StackTrace":""}`,
		},
	} {
		hub.fail(tt.err)
		compare(t, tt.name, answerText(s, "GET", "/api/durabletask/instances/i", ""), tt.want)
	}
}
