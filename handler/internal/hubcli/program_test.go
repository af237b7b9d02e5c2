package hubcli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write what the command line prints into testdata/transcript.txt")

// commands are run one after another against the API of fakeAPI.
var commands = []string{
	"",
	"--help",
	"start --help",
	"get --help",
	"list --help",
	"purge --help",
	"delete --help",
	"copy --help",
	"crashes --help",
	"why --help",
	"verify --help",
	"record --help",
	"nonsense",
	"get",
	"get one two",
	"list --output yaml",
	"list --nonsense",
	"start Hello",
	"start Hello --id mine --input {\"a\":1} --version 2.0 --output json",
	"start --input - Hello",
	"start Hello --input nonsense",
	"start Hello --input 1 --input-file -",
	"start Nobody",
	"start Hello --id taken",
	"start Hello --id done --wait 10s",
	"start Hello --id failed --wait 10s",
	"get done",
	"get done --output json",
	"get done --no-input --show-history",
	"get failed",
	"get nobody",
	"get odd/id?",
	"list",
	"list --output json --status failed,Completed --prefix f --created-after 2026-01-31T12:00:00Z --created-before 2027-01-31T12:00:00Z",
	"list --top 1",
	"list --all",
	"list --top 0",
	"list --status odd",
	"list --created-after yesterday",
	"history done",
	"history done --show-output --output json",
	"history nobody",
	"why",
	"why waits",
	"why waits --output json",
	"why nobody",
	"why waits --stuck",
	"why --stuck --status Failed --output json",
	"verify",
	"verify --sample 1 --status Running --created-after 2026-01-31T12:00:00Z --output json",
	"verify --prefix old",
	"verify --prefix nobody",
	"verify --prefix unreadable",
	"verify testdata/nowhere",
	"raise done Approved",
	"raise waits Approved --data true",
	"raise waits Approved --data yes",
	"raise nobody Approved --data-file - --output json",
	"terminate waits --reason enough",
	"terminate done",
	"suspend waits --output json",
	"resume waits",
	"rewind failed --reason mended",
	"rewind done",
	"restart done",
	"restart done --same-id --output json",
	"purge done",
	"purge waits",
	"purge",
	"purge --all --status Failed",
	"purge --created-before 2027-01-31T12:00:00Z --output json",
	"purge --created-after 2027-01-31T12:00:00Z",
	"retry-undecodable",
	"retry-undecodable --output json",
	"delete",
	"delete --yes",
	"delete --yes --force --output json",
	"compact",
	"compact --output json",
	"copy embedded azurestorage",
	"copy embedded azurestorage:Other --task-hub Other --wait 1s --ignore-hidden --output json",
	"copy embedded nowhere",
	"crashes",
	"crashes --forget",
	"crashes --forget --output json",
	"get held",
	"get -- --odd",
}

