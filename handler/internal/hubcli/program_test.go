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
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/google/go-cmp/cmp"
)

// The Close method of a test server closes idle connections of http.DefaultTransport, and that can break requests
// of tests that run in parallel. So the variable hides the method for it.
func init() { http.DefaultTransport = struct{ http.RoundTripper }{http.DefaultTransport} }

var rewrite = flag.Bool("rewrite", false, "write what the command line prints into testdata/transcript.txt, and the tables of the documentation")

// commands run one after another against fakeAPI.
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
	"console --help",
	"why --help",
	"verify --help",
	"record --help",
	"terminate --help",
	"list --version",
	"--version",
	"entity",
	"entity --help",
	"entity signal --help",
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
	"list --name nobody",
	"list --tag team=blue",
	"list --tag team --tag urgent= --top 1",
	"list --tag team=red",
	"list --tag =blue",
	"list --entities",
	"list --status odd",
	"list --created-after yesterday",
	"history done",
	"history done --show-output",
	"history done --no-input",
	"history done --output json",
	"history --help",
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
	"raise",
	"raise Approved",
	"raise Approved --all --input true",
	"raise done Approved --dry-run",
	"raise done Approved --status Running",
	"purge done --dry-run --status failed,completed --tag team",
	"purge done --all",
	"terminate",
	"terminate --status Running,Failed --dry-run",
	"terminate --name Hello --reason enough",
	"suspend --prefix f --dry-run --output json",
	"rewind --all",
	"restart --created-after 2026-01-31T12:00:00Z --output json",
	"terminate --tag team=blue --status Completed --dry-run",
	"purge --name Hello",
	"purge --tag team=red",
	"purge --all --dry-run",
	"entity list",
	"entity list Counter --state --output json",
	"entity get Counter a",
	"entity get Counter nobody",
	"entity signal Counter a add --input 5",
	"entity signal Counter a add --data 5",
	"tail tailed --every 1ms",
	"tail tailed --output json",
	"tail nobody",
	"tail --every 0s",
	"completion tcsh",
	"raise waits Approved --data true",
	"raise waits Approved --data yes",
	"raise nobody Approved --data-file - --output json",
	"terminate waits --reason enough",
	"terminate done",
	"suspend waits --output json",
	"suspend suspended",
	"resume waits",
	"rewind failed --reason mended",
	"rewind done",
	"restart done",
	"restart done --same-id --output json",
	"restart nobody",
	"restart --prefix nobody",
	"terminate @counter@a",
	"purge done",
	"purge waits",
	"purge",
	"purge --all --status Failed",
	"purge --created-before 2027-01-31T12:00:00Z --output json",
	"purge --created-after 2027-01-31T12:00:00Z",
	"purge --prefix unreadable",
	"retry-undecodable",
	"retry-undecodable --output json",
	"delete",
	"delete --yes",
	"delete --yes --force --output json",
	"compact",
	"compact --output json",
	"drained",
	"drained --output json",
	"repair",
	"repair --apply",
	"repair --output json",
	"backup --help",
	"backup",
	"backup program_test.go",
	"backup /backups/local.db",
	"backup /backups/local.db --output json",
	"backup /backups/queues.db --wait 1s --ignore-hidden",
	"backup /backups/queues.db --output json",
	"backup /backups/busy.db",
	"copy embedded azurestorage",
	"copy embedded azurestorage:Other --task-hub Other --wait 1s --ignore-hidden --output json",
	"copy embedded nowhere",
	"crashes",
	"crashes --forget",
	"crashes --forget --output json",
	"get held",
	"get busy",
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
	case path == "instances" && r.Method == http.MethodDelete && strings.Contains(r.URL.RawQuery, "instanceIdPrefix=unreadable"):
		answer(500, `{"Message":"Something went wrong","ExceptionMessage":"instance i: its row cannot be read","instancesDeleted":3}`)
	case path == "instances" && r.Method == http.MethodDelete:
		answer(200, `{"instancesDeleted":7}`)
	case path == "scale":
		answer(200, `{"partitionCount":1,"workerCount":2,"storedMessageCount":4}`)
	case path == "instances" && strings.Contains(r.URL.RawQuery, "instanceIdPrefix=%40"):
		answer(200, `[{"instanceId":"@counter@a","customStatus":{"entityExists":true,"lockedBy":"waits"}},
			{"instanceId":"@counter@b","customStatus":{"entityExists":true,"queueSize":2}},{"instanceId":"@counter@c","customStatus":null}]`)
	case path == "instances" && strings.Contains(r.URL.RawQuery, "instanceIdPrefix=old"): // an app without histories
		answer(200, `[`+instance("old", "Running", `null`)+`]`)
	case path == "instances/old/history":
		answer(404, "")
	case path == "instances" && strings.Contains(r.URL.RawQuery, "instanceIdPrefix=nobody"): // purged meanwhile
		answer(200, `[`+instance("nobody", "Running", `null`)+`]`)
	case path == "instances" && strings.Contains(r.URL.RawQuery, "instanceIdPrefix=unreadable") && r.Header.Get("X-Ms-Continuation-Token") == "":
		w.Header().Set("X-Ms-Continuation-Token", "next")
		answer(200, `[`+instance("unreadable", "Running", `null`)+`]`)
	case path == "instances/unreadable/history":
		answer(500, `{"Message":"Something went wrong","ExceptionMessage":"history row 3 has an EventType of 7"}`)
	case path == "instances" && r.Header.Get("X-Ms-Continuation-Token") == "":
		w.Header().Set("X-Ms-Continuation-Token", "next")
		answer(200, `[`+tagged(instance("done", "Completed", `"out"`))+`]`)
	case path == "instances":
		answer(200, `[`+instance("failed", "Failed", `"it broke"`)+`]`)
	case path == "entities", path == "entities/Counter" && r.Method == http.MethodGet:
		answer(200, `[{"entityId":{"name":"counter","key":"a"},"lastOperationTime":"2026-11-21T12:00:00Z","state":{"n":5}}]`)
	case path == "entities/Counter/nobody":
		answer(404, "")
	case path == "entities/Counter/a" && r.Method == http.MethodGet:
		answer(200, `{"n":5}`)
	case path == "instances/tailed/history":
		answer(200, `[{"EventType":"OrchestratorStarted","EventId":-1,"Timestamp":"2026-11-21T12:00:00Z"},
			{"EventType":"ExecutionStarted","EventId":-1,"Name":"Hello","Input":"{}","Timestamp":"2026-11-21T12:00:00Z"}]`)
	case path == "backup":
		answer(200, `{"backup":"`+r.URL.Query().Get("path")+`","bytes":1234567}`)
	case path == "undecodable/retry":
		answer(200, `{"messagesPutBack":3}`)
	case path == "instances/nobody/restart":
		answer(400, noInstance)
	case strings.HasSuffix(path, "/restart"):
		answer(202, `{"id":"fedcba9876543210"}`)
	case strings.HasPrefix(path, "instances/nobody"), strings.HasPrefix(path, "instances/odd"):
		answer(404, "")
	case path == "instances/busy":
		answer(202, strings.TrimSuffix(instance("busy", "Running", `null`), "}")+`,"runsHere":[{"kind":"activity","name":"Ship","taskId":1,"since":"2026-11-21T12:00:01Z"},
			{"kind":"step","name":"charge","taskId":2,"attempt":3,"since":"2026-11-21T12:00:02Z"}]}`)
	case strings.HasPrefix(path, "instances/held"):
		answer(503, `{"Message":"The storage of task hub \"Hub\" cannot be used: it is unreachable."}`)
	case path == "instances/done" && r.Method == http.MethodDelete:
		answer(200, `{"instancesDeleted":1}`)
	case path == "instances/waits" && r.Method == http.MethodDelete:
		answer(412, `"The instance has not ended."`)
	case r.Method == http.MethodPost && strings.HasPrefix(path, "instances/done/rewind"):
		answer(412, `"The rewind operation is only supported on failed orchestration instances."`)
	case path == "instances/suspended/suspend": // as in handler/testdata/transcripts/suspend.txt
		answer(500, `{"Message":"Something went wrong while processing your request","ExceptionMessage":"Cannot suspend the orchestration instance suspended because instance is in the Suspended state.","ExceptionType":"System.InvalidOperationException","StackTrace":""}`)
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
		text := tagged(instance("done", "Completed", `["Hello Tokyo!","Hello Seattle!"]`))
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

