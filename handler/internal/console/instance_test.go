package console

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

func TestInstance_FormsPerformTheirActions(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	do := func(id, action string, fields ...string) (notice string) {
		t.Helper()
		form := url.Values{"id": {id}, "action": {action}}
		for i := 0; i < len(fields); i += 2 {
			form.Set(fields[i], fields[i+1])
		}
		w := a.post("instance/act", form)
		if w.Code != http.StatusSeeOther {
			t.Fatalf("%s: %d %s", action, w.Code, w.Body)
		}
		cookie, _, _ := strings.Cut(w.Header().Get("Set-Cookie"), ";")
		notice, _ = url.QueryUnescape(cookie)
		return notice
	}
	a.await(a.start("Waits", "i"), history.Running)
	do("i", "suspend", "reason", "lunch")
	a.await("i", history.Suspended)
	if why := a.part("instance/why?id=i"); !strings.Contains(why, "suspended: lunch") || !strings.Contains(why, `event &#34;Approval&#34;`) {
		t.Errorf("why: %s", why)
	}
	do("i", "resume")
	a.await("i", history.Running)
	if w := a.post("instance/raise", url.Values{"id": {"i"}, "event": {"Approval"}, "payload": {`yes`}}); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "A text needs quotes") {
		t.Errorf("a payload that is not JSON: %d %s", w.Code, w.Body)
	}
	if w := a.post("instance/raise", url.Values{"id": {"i"}, "event": {""}}); w.Code != http.StatusBadRequest {
		t.Errorf("an event without a name: %d %s", w.Code, w.Body)
	}
	if w := a.post("instance/raise", url.Values{"id": {"i"}, "event": {"approval"}, "payload": {` "yes" `}}); w.Code != http.StatusSeeOther {
		t.Errorf("raise: %d %s", w.Code, w.Body)
	}
	if s := a.await("i", history.Completed); *s.Output != `"yes"` {
		t.Errorf("the output is %s", *s.Output)
	}
	if w := a.post("instance/act", url.Values{"id": {"i"}, "action": {"terminate"}}); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "The instance is Completed; to terminate it, it must be Pending") {
		t.Errorf("terminate an ended instance: %d %s", w.Code, w.Body)
	}
	id := regexp.MustCompile(`The new instance is (\w+)\.`).FindStringSubmatch(do("i", "restart"))
	if id == nil {
		t.Fatal("the new ID is not shown")
	}
	a.await(id[1], history.Running)
	do(id[1], "terminate", "reason", "enough", "option", "1")
	a.await(id[1], history.Terminated)
	do("i", "restart", "option", "1")
	a.await("i", history.Running)
	do(id[1], "purge", "option", "1")
	if w := a.send(http.MethodGet, "instance?id="+id[1], nil, nil); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "There is no instance") {
		t.Errorf("purged: %d %s", w.Code, w.Body)
	}
	a.await(a.start("Broken", "b"), history.Failed)
	do("b", "rewind", "reason", "again")
	for s := a.await("b", history.Failed); ; s = a.await("b", history.Failed) {
		events, err := a.client.History(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(events); len(events) > 4 && s.Status == history.Failed && text != "" {
			break
		}
	}
	for _, path := range []string{"", "/why", "/timeline", "/status", "/children", "/history", "/payload"} {
		if w := a.send(http.MethodGet, "instance"+path+"?id=nobody&field=input", nil, nil); w.Code != http.StatusNotFound {
			t.Errorf("%s of an unknown instance: %d %s", path, w.Code, w.Body)
		}
	}
}

// A family is an orchestration with a child, a timer, and an activity with retries.
func family(fail *bool) []*durable.Registration {
	return []*durable.Registration{
		durable.Orchestrator("Parent", func(ctx *durable.Context, _ durable.Void) (string, error) {
			ctx.Sleep(time.Millisecond)
			policy := &durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Millisecond}
			if _, err := durable.ActivityName[string, string]("Charge").Call(ctx, "<em>card</em>", policy).Await(); err != nil {
				return "", err
			}
			return durable.OrchestratorName[durable.Void, string]("Waits").Call(ctx, durable.Void{}, durable.InstanceID("the child")).Await()
		}),
		durable.Orchestrator("Waits", waits),
		durable.Activity("Charge", func(context.Context, string) (string, error) {
			if *fail {
				*fail = false
				return "", errors.New("no <u>money</u>")
			}
			return "paid", nil
		}),
	}
}

