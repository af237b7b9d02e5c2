package handler

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/google/go-cmp/cmp"
)

const answerJSON = "\nContent-Type: application/json; charset=utf-8"

// entityHub is a hub with entities as .NET stores them, including a deleted one.
func entityHub() *fakeHub {
	hub := newFakeHub()
	put := func(id, state, status string) {
		hub.put(id, history.Running, func(i *provider.InstanceState) {
			i.Input, i.CustomStatus = new(state), new(status)
		})
	}
	put("@counter@k 1", `{"state":"{\"total\":7}","sorter":{}}`, `{"entityExists":true}`)
	put("@counter@gone", `{"sorter":{}}`, `{}`)
	put("@counter@", `{"exists":true,"state":"null","sorter":{}}`, `{"entityExists":true,"lockedBy":"abc"}`)
	put("@text@x", `{"state":"no JSON","sorter":{}}`, `{"entityExists":true}`)
	hub.put("counter", history.Completed, nil)
	return hub
}

// See HttpApiHandler.cs, HandleGetEntityRequestAsync.
func TestReadEntity_AnswersWithTheState(t *testing.T) {
	t.Parallel()
	s := readyServer(t, App{}, fakeConfig(t, entityHub()))
	for path, want := range map[string]string{
		"entities/counter/k%201":     "200" + answerJSON + "\n" + `{"total":7}`,
		"Entities/COUNTER/k%201?x=y": "200" + answerJSON + "\n" + `{"total":7}`,
		"entities/counter/$":         "200" + answerJSON + "\nnull",
		"entities/text/x":            "200" + answerJSON + "\n" + `"no JSON"`,
		"entities/counter/K%201":     "404",
		"entities/counter/gone":      "404",
		"entities/counter/none":      "404",
		"entities/other/k%201":       "404",
		"entities/a@b/k":             "400" + answerJSON + "\n" + `{"Message":"Entity names must not contain @; \"a@b\" does."}`,
	} {
		compare(t, path, answerText(s, "GET", "/api/durabletask/"+path, ""), want)
	}
}

// See HttpApiHandler.cs, HandleListEntitiesRequestAsync.
func TestListEntities_AnswersLikeTheExtension(t *testing.T) {
	t.Parallel()
	hub := entityHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	row := func(name, key, state string) string {
		return `{"entityId":{"name":"` + name + `","key":"` + key + `"},"lastOperationTime":"2026-01-05T10:20:30.1234567Z","state":` + state + `}`
	}
	const head = "200" + answerJSON + "\nx-ms-continuation-token: "
	const base = "/api/durabletask/entities"
	compare(t, "all", answerText(s, "GET", base, ""), head+"\n["+row("counter", "", "null")+","+row("counter", "k 1", "null")+","+row("text", "x", "null")+"]")
	compare(t, "with state", answerText(s, "GET", base+"/Counter?fetchState=TRUE", ""),
		head+"\n["+row("counter", "", "null")+","+row("counter", "k 1", `{"total":7}`)+"]")
	compare(t, "first page", answerText(s, "GET", base+"/counter/?top=1", ""), head+provider.EncodeContinuation("@counter@gone")+"\n["+row("counter", "", "null")+"]")
	compare(t, "next page", answerText(s, "GET", base+"/counter?top=1", "", management.HeaderContinuation, provider.EncodeContinuation("@counter@gone")), head+"\n["+row("counter", "k 1", "null")+"]")
	compare(t, "nobody", answerText(s, "GET", base+"/nobody", ""), head+"\n[]")
	compare(t, "a bad size", answerText(s, "GET", base+"?top=0", ""), "400"+answerJSON+"\n"+`{"Message":"top is 0; want 1 or more."}`)

	hub.queries = nil
	call(s, "GET", base+"/counter?lastOperationTimeFrom=2026-01-05&lastOperationTimeTo=2026-01-06T00:00:00Z&top=5000&fetchState=true", "")
	want := []provider.Query{{
		IDPrefix: "@counter@", PageSize: 1000, Fetch: provider.Fetch{Input: true},
		CreatedFrom: time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC), CreatedTo: time.Date(2026, 1, 6, 0, 0, 0, 0, time.UTC),
	}}
	if diff := cmp.Diff(hub.queries, want); diff != "" {
		t.Errorf("queries (-got +want):\n%s", diff)
	}
}

