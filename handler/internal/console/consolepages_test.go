package console_test

import (
	"flag"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/browsertest"
	"golang.org/x/sync/errgroup"
)

// long raises 250 events and then waits for events until one is "end".
func long(ctx *durable.Context, _ struct{}) (string, error) {
	for range 250 {
		_ = durable.Event[string]("Hi").RaiseFrom(ctx, "unknown", "hello")
	}
	for {
		text, err := event.Wait(ctx).Await()
		if err != nil || text == "end" {
			return text, err
		}
		ctx.SetCustomStatus(text)
	}
}

func (a app) raise(t *testing.T, id durable.InstanceID, text string) {
	t.Helper()
	if err := a.client.RaiseEvent(t.Context(), id, "Go", []byte(`"`+text+`"`)); err != nil {
		t.Fatal(err)
	}
}

// texts returns the texts of all visible elements that match a CSS selector.
func texts(b *browsertest.Browser, selector string) string {
	return strings.Join(browsertest.Run(b, chromedp.Evaluate[[]string](
		fmt.Sprintf(`[...document.querySelectorAll(%q)].filter(e => e.checkVisibility()).map(e => e.innerText.trim())`, selector))), "|")
}

func TestInstance_AllPartsFollowTheInstanceAndKeepTheirPosition(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, append(orders(), durable.Orchestrator("Long", long)), withKeys)
	a.start(t, "Long", "long", "{}", "Running")
	a.awaitEvent(t, "long", "Go")
	a.signIn(b)
	b.Do(chromedp.Navigate(a.url+"/instance?id=long"), browsertest.See(`//*[@id="why"]//li[contains(.,'event "Go"')]`), browsertest.See(`//*[@id="output"][contains(.,"No output yet")]`))
	b.Do(browsertest.Press(`//details[@id="history"]/summary`), browsertest.See(`//*[contains(.,"1 to 200 of")]`))
	b.Do(browsertest.Press(`//*[@id="history"]//button[.="Next"]`), browsertest.See(`//*[@id="history"]//span[starts-with(.,"201 to")]`))
	b.Do(browsertest.Press(`(//*[@id="history"]//td[.="EventSent"]/..//summary)[1]`), browsertest.See(`(//*[@id="history"]//td[.="EventSent"]/..//pre)[1]`))
	b.Do(browsertest.Press(`//*[@id="timeline"]//button[.="Next actions"]`), browsertest.See(`//*[@id="timeline"]//span[starts-with(.,"201 to")]`))

	a.raise(t, "long", "one more")
	b.Do(browsertest.See(`//pre[contains(.,"one more")]`), browsertest.See(`//*[@id="history"]//td[.="EventRaised"]`), browsertest.See(`//*[@id="timeline"]//td[contains(.,"Go")][contains(.,"event")]`))
	b.Do(browsertest.See(`(//*[@id="history"]//td[.="EventSent"]/..//pre)[1]`), browsertest.See(`//*[@id="history"]//span[starts-with(.,"201 to")]`), browsertest.See(`//*[@id="timeline"]//span[starts-with(.,"201 to")]`))
	a.raise(t, "long", "end")
	b.Do(browsertest.See(`//span[.="Completed"]`), browsertest.See(`//*[@id="why"]//h2[.="Outcome"]/..//li[contains(.,"ended")]`), browsertest.See(`//*[@id="output"]//pre[contains(.,"end")]`), browsertest.See(`//*[@id="history"]//td[.="ExecutionCompleted"]`))
	if got := texts(b, "#why"); strings.Contains(got, "event") {
		t.Errorf("the instance has ended, and the page says that it waits: %q", got)
	}
}