func TestInstance_PartsShowTheHistory(t *testing.T) {
	t.Parallel()
	fail := true
	a := newHubApp(t, family(&fail)...)
	a.start("Parent", "the parent", durable.Tags{"team": "blue"}, durable.Version("2.0"))
	a.await("the child", history.Running)
	query := "?id=the+parent"
	timeline := html.UnescapeString(a.part("instance/timeline" + query))
	for _, want := range []string{
		`<span class="kind timer">timer</span>`, `<span class="kind activity">activity</span> Charge`, `done, attempt 2`,
		`<span class="kind child">child</span> Waits <a href="` + base + `/instance?id=the+child">the child</a>`, `<rect class="pause"`, `<rect class="activity failed"`, `<rect class="child open"`,
	} {
		if !strings.Contains(timeline, want) {
			t.Errorf("the timeline lacks %s:\n%s", want, timeline)
		}
	}
	child := html.UnescapeString(a.part("instance/timeline?id=the+child"))
	for _, want := range []string{`Child of <a href="` + base + `/instance?id=the+parent">the parent</a>`, `<span class="kind event">event</span> Approval`, "open"} {
		if !strings.Contains(child, want) {
			t.Errorf("the child's timeline lacks %s:\n%s", want, child)
		}
	}
	tree := a.part("instance/children" + query)
	if !strings.Contains(tree, ">the child</a>") || !strings.Contains(tree, ">Running<") {
		t.Errorf("the children are %s", tree)
	}
	if leaf := a.part("instance/children?id=the+child"); !strings.Contains(leaf, "No children") {
		t.Errorf("the child's children are %s", leaf)
	}
	status := a.part("instance/status" + query)
	for _, want := range []string{">Running<", "Parent, version 2.0", "team=blue", "No output yet"} {
		if !strings.Contains(status, want) {
			t.Errorf("the status lacks %s: %s", want, status)
		}
	}
	events := a.part("instance/history" + query)
	failed := follow(events, `hx-get="([^"]+field=FailureDetails[^"]*)"`)
	if text := html.UnescapeString(a.part(failed)); !strings.Contains(text, "no <u>money</u>") {
		t.Errorf("the failure is %s", text)
	}
	input := follow(events, `<td class="nowrap">TaskScheduled</td>(?s:.*?)hx-get="([^"]+field=Input[^"]*)"`)
	if input != "" { // the hub keeps inputs
		if text := a.part(input); !strings.Contains(text, "card") {
			t.Errorf("the input is %s", text)
		}
	}
	if w := a.send(http.MethodGet, strings.Replace(failed, "execution=", "execution=x", 1), nil, nil); w.Code != http.StatusNotFound {
		t.Errorf("an event of another execution: %d %s", w.Code, w.Body)
	}
	for _, bad := range []string{"event=x", "event=-1", "event=99", "field=nonsense"} {
		if w := a.send(http.MethodGet, "instance/payload"+query+"&"+bad, nil, nil); w.Code != http.StatusNotFound && w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
	page := a.get("instance" + query)
	for _, want := range []string{"curl", "/api/durabletask/instances/the%20parent/raiseEvent/NAME", "$DURABLE_KEY", "Terminate the instance", `aria-label="Breadcrumb"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, theKey) {
		t.Error("the page has the key")
	}
}

func TestTraceURL_NamesTheTraceOfTheStart(t *testing.T) {
	t.Parallel()
	start := &history.ExecutionStarted{ParentTraceContext: &history.TraceContext{TraceParent: "00-0af7-b7ad-01"}}
	for template, want := range map[string]string{"": "", "https://t/{traceId}/{spanId}": "https://t/0af7/b7ad"} {
		if got := traceURL(template, start); got != want {
			t.Errorf("%q becomes %q, want %q", template, got, want)
		}
	}
	hostile := &history.ExecutionStarted{ParentTraceContext: &history.TraceContext{TraceParent: "00-a/../b?c#d-x"}}
	if got := traceURL("https://t/{traceId}", hostile); got != "https://t/a%2F..%2Fb%3Fc%23d" {
		t.Errorf("a trace ID becomes %s", got)
	}
	for _, none := range []*history.ExecutionStarted{{}, {ParentTraceContext: &history.TraceContext{TraceParent: "nonsense"}}} {
		if got := traceURL("https://t/{traceId}", none); got != "" {
			t.Errorf("without a trace it is %s", got)
		}
	}
}

// evil is a text that is markup or code if a page does not escape it.
const evil = `"'><script>alert(1)</script><img src=x onerror=alert(1)>{{.}}&amp;${x}` + "`"

// checkEvilIsText checks that a page or part shows evil as text.
func checkEvilIsText(t *testing.T, path, page string) {
	t.Helper()
	for _, bad := range []string{"<script>alert", "<img src=x", `"'>`, "onerror=alert(1)>"} {
		if strings.Contains(page, bad) {
			t.Errorf("%s has %s:\n%s", path, bad, page)
		}
	}
	if !strings.Contains(page, "alert(1)") {
		t.Errorf("%s does not show it:\n%s", path, page)
	}
}

// Names and payloads are text in each page and part.
func TestInstance_NoTextBecomesMarkup(t *testing.T) {
	t.Parallel()
	id := "id " + strings.ReplaceAll(evil, "/", "")
	a := newHubApp(
		t,
		durable.Orchestrator(evil, func(ctx *durable.Context, _ durable.Void) (string, error) {
			ctx.SetCustomStatus(evil)
			_, _ = durable.ActivityName[string, string](evil).Call(ctx, evil).Await()
			_, err := durable.OrchestratorName[durable.Void, string]("Waits").Call(ctx, durable.Void{}, durable.InstanceID("child "+id)).Await()
			return evil, err
		}),
		durable.Activity(evil, func(context.Context, string) (string, error) { return "", errors.New(evil) }),
		durable.Orchestrator("Waits", func(ctx *durable.Context, _ durable.Void) (string, error) {
			return durable.Event[string](evil).Wait(ctx).Await()
		}),
	)
	a.start(evil, id, durable.Tags{evil: evil}, durable.Version(evil))
	a.await("child "+id, history.Running)
	looks := func(path, got string) { t.Helper(); checkEvilIsText(t, path, got) }
	query := instanceQuery(id)
	for _, path := range []string{"instances", "instances?name=" + url.QueryEscape(evil), "instance?" + query} {
		looks(path, a.get(path))
	}
	for _, part := range []string{"status", "why", "timeline", "children", "history"} {
		looks(part, a.part("instance/"+part+"?"+query))
	}
	looks("why of the child", a.part("instance/why?"+instanceQuery("child "+id)))
	events := a.part("instance/history?" + query)
	looks("a payload", a.part(follow(events, `hx-get="([^"]+field=FailureDetails[^"]*)"`)))
	looks("the preview", a.post("instances/preview", url.Values{"id": {id}, "action": {"terminate"}, "name": {evil}}).Body.String())
	w := a.send(http.MethodGet, "instance/payload?field=customStatus&download=1&"+query, nil, nil)
	if w.Header().Get("Content-Type") != "text/plain; charset=utf-8" || w.Header().Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(w.Header().Get("Content-Disposition"), "attachment") {
		t.Errorf("a download has the header %v", w.Header())
	}
	// Links work with these names, too.
	if page := a.get(follow(a.get("instances?name="+url.QueryEscape(evil)), `<td class="id"><a href="([^"]+)"`)); !strings.Contains(page, html.EscapeString("child")) && !strings.Contains(page, "<h1>") {
		t.Error("the link does not lead to the page")
	}
	if w := a.post("instance/act", url.Values{"id": {id}, "action": {"terminate"}, "reason": {evil}}); w.Code != http.StatusSeeOther {
		t.Errorf("terminate: %d %s", w.Code, w.Body)
	}
	a.await(id, history.Terminated)
	looks("why it ended", a.part("instance/why?"+query))
	looks("output", a.part("instance/payload?field=output&"+query))
}

func TestInstanceURL_LeadsToEntitiesToo(t *testing.T) {
	t.Parallel()
	v := view{Base: base}
	for id, want := range map[any]string{
		"a b": "/instance?id=a+b", durable.InstanceID("x"): "/instance?id=x", "@counter@a b": "/entity?key=a+b&name=counter", "@nothing": "/instance?id=%40nothing",
	} {
		if got := instanceURL(v, id); got != base+want {
			t.Errorf("%q leads to %s, want %s", id, got, want)
		}
	}
}

func TestInstance_ChildrenAreShownInPages(t *testing.T) {
	t.Parallel()
	const children = 2*childrenPerPage + 7
	a := newHubApp(
		t,
		durable.Orchestrator("Fan", func(ctx *durable.Context, _ durable.Void) (string, error) {
			for i := range children {
				durable.OrchestratorName[durable.Void, string]("Quick").Call(ctx, durable.Void{}, durable.InstanceID(fmt.Sprintf("child-%03d", i)))
			}
			return durable.Event[string]("Go").Wait(ctx).Await()
		}),
		durable.Orchestrator("Quick", quick),
	)
	a.start("Fan", "i")
	for i := range children {
		a.await(fmt.Sprintf("child-%03d", i), history.Completed)
	}
	if _, err := a.client.Purge(t.Context(), "child-000"); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path := "instance/children?id=i"; path != ""; path = follow(a.part(path), `hx-get="([^"]+from=[^"]+)">Next`) {
		part := a.part(path)
		shown := regexp.MustCompile(`>(child-\d+)</a>`).FindAllStringSubmatch(part, -1)
		if len(shown) > childrenPerPage {
			t.Errorf("%d children are on one page", len(shown))
		}
		for _, m := range shown {
			if m[1] != fmt.Sprintf("child-%03d", seen) {
				t.Fatalf("%s stands where number %d is due", m[1], seen)
			}
			seen++
		}
		if gone := strings.Contains(part, ">not found<"); gone != strings.Contains(part, "child-000") {
			t.Errorf("which children are not there: %s", part)
		}
	}
	if seen != children {
		t.Errorf("%d of %d children are seen", seen, children)
	}
}

// The reasons include what the worker of the app knows.
func TestInstance_WhyIncludesTheKnowledgeOfTheWorker(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	a := newHubApp(t,
		durable.Orchestrator("Works", func(ctx *durable.Context, _ durable.Void) (string, error) {
			return durable.ActivityName[durable.Void, string]("Slow").Call(ctx, durable.Void{}).Await()
		}),
		durable.Activity("Slow", func(context.Context, durable.Void) (string, error) { <-release; return "", nil }),
		durable.Orchestrator("Lacks", func(ctx *durable.Context, _ durable.Void) (string, error) {
			return durable.ActivityName[durable.Void, string]("Nope").Call(ctx, durable.Void{}).Await()
		}),
	)
	defer close(release)
	a.start("Works", "works")
	a.start("Lacks", "lacks")
	for id, wants := range map[string][]string{
		"works": {`activity "Slow", running on this worker`, ", running since "},
		"lacks": {`activity "Nope", queued or running on another worker`, `held back: Waits for a worker that has an activity named "Nope".`},
	} {
		patience.Until(t, fmt.Sprintf("%s waits for %q", id, wants), func() bool {
			why := html.UnescapeString(a.part("instance/why?id=" + id))
			return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(why, want) })
		})
	}
}