func tagged(instance string) string {
	return strings.TrimSuffix(instance, "}") + `,"tags":{"team":"blue","urgent":""}}`
}

func instance(id, status, output string) string {
	return fmt.Sprintf(`{"name":"Hello","instanceId":%q,"runtimeStatus":%q,"input":{"a": 1},"customStatus":null,"output":%s,`+
		`"createdTime":"2026-11-21T12:00:00Z","lastUpdatedTime":"2026-11-21T12:00:05Z"}`, id, status, output)
}

// asking records the requests.
type asking struct {
	mu    sync.Mutex
	asked []string
}

func (a *asking) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	fakeAPI(w, r)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, w.Header().Get("Asked"))
	return w.Result(), nil
}

type copied struct {
	Instances int `json:"instances"`
}

func (c copied) String() string { return fmt.Sprint(c.Instances, " instances") }

// transcript runs a command and returns its transcript.
func transcript(t *testing.T, command string) string {
	t.Helper()
	var out, errs strings.Builder
	api := &asking{}
	p := hubcli.Program{
		Name: "app hub", Version: "app v1.2.3, go1.26", Terminal: true, Stdin: strings.NewReader(`{"from":"stdin"}`), Stdout: &out, Stderr: &errs,
		Open: func(context.Context) (*hubcli.Target, error) {
			return &hubcli.Target{Client: &http.Client{Transport: api}, Base: "http://app/api/durabletask"}, nil
		},
		Delete: func(_ context.Context, r hubcli.DeleteRequest) (string, error) {
			if !r.Force {
				return "", errors.New("a worker uses the task hub")
			}
			r.Warn("a worker uses the task hub")
			return "task hub Hub", nil
		},
		Compact: func(context.Context) (hubcli.CompactResult, error) {
			return hubcli.CompactResult{Path: "/app/.durable-Hub.db", Before: 123_456_789, After: 1_234_567}, nil
		},
		Repair: func(_ context.Context, apply bool) (hubcli.RepairResult, error) {
			return hubcli.RepairResult{
				Hub: "task hub Hub", Report: map[string]bool{"applied": apply}, Blobs: [][]string{{"PARTITION", "LOG"}, {"0", "2 blobs, 0.1 MB"}},
				Problems: []hubcli.RepairProblem{
					{What: "hub.json is missing", Lost: "nothing", Repair: "creates hub.json", Repaired: apply},
					{What: "p01/log-: all blobs of the log are missing", Lost: "the instances of partition 1"},
				},
			}, nil
		},
		Copy: func(_ context.Context, r hubcli.CopyRequest) (fmt.Stringer, error) {
			if r.To == "nowhere" {
				return nil, errors.New(`"nowhere" is neither embedded nor azurestorage`)
			}
			r.Progress(fmt.Sprintf("from %s to %s, hub %q, wait %v, ignore hidden %v", r.From, r.To, r.TaskHub, r.Wait, r.IgnoreHidden))
			return copied{7}, nil
		},
		Backup: func(_ context.Context, r hubcli.CopyRequest) (hubcli.BackupResult, error) {
			switch r.To {
			case "/backups/local.db":
				return hubcli.BackupResult{}, hubcli.ErrUseManagementAPI
			case "/backups/busy.db":
				return hubcli.BackupResult{}, &hubcli.UnavailableError{Err: errors.New("the task hub is in use by a worker")}
			}
			r.Progress(fmt.Sprintf("wait %v, ignore hidden %v", r.Wait, r.IgnoreHidden))
			return hubcli.BackupResult{Path: r.To, Bytes: 7_654_321, Pause: 2.5}, nil
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
	last := len(api.asked)
	for last > 0 && !strings.HasPrefix(api.asked[last-1], "GET") {
		last--
	}
	slices.Sort(api.asked[last:]) // concurrent requests
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

func TestProgram_OutputMatchesTheTranscript(t *testing.T) {
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
		t.Errorf("the output differs from %s; run with -rewrite and review the changes (-want +got):\n%s", file, diff)
	}
}

func TestProgram_TheTranscriptHasARunOfEachVerb(t *testing.T) {
	t.Parallel()
	notRun := []string{"console", "record"} // one serves until it is stopped, one writes files
	verbs := regexp.MustCompile(`(?m)^  ([a-z][a-z-]*(?: [a-z]+)?) `).FindAllStringSubmatch(transcript(t, "--help"), -1)
	if len(verbs) < 25 {
		t.Errorf("the help lists %d verbs, want more", len(verbs))
	}
	for _, match := range verbs {
		verb := match[1]
		isRun := func(c string) bool {
			return !strings.HasSuffix(c, "--help") && (c == verb || strings.HasPrefix(c, verb+" "))
		}
		if !slices.Contains(notRun, verb) && !slices.ContainsFunc(commands, isRun) {
			t.Errorf("verb %s has no run in commands; add one, and an answer to fakeAPI", verb)
		}
	}
}

func TestEntity_TheEmptyKeyIsAnEmptyArgument(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"entity", "get", "counter", ""}, "GET /api/durabletask/entities/counter/$"},
		{[]string{"entity", "signal", "counter", "", "add"}, "POST /api/durabletask/entities/counter?op=add"},
		{[]string{"entity", "signal", "counter", "a", "add"}, "POST /api/durabletask/entities/counter/a?op=add"},
	} {
		api := &asking{}
		runOn(t.Context(), api, tt.args...).wants(t, hubcli.ExitOK, "")
		if len(api.asked) != 1 || api.asked[0] != tt.want {
			t.Errorf("%q asks %q, want %q", tt.args, api.asked, tt.want)
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"entity", "get", "counter", "$"}, `the management API reads the key $ as the empty key; use ""`},
		{[]string{"entity", "signal", "counter", "$", "add"}, `the management API reads the key $ as the empty key; use ""`},
		{[]string{"entity", "get", "", "a"}, "NAME is empty"},
		{[]string{"entity", "signal", "counter", "", ""}, "OPERATION is empty"},
		{[]string{"get", ""}, "ID is empty"},
	} {
		api := &asking{}
		runOn(t.Context(), api, tt.args...).wants(t, hubcli.ExitUsage, "", tt.want)
		if len(api.asked) > 0 {
			t.Errorf("%q asks %q", tt.args, api.asked)
		}
	}
}