// The page updates at most once in five seconds, and reloads its parts only if the instance has
// changed.
func TestInstance_PartsReloadOnlyAfterChangesAndAtMostEveryFiveSeconds(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, orders(), nil)
	a.start(t, "Await", "waits", "{}", "Running")
	b.Do(browsertest.OnNewPages(`
		window.EventSource = class { static CLOSED = 2; readyState = 1; constructor() { window.source = this; } close() {} };
		window.delays = [], window.changes = 0;
		const timeout = setTimeout;
		window.setTimeout = (f, ms, ...rest) => { delays.push(ms); return timeout(f, ms, ...rest); };
		document.addEventListener("follow", (event) => { if (event.target.id === "why") changes++; });`))
	b.Do(chromedp.Navigate(a.url+"/instance?id=waits"), browsertest.See(`//*[@id="why"]//li[contains(.,'event "Go"')]`))
	delays := browsertest.Run(b, chromedp.Evaluate[[]float64](`(async () => {
		const part = document.querySelector("[data-live]"), first = part.innerHTML;
		const changed = (text) => first.replace(/data-version="[^"]*"/, 'data-version="' + text + '"');
		source.onmessage({ data: first });
		await new Promise((done) => timeoutOf(done));
		const before = changes;
		const shown = new Promise((done) => new MutationObserver((_, o) => { o.disconnect(); delays.length = 0; source.onmessage({ data: changed("fourth") }); done(); }).observe(part, { childList: true }));
		for (const text of ["first", "second", "third"]) source.onmessage({ data: changed(text) });
		await shown;
		return [before, changes, Math.max(...delays)];
		function timeoutOf(done) { setTimeout(done, 50); }
	})()`, chromedp.EvalAwaitPromise))
	if delays[0] != 0 || delays[1] != 1 || delays[2] < 1000 {
		t.Errorf("%v reloads without a change, %v after three changes, and the next in %v ms; want 0, 1, and seconds", delays[0], delays[1], delays[2])
	}
}

func TestPages_OfferOnlyActionsThatStatusAndRoleAllow(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, orders(), withKeys)
	a.start(t, "Await", "waits", "{}", "Running")
	a.start(t, "Fail", "fails", "{}", "Failed")
	a.signIn(b)
	offers := func(id, status, want string) {
		t.Helper()
		b.Do(chromedp.Navigate(a.url+"/instance?id="+id), browsertest.See(`//span[.="`+status+`"]`), browsertest.See(`//*[@aria-label="Actions"]`))
		if got := texts(b, ".actions summary"); got != want {
			t.Errorf("%s, which is %s, offers %q, want %q", id, status, got, want)
		}
	}
	offers("waits", "Running", "Raise event|Suspend|Terminate")
	offers("fails", "Failed", "Rewind|Restart|Purge")
	if err := a.client.Suspend(t.Context(), "waits", ""); err != nil {
		t.Fatal(err)
	}
	a.await(t, "waits", "Suspended")
	offers("waits", "Suspended", "Raise event|Resume|Terminate")
	if err := a.client.Resume(t.Context(), "waits", ""); err != nil {
		t.Fatal(err)
	}
	b.Do(browsertest.See(`//span[.="Running"]`), browsertest.See(`//summary[.="Suspend"]`))
	a.raise(t, "waits", "end")
	b.Do(browsertest.See(`//span[.="Completed"]`), browsertest.See(`//summary[.="Restart"]`))
	if got, want := texts(b, ".actions summary"), "Restart|Purge"; got != want {
		t.Errorf("after the end the open page offers %q, want %q", got, want)
	}
	// The list offers the actions for the selected instances.
	b.Do(chromedp.Navigate(a.url+"/instances"), browsertest.See(`//a[.="waits"]`))
	if got := texts(b, ".actions button"); got != "" {
		t.Errorf("without a selection the list offers %q", got)
	}
	b.Do(chromedp.Click(`//input[@value="fails"]`), browsertest.See(`//button[.="Rewind …"]`))
	if got, want := texts(b, ".actions button"), "Rewind …|Restart …|Purge …"; got != want {
		t.Errorf("for a failed instance the list offers %q, want %q", got, want)
	}
	b.Do(chromedp.Navigate(a.url+"/login?code="+strings.ReplaceAll(theReadKey, " ", "+")), browsertest.See(`//*[.="read only"]`))
	for _, path := range []string{"/instance?id=fails", "/instances", "/entities", "/entity?name=Counter&key=k"} {
		b.Do(chromedp.Navigate(a.url+path), browsertest.See(`//h1`))
		if n := browsertest.Run(b, chromedp.Evaluate[int](`document.querySelectorAll(".actions button:not([data-refresh]), .actions summary").length`)); n != 0 {
			t.Errorf("%s offers a reader %d actions", path, n)
		}
	}
}