// No event records a step that runs. The worker of the app knows it.
func TestInstance_ShowsAStepThatRuns(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	failed := false
	a := newHubApp(t, durable.Orchestrator("Runs", func(ctx *durable.Context, _ durable.Void) (string, error) {
		return durable.Step(ctx, "charge", func(context.Context) (string, error) {
			if !failed {
				failed = true
				return "", errors.New("out of order")
			}
			<-release
			return "", nil
		}, durable.RetryPolicy{MaxAttempts: 2, FirstInterval: time.Millisecond}).Await()
	}), durable.Orchestrator("Once", func(ctx *durable.Context, _ durable.Void) (string, error) {
		return durable.Step(ctx, "pay", func(context.Context) (string, error) {
			<-release
			return "", nil
		}, durable.AtMostOnce).Await()
	}))
	defer close(release)
	a.start("Runs", "runs")
	a.start("Once", "once")
	for part, wants := range map[string][]string{
		"why":      {`step "charge", attempt 2 of 2, running on this worker`, ", running since "},
		"timeline": {`<span class="kind step">step</span> charge`, `open, attempt 2`, `<rect class="step failed"`, `<rect class="step open"`},
	} {
		patience.Until(t, fmt.Sprintf("%s has %q", part, wants), func() bool {
			got := html.UnescapeString(a.part("instance/" + part + "?id=runs"))
			return !slices.ContainsFunc(wants, func(want string) bool { return !strings.Contains(got, want) })
		})
	}
	patience.Until(t, "a step whose start is recorded runs", func() bool { return strings.Contains(a.part("instance/why?id=once"), "running on this worker") })
	if n := strings.Count(a.part("instance/timeline?id=once"), `<span class="kind step">step</span> pay`); n != 1 {
		t.Errorf("the timeline shows it %d times", n)
	}
}

