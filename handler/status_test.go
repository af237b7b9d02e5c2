package handler

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/google/go-cmp/cmp"
)

// See HttpApiHandler.cs, HandleGetStatusRequestAsync; StatusResponsePayload.cs.
func TestStatus_CodeAndHeadersFollowTheRuntimeStatus(t *testing.T) {
	t.Parallel()
	for status := history.Running; status <= history.Suspended; status++ {
		for _, errorOnFailure := range []string{"", "&returnInternalServerErrorOnFailure=True"} {
			hub := newFakeHub()
			hub.put("i", status, nil)
			s := readyServer(t, App{}, fakeConfig(t, hub))
			target := "/api/durabletask/instances/i?taskHub=MyHub&connection=Storage&code=k" + errorOnFailure
			code, headers := "200", ""
			switch status {
			case history.Pending, history.Running, history.ContinuedAsNew, history.Suspended:
				code, headers = "202", "\nLocation: http://localhost:8080"+target+"\nRetry-After: 5"
			case history.Failed:
				if errorOnFailure != "" {
					code = "500"
				}
			default:
			}
			want := code + headers + "\nContent-Type: application/json; charset=utf-8\n" +
				`{"name":"Greet","instanceId":"i","runtimeStatus":"` + status.String() + `","input":null,"customStatus":null,"output":null,` +
				`"createdTime":"2026-01-05T10:20:30Z","lastUpdatedTime":"2026-01-05T10:20:41Z"}`
			compare(t, status.String()+errorOnFailure, answerText(s, "GET", target, ""), want)
		}
	}
}

func TestStatus_MatchesTheExampleOfTheDocumentation(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("0f1c", history.Completed, func(i *provider.InstanceState) {
		i.Name, i.Input, i.Output = "MyOrchestrator", new(`{"city": "Oslo"}`), new(`[1, 2, 3]`)
	})
	s := readyServer(t, App{}, fakeConfig(t, hub))
	const head = "200\nContent-Type: application/json; charset=utf-8\n" + `{"name":"MyOrchestrator","instanceId":"0f1c","runtimeStatus":"Completed","input":`
	const tail = `,"customStatus":null,"output":[1,2,3],"createdTime":"2026-01-05T10:20:30Z","lastUpdatedTime":"2026-01-05T10:20:41Z"}`
	compare(t, "with input", answerText(s, "GET", "/api/durabletask/instances/0f1c", ""), head+`{"city":"Oslo"}`+tail)
	compare(t, "without", answerText(s, "GET", "/api/durabletask/instances/0f1c?SHOWINPUT=FALSE", ""), head+"null"+tail)
	compare(t, "as given", answerText(s, "GET", "/api/durabletask/instances/0f1c?showInput=perhaps", ""), head+`{"city":"Oslo"}`+tail)

	compare(t, "without output", answerText(s, "GET", "/api/durabletask/instances/0f1c?showOutput=false", ""),
		head+`{"city":"Oslo"}`+strings.Replace(tail, "[1,2,3]", "null", 1))

	hub.put("v", history.Completed, func(i *provider.InstanceState) {
		i.Version, i.CustomStatus = "1.2", new(`{"at":"<b>"}`)
	})
	compare(t, "version and custom status", answerText(s, "GET", "/api/durabletask/instances/v", ""),
		"200\nContent-Type: application/json; charset=utf-8\n"+
			`{"name":"Greet","instanceId":"v","runtimeStatus":"Completed","input":null,"customStatus":{"at":"<b>"},"output":null,`+
			`"createdTime":"2026-01-05T10:20:30Z","lastUpdatedTime":"2026-01-05T10:20:41Z","version":"1.2"}`)
}

// See ContextImplementations/DurableClient.cs, ParseToJToken.
func TestPayloadJSON_KeepsJSONAndQuotesAnythingElse(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		stored *string
		want   string
	}{
		{nil, "null"},
		{new("null"), "null"},
		{new(""), `""`},
		{new(" \n"), `""`},
		{new("because"), `"because"`},
		{new(`"a"`), `"a"`},
		{new("1.50"), "1.50"},
		{new(`{"a":[]}`), `{"a":[]}`},
		{new(`{"a":`), `"{\"a\":"`},
		{new("stop:now"), `"stop:now"`},
		{new("<&>"), `"<&>"`},
		{new("a\nb"), `"a\nb"`},
		{new("\xff"), `"\ufffd"`},
	} {
		if got := string(management.PayloadJSON(tt.stored)); got != tt.want {
			t.Errorf("payloadJSON(%v) = %s, want %s", tt.stored, got, tt.want)
		}
	}
}