// fakeAPI is a management API with a few instances.
func fakeAPI(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	asked := r.Method + " " + r.URL.EscapedPath()
	if r.URL.RawQuery != "" {
		asked += "?" + r.URL.RawQuery
	}
	if len(body) > 0 {
		asked += " " + string(body)
	}
	w.Header().Set("Asked", asked)
	answer := func(status int, text string) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
	path := strings.TrimPrefix(r.URL.Path, "/api/durabletask/")
	switch {
	case path == "orchestrators/Hello/taken":
		answer(409, `{"Message":"An Orchestration instance with the status Running already exists."}`)
	case strings.HasPrefix(path, "orchestrators/Hello/"):
		answer(202, `{"id":"`+strings.TrimPrefix(path, "orchestrators/Hello/")+`"}`)
	case path == "orchestrators/Nobody":
		answer(202, `{"id":"0123456789abcdef","warning":"This app has no orchestrator named \"Nobody\"; it has Hello."}`)
	case path == "orchestrators/Hello":
		answer(202, `{"id":"0123456789abcdef"}`)
	case path == "instances" && r.Method == http.MethodDelete && strings.Contains(r.URL.RawQuery, "createdTimeFrom=2027"):
		answer(404, "")
	case path == "instances" && r.Method == http.MethodDelete:
		answer(200, `{"instancesDeleted":7}`)
	case path == "instances" && strings.Contains(r.URL.RawQuery, "instanceIdPrefix=old"): // of an app without histories
		answer(200, `[`+instance("old", "Running", `null`)+`]`)
	case path == "instances/old/history":
		answer(404, "")
	case path == "instances" && strings.Contains(r.URL.RawQuery, "instanceIdPrefix=nobody"): // purged since
		answer(200, `[`+instance("nobody", "Running", `null`)+`]`)
	case path == "instances" && strings.Contains(r.URL.RawQuery, "instanceIdPrefix=unreadable") && r.Header.Get("X-Ms-Continuation-Token") == "":
		w.Header().Set("X-Ms-Continuation-Token", "next")
		answer(200, `[`+instance("unreadable", "Running", `null`)+`]`)
	case path == "instances/unreadable/history":
		answer(500, `{"Message":"Something went wrong","ExceptionMessage":"history row 3 has an EventType of 7"}`)
	case path == "instances" && r.Header.Get("X-Ms-Continuation-Token") == "":
		w.Header().Set("X-Ms-Continuation-Token", "next")
		answer(200, `[`+instance("done", "Completed", `"out"`)+`]`)
	case path == "instances":
		answer(200, `[`+instance("failed", "Failed", `"it broke"`)+`]`)
	case path == "undecodable/retry":
		answer(200, `{"messagesPutBack":3}`)
	case strings.HasSuffix(path, "/restart"):
		answer(202, `{"id":"fedcba9876543210"}`)
	case strings.HasPrefix(path, "instances/nobody"), strings.HasPrefix(path, "instances/odd"):
		answer(404, "")
	case strings.HasPrefix(path, "instances/held"):
		answer(503, `{"Message":"The storage of task hub \"Hub\" cannot be used: it is out of reach."}`)
	case path == "instances/done" && r.Method == http.MethodDelete:
		answer(200, `{"instancesDeleted":1}`)
	case path == "instances/waits" && r.Method == http.MethodDelete:
		answer(412, `"The instance has not ended."`)
	case r.Method == http.MethodPost && strings.HasPrefix(path, "instances/done/rewind"):
		answer(412, `"The rewind operation is only supported on failed orchestration instances."`)
	case r.Method == http.MethodPost && strings.HasPrefix(path, "instances/done/"):
		answer(410, "")
	case r.Method == http.MethodPost:
		answer(202, "")
	case path == "instances/waits/why", path == "instances/failed/why":
		answer(200, `{"instanceId":"waits","name":"Hello","runtimeStatus":"Running","reasons":[
			{"kind":"event","text":"event \"Approved\"","name":"Approved","where":["hello.go:12"]},
			{"kind":"timer","text":"timer","taskId":3,"where":["hello.go:12"]}]}`)
	case strings.HasSuffix(path, "/why"):
		answer(200, `{"instanceId":"done","name":"Hello","runtimeStatus":"Completed","reasons":[{"kind":"ended","text":"has ended: out"}]}`)
	case path == "instances/failed/history":
		answer(200, `["broken"]`)
	case strings.HasSuffix(path, "/history"):
		answer(200, `[]`)
	case path == "instances/failed":
		answer(200, instance("failed", "Failed", `"it broke"`))
	default:
		text := instance("done", "Completed", `["Hello Tokyo!","Hello Seattle!"]`)
		if strings.Contains(r.URL.RawQuery, "showHistory=true") {
			text = strings.TrimSuffix(text, "}") + `,"historyEvents":[
				{"EventType":"ExecutionStarted","Timestamp":"2026-11-21T12:00:00.1234567Z","FunctionName":"Hello","Input":null},
				{"EventType":"TaskCompleted","Timestamp":"2026-11-21T12:00:01Z","FunctionName":"SayHello","Result":"Hello Tokyo, which is a very large city with a long name of sixty letters"},
				{"EventType":"TimerFired","Timestamp":"2026-11-21T12:00:02Z","FireAt":"2026-11-21T12:00:02Z"},
				{"EventType":"EventRaised","Timestamp":"2026-11-21T12:00:03Z","Name":"Approved","Input":true},
				{"EventType":"ExecutionCompleted","Timestamp":"2026-11-21T12:00:04Z","OrchestrationStatus":"Completed","Result":["a","b"]}]}`
		}
		answer(200, text)
	}
}

func instance(id, status, output string) string {
	return fmt.Sprintf(`{"name":"Hello","instanceId":%q,"runtimeStatus":%q,"input":{"a": 1},"customStatus":null,"output":%s,`+
		`"createdTime":"2026-11-21T12:00:00Z","lastUpdatedTime":"2026-11-21T12:00:05Z"}`, id, status, output)
}

// asking notes the requests that are made.
type asking struct{ asked []string }

func (a *asking) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	fakeAPI(w, r)
	a.asked = append(a.asked, w.Header().Get("Asked"))
	return w.Result(), nil
}

type copied struct {
	Instances int `json:"instances"`
}

func (c copied) String() string { return fmt.Sprint(c.Instances, " instances") }