func TestActions_DependOnTheStatus(t *testing.T) {
	t.Parallel()
	a := newHubApp(t, usual()...)
	a.await(a.start("Waits", "runs"), history.Running)
	a.await(a.start("Waits", "rests"), history.Running)
	if err := a.client.Suspend(t.Context(), "rests", ""); err != nil {
		t.Fatal(err)
	}
	a.await("rests", history.Suspended)
	a.await(a.start("Quick", "ended"), history.Completed)
	a.await(a.start("Broken", "failed"), history.Failed)
	for path, want := range map[string]string{
		"instance?id=runs": "suspend terminate raise", "instance?id=rests": "resume terminate raise", "instance?id=ended": "restart purge", "instance?id=failed": "rewind restart purge",
		"instances": "suspend resume terminate rewind restart purge", "instances?name=Broken": "rewind restart purge", "instances?status=Running": "suspend terminate", "instances?name=Nobody": "",
	} {
		page := a.get(path)
		var offered []string
		for _, m := range regexp.MustCompile(`name="action" value="(\w+)"`).FindAllStringSubmatch(page, -1) {
			offered = append(offered, m[1])
		}
		if strings.Contains(page, "/instance/raise") {
			offered = append(offered, "raise")
		}
		if got := strings.Join(offered, " "); got != want {
			t.Errorf("%s offers %q, want %q", path, got, want)
		}
	}
}