func TestPages_ShowInvisibleCharactersAsEscapes(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, orders(), nil)
	const id, want = "pay\u202etxt.exe\u200b", `pay\u202etxt.exe\u200b`
	a.start(t, "Await", id, "{}", "Running")
	for _, path := range []string{"/instances", "/instance?" + url.Values{"id": {id}}.Encode()} {
		b.Do(chromedp.Navigate(a.url+path), browsertest.See(fmt.Sprintf(`//main//*[.="%s"]`, want)))
		if title := browsertest.Run(b, chromedp.Evaluate[string](`document.title + document.body.innerText`)); strings.ContainsAny(title, "\u202e\u200b") {
			t.Errorf("%s shows %q", path, title)
		}
	}
}

func TestPages_HaveAFoldedFilterABreadcrumbRelativeTimesAndAGraph(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, orders(), nil)
	a.start(t, "Order", "order-7", `{"n": 1}`, "Running")
	a.awaitEvent(t, "order-7", "Go")
	b.Do(chromedp.Navigate(a.url), browsertest.See(`//h2[.="Throughput"]/..//*[name()="polyline"][@class="started"]`))

	b.Do(chromedp.Navigate(a.url+"/instances?prefix=order"), browsertest.See(`//a[.="order-7"]`), browsertest.See(`//details[@id="filter"]/summary//span[contains(.,"order")]`))
	if open := browsertest.Run(b, chromedp.Evaluate[bool](`document.querySelector("#filter").open`)); open {
		t.Error("the filter is not folded away")
	}
	b.Do(browsertest.See(`//td/time[contains(.,"now") or contains(.,"ago")][contains(@title,"UTC")]`))

	b.Do(chromedp.Click(`//a[.="order-7"]`), browsertest.See(`//nav[@aria-label="Breadcrumb"]/a[.="Instances"]`), browsertest.See(`//*[@id="input"]//pre[contains(.,'"n"')]`), browsertest.See(`//*[@id="timeline"]//td[contains(.,"Charge")]`))
	if isAbove := browsertest.Run(b, chromedp.Evaluate[bool](`["input", "output"].every(id => document.getElementById(id).getBoundingClientRect().bottom <= document.getElementById("timeline").getBoundingClientRect().top)`)); !isAbove {
		t.Error("input and output are not above the timeline")
	}
	if n := browsertest.Run(b, chromedp.Evaluate[int](`new Set(["activity", "timer", "child", "event"].map(k => getComputedStyle(document.querySelector(".bars rect." + k)).fill)).size`)); n != 4 {
		t.Errorf("four kinds of steps have %d colors", n)
	}
}