// transcript runs a command and returns it with what came of it.
func transcript(t *testing.T, command string) string {
	t.Helper()
	var out, errs strings.Builder
	api := &asking{}
	p := hubcli.Program{
		Name: "app hub", Stdin: strings.NewReader(`{"from":"stdin"}`), Stdout: &out, Stderr: &errs,
		Open: func(context.Context) (*hubcli.Target, error) {
			return &hubcli.Target{Client: &http.Client{Transport: api}, Base: "http://app/api/durabletask"}, nil
		},
		Delete: func(_ context.Context, r hubcli.DeleteRequest) (string, error) {
			if !r.Force {
				return "", errors.New("a worker has the task hub")
			}
			r.Warn("a worker has it")
			return "task hub Hub", nil
		},
		Compact: func() (hubcli.Compacted, error) {
			return hubcli.Compacted{Path: "/app/.durable-Hub.db", Before: 123_456_789, After: 1_234_567}, nil
		},
		Copy: func(_ context.Context, r hubcli.CopyRequest) (fmt.Stringer, error) {
			if r.To == "nowhere" {
				return nil, errors.New(`"nowhere" is neither embedded nor azurestorage`)
			}
			r.Progress(fmt.Sprintf("from %s to %s, hub %q, wait %v, ignore hidden %v", r.From, r.To, r.TaskHub, r.Wait, r.IgnoreHidden))
			return copied{7}, nil
		},
		Verify: func(text []byte) error {
			if string(text) == "[]" {
				return nil
			}
			return &durable.HistoryMismatchError{InstanceID: "failed", Name: "Hello", Version: "1.0", Event: 3, Recorded: "an activity task named 'A'", Produced: "a timer task"}
		},
		Crashes: func(bool) ([]durable.Crash, error) {
			at := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
			return []durable.Crash{{What: `activity "A"`, Count: 1, Last: at}, {What: `activity "A" 1 "e" "i"`, Count: 2, Last: at, SetAside: true}}, nil
		},
	}
	code := p.Run(t.Context(), strings.Fields(command))
	var all strings.Builder
	fmt.Fprintf(&all, "$ app hub %s\n", command)
	for _, asked := range api.asked {
		fmt.Fprintf(&all, "asks %s\n", asked)
	}
	all.WriteString(out.String())
	for line := range strings.Lines(errs.String()) {
		all.WriteString("stderr: " + line)
	}
	fmt.Fprintf(&all, "exit %d\n\n", code)
	return all.String()
}

func TestProgram_PrintsWhatItIsAskedFor(t *testing.T) {
	const file = "testdata/transcript.txt"
	var all strings.Builder
	for _, command := range commands {
		all.WriteString(transcript(t, command))
	}
	if *rewrite {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), all.String()); diff != "" {
		t.Errorf("what is printed is not what is in %s; run with -rewrite and look at what changed (-want +got):\n%s", file, diff)
	}
}

func TestProgram_SaysWhyAHubCannotBeReached(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		code int
	}{
		{&hubcli.UnavailableError{Err: errors.New("the file is held")}, hubcli.ExitUnavailable},
		{errors.New("the configuration is wrong"), hubcli.ExitFailed},
	} {
		var errs strings.Builder
		p := hubcli.Program{Name: "app hub", Stdout: io.Discard, Stderr: &errs, Open: func(context.Context) (*hubcli.Target, error) { return nil, tt.err }}
		if code := p.Run(t.Context(), []string{"list"}); code != tt.code || !strings.Contains(errs.String(), tt.err.Error()) {
			t.Errorf("%v: exit code %d with %q, want %d", tt.err, code, errs.String(), tt.code)
		}
	}
}

func TestProgram_MasksSecretsInWhatItSays(t *testing.T) {
	t.Parallel()
	var errs strings.Builder
	p := hubcli.Program{Name: "app hub", Stdout: io.Discard, Stderr: &errs, Open: func(context.Context) (*hubcli.Target, error) {
		return nil, errors.New("no storage at AccountName=a;AccountKey=c2VjcmV0;EndpointSuffix=x")
	}}
	p.Run(t.Context(), []string{"list"})
	if strings.Contains(errs.String(), "c2VjcmV0") || !strings.Contains(errs.String(), "AccountName=a") {
		t.Errorf("standard error has %q", errs.String())
	}
}

func TestProgram_SendsTheKeyAndLetsGoOfTheHub(t *testing.T) {
	t.Parallel()
	var key string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key = r.Header.Get("X-Functions-Key")
		fakeAPI(w, r)
	}))
	defer server.Close()
	closed := 0
	p := hubcli.Program{Name: "app hub", Stdout: io.Discard, Stderr: io.Discard, Open: func(context.Context) (*hubcli.Target, error) {
		return &hubcli.Target{Client: server.Client(), Base: server.URL + "/api/durabletask", Key: "secret", Close: func() error {
			closed++
			return nil
		}}, nil
	}}
	if code := p.Run(t.Context(), []string{"list", "--all"}); code != hubcli.ExitOK || key != "secret" || closed != 1 {
		t.Errorf("exit code %d, key %q, closed %d times, want 0, the key, once", code, key, closed)
	}
}