// See HttpApiHandler.cs, HandlePostEntityOperationRequestAsync.
func TestSignalEntity_SendsTheBodyAsInput(t *testing.T) {
	t.Parallel()
	const jsonType, textType = "application/json; charset=utf-8", "text/plain"
	for _, c := range []struct {
		name, method, path, media, body string
		want                            string // the expected answer
		target, request                 string // the constant part of the expected message
	}{
		{"an operation", "POST", "counter/k%201?op=add", jsonType, ` {"n": 7} `, "202", "@counter@k 1", `{"op":"add","signal":true,"input":"{\"n\":7}","id":`},
		{"without an input", "POST", "Counter/K?op=Get", jsonType, "", "202", "@counter@K", `{"op":"Get","signal":true,"id":`},
		{"with null", "POST", "counter/k?op=set", jsonType, "null", "202", "@counter@k", `{"op":"set","signal":true,"id":`},
		{"with a text", "POST", "counter/k?op=set", textType, "a <b>", "202", "@counter@k", `{"op":"set","signal":true,"input":"\"a <b>\"","id":`},
		{"with no media type", "POST", "counter/k?op=set", "", "7", "202", "@counter@k", `{"op":"set","signal":true,"input":"\"7\"","id":`},
		{"without a name", "POST", "counter/k", jsonType, "", "202", "@counter@k", `{"op":"","signal":true,"id":`},
		{"of the empty key", "POST", "counter?op=get", jsonType, "", "202", "@counter@", `{"op":"get","signal":true,"id":`},
		{"of the key $", "POST", "counter/$?op=get", jsonType, "", "202", "@counter@$", `{"op":"get","signal":true,"id":`},
		{"deletion", "DELETE", "counter/k?op=x", "", "", "202", "@counter@k", `{"op":"delete","signal":true,"id":`},
		{"what is no JSON", "POST", "counter/k?op=add", jsonType, "{", "400" + answerJSON + "\n" + `{"Message":"Could not parse JSON content: unexpected end of JSON input"}`, "", ""},
		{"a name with @", "POST", "a@b/k?op=add", jsonType, "1", "400" + answerJSON + "\n" + `{"Message":"Entity names must not contain @; \"a@b\" does."}`, "", ""},
		{
			"a key with #", "POST", "counter/a%23b?op=add", jsonType, "1",
			"400" + answerJSON + "\n" + `{"Message":"Instance IDs must not contain /, \\, #, ? or control characters; \"@counter@a#b\" contains '#'."}`, "", "",
		},
		{"another method", "PUT", "counter/k?op=add", jsonType, "1", "404", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			hub := entityHub()
			s := readyServer(t, App{}, fakeConfig(t, hub))
			compare(t, "answer", answerText(s, c.method, "/api/durabletask/entities/"+c.path, c.body, "Content-Type", c.media), c.want)
			if c.target == "" {
				if len(hub.sent) > 0 {
					t.Errorf("sent %+v", hub.sent[0])
				}
				return
			}
			if len(hub.sent) != 1 {
				t.Fatalf("sent %d messages", len(hub.sent))
			}
			e, ok := hub.sent[0].Event.(*history.EventRaised)
			if target := hub.sent[0].Target; !ok || e.Name != "op" || target.InstanceID != c.target || target.ExecutionID != "" {
				t.Errorf("sent %+v to %+v, want op to %s", hub.sent[0].Event, target, c.target)
			}
			if ok && !strings.HasPrefix(*e.Input, c.request) {
				t.Errorf("sent %s, want %s…", *e.Input, c.request)
			}
		})
	}
}

func TestEntities_AreNotServedWhileTheStorageIsUnreachable(t *testing.T) {
	t.Parallel()
	hub := entityHub()
	s := readyServer(t, App{}, fakeConfig(t, hub))
	hub.mu.Lock()
	hub.outage = errors.New("connection refused")
	hub.mu.Unlock()
	for _, request := range []string{"GET entities", "GET entities/counter/k", "POST entities/counter/k?op=add", "DELETE entities/counter/k"} {
		method, path, _ := strings.Cut(request, " ")
		if w := call(s, method, "/api/durabletask/"+path, ""); w.Code < 500 {
			t.Errorf("%s: %d, want an error of the server", request, w.Code)
		}
	}
}