func TestTimeline_IsDraggedAndZoomed(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, orders(), nil)
	a.start(t, "Order", "order-7", `{"n": 1}`, "Running")
	a.awaitEvent(t, "order-7", "Go")
	a.raise(t, "order-7", "end")
	a.await(t, "order-7", "Completed")
	// drag simulates a pointer that moves over an element between two fractions of its width.
	drag := func(selector string, from, to float64) {
		t.Helper()
		browsertest.Run(b, chromedp.Evaluate[int](fmt.Sprintf(`(() => {
			const e = document.querySelector(%q), box = e.getBoundingClientRect();
			const at = (x) => ({ bubbles: true, pointerId: 1, button: 0, buttons: 1, clientX: box.left + x * box.width, clientY: box.top + 5 });
			e.dispatchEvent(new PointerEvent("pointerdown", at(%f)));
			for (const x of [%f, %f]) e.dispatchEvent(new PointerEvent("pointermove", at(x)));
			e.dispatchEvent(new PointerEvent("pointerup", at(%f)));
			return 0;
		})()`, selector, from, (from+to)/2, to, to)))
	}
	// window waits until the timeline shows another window and returns its bounds as fractions.
	window := func() (from, width float64) {
		t.Helper()
		b.Do(browsertest.See(`//*[@id="timeline"]//*[@data-from][not(@data-seen)]`))
		bounds := browsertest.Run(b, chromedp.Evaluate[[]float64](`(() => {
			document.querySelector("#timeline [data-from]").dataset.seen = 1;
			const r = document.querySelector("rect.window");
			return [+r.getAttribute("x") / 1000, +r.getAttribute("width") / 1000];
		})()`))
		return bounds[0], bounds[1]
	}
	near := func(what string, got, want float64) {
		t.Helper()
		if got < want-0.02 || got > want+0.02 {
			t.Errorf("%s is %.3f, want %.3f", what, got, want)
		}
	}
	b.Do(chromedp.Navigate(a.url + "/instance?id=order-7"))
	_, width := window()
	near("the width at first", width, 1)
	drag(".overview svg", 0.5, 0.7)
	from, width := window()
	near("the start after a selection", from, 0.5)
	near("the width after a selection", width, 0.2)
	drag(".overview svg", 0.6, 0.4)
	from, width = window()
	near("the start after the window was moved", from, 0.3)
	near("the width after the window was moved", width, 0.2)
	browsertest.Run(b, chromedp.Evaluate[int](`(() => {
		const e = document.querySelector(".overview svg"), box = e.getBoundingClientRect();
		e.dispatchEvent(new WheelEvent("wheel", { bubbles: true, cancelable: true, ctrlKey: true, deltaY: -100, clientX: box.left + 0.4 * box.width, clientY: box.top + 5 }));
		return 0;
	})()`))
	from, width = window()
	near("the width after a zoom", width, 0.1)
	near("the start after a zoom", from, 0.35)
	b.Do(browsertest.Press(`//button[.="All"]`))
	_, width = window()
	near("the width of all", width, 1)
}

// This test takes the pictures of the console with no, one and 100,000 instances.
func TestPages_OfHubsOfAnySize(t *testing.T) {
	t.Parallel()
	few := 300
	if flag.Lookup("screenshots").Value.String() != "" {
		few = 100_000
	}
	for _, n := range []int{0, 1, few} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			b := browsertest.New(t)
			a := startApp(t, orders(), withKeys)
			if n > 0 {
				a.start(t, "Order", "order-7", `{"customer": "Contoso", "items": ["tea", "milk"], "express": true}`, "Running")
				a.awaitEvent(t, "order-7", "Go")
			}
			if n > 1 {
				for i := range 30 {
					a.start(t, []string{"Await", "Fail"}[i%2], durable.InstanceID(fmt.Sprintf("invoice-%05d", i)), "{}", []string{"Running", "Failed"}[i%2])
				}
				var group errgroup.Group
				var next atomic.Int64
				for range 64 {
					group.Go(func() error {
						for i := next.Add(1); i < int64(n)-30; i = next.Add(1) {
							id := durable.InstanceID(fmt.Sprintf("shipment-%06d", i))
							if _, err := a.client.StartByName(t.Context(), "Await", nil, id, durable.StartAt(time.Now().Add(time.Hour)), durable.Tags{"team": "blue"}); err != nil {
								return err
							}
						}
						return nil
					})
				}
				if err := group.Wait(); err != nil {
					t.Fatal(err)
				}
			}
			a.signIn(b)
			b.CheckPage("overview")
			b.Do(chromedp.Navigate(a.url+"/instances"), browsertest.See(`//h1`))
			b.CheckPage("instances")
			if n > 0 {
				b.Do(chromedp.Navigate(a.url+"/instance?id=order-7"), browsertest.See(`//*[@id="timeline"]//td[contains(.,"Charge")]`))
				b.CheckPage("instance")
			}
		})
	}
}