func FuzzPayloadJSON(f *testing.F) {
	for _, seed := range []string{"", "null", "a", `{"a":1}`, "\xff\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stored string) {
		if got := management.PayloadJSON(&stored); !json.Valid(got) {
			t.Errorf("%q became %q, which is not JSON", stored, got)
		}
	})
}

// See HttpApiHandler.cs, HandleGetStatusRequestAsync of many instances.
func TestList_PagesWithTheContinuationHeader(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	for _, id := range []string{"a", "b", "c"} {
		hub.put(id, history.Completed, func(i *provider.InstanceState) { i.Input = new("1") })
	}
	s := readyServer(t, App{}, fakeConfig(t, hub))
	row := func(id, input string) string {
		return `{"name":"Greet","instanceId":"` + id + `","runtimeStatus":"Completed","input":` + input + `,"customStatus":null,"output":null,` +
			`"createdTime":"2026-01-05T10:20:30Z","lastUpdatedTime":"2026-01-05T10:20:41Z"}`
	}
	const head = "200\nContent-Type: application/json; charset=utf-8\nx-ms-continuation-token: "
	compare(t, "first page", answerText(s, "GET", "/api/durabletask/instances?top=2", ""), head+provider.EncodeContinuation("c")+"\n["+row("a", "1")+","+row("b", "1")+"]")
	compare(t, "last page", answerText(s, "GET", "/api/durabletask/instances/?top=2&showInput=false", "", management.HeaderContinuation, provider.EncodeContinuation("c")), head+"\n["+row("c", "null")+"]")
	compare(t, "nothing", answerText(s, "GET", "/api/durabletask/instances?instanceIdPrefix=x", ""), head+"\n[]")
	compare(t, "bad size", answerText(s, "GET", "/api/durabletask/instances?top=0", ""),
		"400\nContent-Type: application/json; charset=utf-8\n"+`{"Message":"top is 0; want 1 or more."}`)
}

func TestList_PassesFiltersOn(t *testing.T) {
	t.Parallel()
	at := func(hour int) time.Time { return time.Date(2026, 1, 5, hour, 0, 0, 0, time.UTC) }
	both := provider.Fetch{Input: true, Output: true}
	for _, tt := range []struct {
		query string
		want  provider.Query
	}{
		{"", provider.Query{Fetch: both, PageSize: 100}},
		{"top=5000", provider.Query{Fetch: both, PageSize: 1000}},
		{"TOP=%205&ShowInput=false", provider.Query{Fetch: provider.Fetch{Output: true}, PageSize: 5}},
		{"top=few", provider.Query{Fetch: both, PageSize: 100}},
		{"instanceIdPrefix=%40c%2F", provider.Query{Fetch: both, PageSize: 100, IDPrefix: "@c/"}},
		{
			"createdTimeFrom=2026-01-05T10:00:00Z&createdTimeTo=2026-01-05T13:00:00%2B01:00",
			provider.Query{Fetch: both, PageSize: 100, CreatedFrom: at(10), CreatedTo: at(12)},
		},
		{"createdTimeFrom=sometime&runtimeStatus=", provider.Query{Fetch: both, PageSize: 100}},
		{"runtimeStatus=Running,Completed&runtimeStatus=%20Failed", provider.Query{
			Fetch: both, PageSize: 100,
			Statuses: []history.RuntimeStatus{history.Running, history.Completed, history.Failed},
		}},
		{"runtimeStatus=6,running,99,Nonsense", provider.Query{Fetch: both, PageSize: 100, Statuses: []history.RuntimeStatus{history.Pending}}},
	} {
		hub := newFakeHub()
		call(readyServer(t, App{}, fakeConfig(t, hub)), "GET", "/api/durabletask/instances?"+tt.query, "")
		if diff := cmp.Diff(hub.queries, []provider.Query{tt.want}); diff != "" {
			t.Errorf("%s: got, want:\n%s", tt.query, diff)
		}
	}
}