// interrupting is a standard input that interrupts the program and then waits.
type interrupting struct {
	interrupt func()
	until     <-chan struct{}
}

func (i interrupting) Read([]byte) (int, error) {
	i.interrupt()
	<-i.until
	return 0, io.EOF
}

func TestProgram_StopsReadingItsInputWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	var errs strings.Builder
	p := hubcli.Program{Name: "app hub", Stdin: interrupting{interrupt, t.Context().Done()}, Stdout: io.Discard, Stderr: &errs}
	if code := p.Run(ctx, []string{"start", "Hello", "--input-file", "-"}); code != hubcli.ExitFailed || !strings.Contains(errs.String(), "context canceled") {
		t.Errorf("exit code %d with %q, want %d", code, errs.String(), hubcli.ExitFailed)
	}
}

func TestProgram_PrintsWhyAHubIsUnreachable(t *testing.T) {
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

func TestProgram_MasksSecretsInErrors(t *testing.T) {
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

func TestProgram_SendsTheKeyAndReleasesTheHub(t *testing.T) {
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

// Lists are aligned only on a terminal; programs read them with tabs.
func TestProgram_PrintsColumnsAndColorsForTerminalsOnly(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		terminal, colors bool
		want             string
	}{
		{false, false, "failed\tHello\tFailed\t2026"},
		{true, false, "failed  Hello  Failed     2026"},
		{true, true, "failed  Hello  \x1b[31mFailed\x1b[0m     2026"},
	} {
		var out strings.Builder
		p := hubcli.Program{
			Name: "app hub", Stdout: &out, Stderr: io.Discard, Terminal: tt.terminal, Colors: tt.colors,
			Open: func(context.Context) (*hubcli.Target, error) {
				return &hubcli.Target{Client: &http.Client{Transport: &asking{}}, Base: "http://app/api/durabletask"}, nil
			},
		}
		if code := p.Run(t.Context(), []string{"list", "--all"}); code != 0 || !strings.Contains(out.String(), tt.want) {
			t.Errorf("terminal %t, colours %t: %d\n%q, want %q in it", tt.terminal, tt.colors, code, out.String(), tt.want)
		}
	}
}

// changing is a hub that returns a different page for each request.
type changing struct {
	pages []string
	done  func() // called before the last page is repeated
}

func (c *changing) RoundTrip(*http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	_, _ = io.WriteString(w, c.pages[0])
	if len(c.pages) > 1 {
		c.pages = c.pages[1:]
	} else {
		c.done()
	}
	return w.Result(), nil
}

func TestTail_ShowsTheInstancesWhoseStatusChangesUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	api := &changing{done: stop, pages: []string{
		"[" + instance("a", "Running", "null") + "]",
		"[" + instance("a", "Running", "null") + "," + instance("b", "Pending", "null") + "]",
		"[" + instance("a", "Completed", "1") + "," + instance("b", "Pending", "null") + "]",
		"[]",
	}}
	var out strings.Builder
	p := hubcli.Program{Name: "app hub", Stdout: &out, Stderr: io.Discard, Open: func(context.Context) (*hubcli.Target, error) {
		return &hubcli.Target{Client: &http.Client{Transport: api}, Base: "http://app"}, nil
	}}
	code := p.Run(ctx, []string{"tail", "--every", "1ms"})
	want := "2026-11-21T12:00:05Z\tPending\tHello\tb\n2026-11-21T12:00:05Z\tCompleted\tHello\ta\n"
	if code != 0 || out.String() != want {
		t.Errorf("%d\n%s, want\n%s", code, out.String(), want)
	}
}

// Runs the scripts in the shells that are installed.
func TestCompletion_ScriptsCompleteVerbsFlagsAndValues(t *testing.T) {
	t.Parallel()
	for shell, ask := range map[string]string{
		"bash": "%s\n" + `COMP_WORDS=(%s ''); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _my_app; echo " ${COMPREPLY[@]} "`,
		"zsh": `compdef() { }; compadd() { shift; echo " $* "; }; _files() { echo ' files '; }
%s
words=(%s ''); CURRENT=${#words}; _my_app`,
		"fish": "%s\n" + `function commandline; string split ' ' '%s'; end; echo " "(_my_app)" "`,
	} {
		var script strings.Builder
		p := hubcli.Program{Name: "my-app hub", Stdout: &script, Stderr: io.Discard}
		if code := p.Run(t.Context(), []string{"completion", shell}); code != 0 {
			t.Fatalf("%s: exit code %d", shell, code)
		}
		for line, want := range map[string]string{
			"my-app":                      " hub ",
			"my-app hub":                  " terminate ",
			"my-app hub entity":           " signal ",
			"my-app hub entity list":      " --state ",
			"my-app hub start Hello":      " --input-file ",
			"my-app hub list --output":    " json ",
			"my-app hub purge --status":   " Failed ",
			"my-app hub completion":       " fish ",
			"my-app hub list --name":      " --dry-run ", // not offered
			"my-app hub terminate --name": " --dry-run ",
		} {
			if !strings.Contains(script.String(), strings.TrimSpace(want)) {
				t.Errorf("%s has no %s", shell, want)
			}
			program, err := exec.LookPath(shell)
			if err != nil {
				continue
			}
			out, err := exec.CommandContext(t.Context(), program, "-c", fmt.Sprintf(ask, script.String(), line)).CombinedOutput()
			text := strings.ReplaceAll(string(out), "\n", " ")
			if missing := line == "my-app hub list --name"; err != nil || strings.Contains(text, want) == missing {
				t.Errorf("%s completes %q with %v:\n%s", shell, line, err, text)
			}
		}
	}
}