// See HttpApiHandler.cs, TryGetDateTimeQueryParameterValue.
func TestParseTime_IsLenient(t *testing.T) {
	t.Parallel()
	day := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)
	noon := day.Add(12 * time.Hour)
	for text, want := range map[string]time.Time{
		"2026-01-05T12:00:00Z": noon, "2026-01-05T12:00:00": noon, "2026-01-05 12:00:00": noon, "2026-01-05T12:00": noon,
		"2026-01-05T14:00:00+02:00": noon, "2026-01-05T14:00:00 02:00": noon, "2026-01-05T10:00:00-0200": noon, "2026-01-05 14:00:00 02:00": noon,
		"2026-01-05T12:00:00.1234567Z": noon.Add(123456700), "2026-01-05T12:00:00.500000Z": noon.Add(500 * time.Millisecond),
		"2026-01-05": day, "1/5/2026": day, "1/5/2026 12:00:00": noon, "01/05/2026 12:00": noon, "Mon, 05 Jan 2026 12:00:00 GMT": noon,
		"1/5/2026 12:00:00 PM": noon, "1/5/2026 12:00:00\u202fAM": day, "2026/01/05": day, "2026/1/5 12:00:00": noon,
		"1-01-01T00:00:00.000000Z": time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), "": {}, "soon": {}, "2026-13-01": {}, "12:00": {},
	} {
		if got, _ := web.ParseTime(text); !got.Equal(want) {
			t.Errorf("parseTime(%q) = %v, want %v", text, got, want)
		}
	}
}

// The app does not read large outputs that the request omits.
func TestList_ReadsNoPayloadThatTheRequestOmits(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	hub.put("a", history.Completed, func(i *provider.InstanceState) { i.Input, i.Output = new("1"), new("2") })
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for query, want := range map[string]provider.Fetch{
		"":                                  {Input: true, Output: true},
		"?showInput=false":                  {Output: true},
		"?showOutput=false":                 {Input: true},
		"?showInput=false&SHOWOUTPUT=False": {},
	} {
		answer := answerText(s, "GET", "/api/durabletask/instances"+query, "")
		if got := hub.queries[len(hub.queries)-1].Fetch; got != want {
			t.Errorf("%q reads %+v, want %+v", query, got, want)
		}
		for part, shown := range map[string]bool{`"input":1`: want.Input, `"output":2`: want.Output} {
			if strings.Contains(answer, part) != shown {
				t.Errorf("%q is answered with %s; %s shown: want %t", query, answer, part, shown)
			}
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{"a=1&A=2", "top=1&runtimeStatus=Running,1", "createdTimeTo=2/1/2026 12:00:00 AM&runtimeStatus=,", "createdTimeFrom=0-0-0 00:00", "timeout=1e400&pollingInterval=-1", "%zz=1&=x&&a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q := web.ParseQuery(raw)
		q.Time("createdTimeFrom")
		q.Statuses("runtimeStatus")
		q.Boolean("showInput", true)
		q.Number("top")
		if d, ok := q.Seconds("timeout"); ok && d.Abs() > 150*365*24*time.Hour {
			t.Errorf("a timeout of %v", d)
		}
	})
}

func TestStatus_HistoryIsShownOnRequest(t *testing.T) {
	t.Parallel()
	hub := newFakeHub()
	events := []history.Event{&history.EventRaised{Header: history.Header{Timestamp: fakeTime.Truncate(time.Second)}, Name: "E"}}
	for id, status := range map[string]history.RuntimeStatus{"run": history.Completed, "wait": history.Pending, "none": history.Completed} {
		hub.put(id, status, nil)
		hub.histories[id] = events
	}
	delete(hub.histories, "none")
	s := readyServer(t, App{}, fakeConfig(t, hub))
	for target, want := range map[string]string{
		"run": "", "run?showHistory=true": `,"historyEvents":[{"EventType":"EventRaised","Name":"E","Input":null,"ParentTraceContext":null,"Timestamp":"2026-01-05T10:20:30Z"}]`,
		"run?showHistory=true&showInput=false": `,"historyEvents":[{"EventType":"EventRaised","Name":"E","ParentTraceContext":null,"Timestamp":"2026-01-05T10:20:30Z"}]`,
		"wait?showHistory=true":                "", "none?showHistory=true": `,"historyEvents":[]`,
	} {
		got := call(s, "GET", "/api/durabletask/instances/"+target, "").Body.String()
		if _, tail, _ := strings.Cut(got, `"lastUpdatedTime":"2026-01-05T10:20:41Z"`); tail != want+"}" {
			t.Errorf("%s: %s, want …%s}", target, got, want)
		}
	}
}
