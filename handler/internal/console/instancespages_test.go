package console_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/durablefunctions-go/durablefunctions/durable"
)

const nasty = `<script>alert("x")</script>`

// orders are functions that do all that a timeline shows.
func orders() []*durable.Function {
	tries := 0
	return append(
		functions,
		durable.Orchestrator("Order", func(ctx *durable.Context, in map[string]any) (string, error) {
			ctx.SetCustomStatus(map[string]string{"step": "charge", "note": nasty})
			ctx.Sleep(20 * time.Millisecond)
			retry := durable.RetryPolicy{MaxAttempts: 3, FirstInterval: 100 * time.Millisecond}
			if _, err := durable.ActivityName[string, string]("Charge").Call(ctx, "card", retry).Await(); err != nil {
				return "", err
			}
			if _, err := durable.OrchestratorName[map[string]any, string]("Ship").Call(ctx, in, durable.InstanceID("ship-1")).Await(); err != nil {
				return "", err
			}
			ctx.SetCustomStatus("paid")
			return event.Wait(ctx).Await()
		}),
		durable.Orchestrator("Ship", func(ctx *durable.Context, _ map[string]any) (string, error) {
			ctx.Sleep(50 * time.Millisecond)
			_ = durable.Event[string]("Hi").RaiseFrom(ctx, "nobody", nasty)
			return "shipped", nil
		}),
		durable.Activity("Charge", func(context.Context, string) (string, error) {
			if tries++; tries == 1 {
				return "", errors.New("no " + nasty)
			}
			time.Sleep(30 * time.Millisecond)
			return "paid", nil
		}),
	)
}

// signIn signs in with the key that may do everything.
func (b *browser) signIn(a app) {
	b.t.Helper()
	b.do(chromedp.Navigate(a.url+"/login?code="+strings.ReplaceAll(theKey, " ", "+")), see(`//h1[.="Overview"]`))
}

// agree has the page's next question answered with yes.
func (b *browser) agree() {
	b.t.Helper()
	run(b, chromedp.Evaluate[int](`window.confirm = () => true; 0`))
}

// press clicks on an element, found by an expression of XPath, when no part is loaded any more
// that would move it or bring another.
func press(path string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := see(path)(ctx, t); err != nil {
			return err
		}
		_, err := chromedp.Evaluate[int](fmt.Sprintf(`(async () => {
			while (document.querySelector(".htmx-request, .htmx-swapping, .htmx-settling, .htmx-added")) await new Promise(requestAnimationFrame);
			document.evaluate(%q, document, null, 9).singleNodeValue.click();
			return 0;
		})()`, path), chromedp.EvalAwaitPromise)(ctx, t)
		return err
	})
}

// text waits for an element with an attribute that has a text in it.
func text(attribute, want string) chromedp.Action[chromedp.Void] {
	return see(fmt.Sprintf(`//*[%s][contains(.,%q)]`, attribute, want))
}

func TestInstances_InABrowser(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	a := startApp(t, orders(), withKeys)
	for i := range 60 {
		a.start(t, "Await", durable.InstanceID(fmt.Sprintf("wait-%02d", i)), "{}", "Running")
	}
	a.start(t, "Fail", durable.InstanceID("fails "+nasty[:8]), "{}", "Failed")
	b.signIn(a)
	b.do(chromedp.Navigate(a.url+"/instances"), see(`//a[.="wait-00"]`))
	b.checkPage("instances")
	b.do(chromedp.Click(`//a[.="Next page"]`), see(`//a[.="wait-59"]`), see(`//a[.="First page"]`))
	b.do(chromedp.Click(`//a[.="Previous page"]`), see(`//a[.="wait-00"]`))
	b.do(chromedp.Click(`//a[.="500"]`), see(`//a[.="wait-59"]`), see(`//a[.="wait-00"]`))
	b.do(chromedp.Click(`//a[.="ID"]`), see(`//th[@aria-sort="ascending"]`), chromedp.Click(`//th[@aria-sort="ascending"]/a`), see(`//th[@aria-sort="descending"]`))
	if id := run(b, chromedp.Evaluate[string](`document.querySelector("td.id").innerText`)); id != "wait-59" {
		t.Errorf("the greatest ID is %s, want wait-59", id)
	}
	b.checkPage("instances-sorted")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=prefix]"), "wait-0"), chromedp.Click(`//button[.="Filter"]`), see(`//a[.="Clear"]`))
	if n := run(b, chromedp.Evaluate[int](`document.querySelectorAll("td.id").length`)); n != 10 {
		t.Errorf("%d instances begin with wait-0, want 10", n)
	}
	b.do(chromedp.Click(chromedp.CSS("input[data-all]")))
	if n := run(b, chromedp.Evaluate[int](`document.querySelectorAll("input[name=id]:checked").length`)); n != 10 {
		t.Errorf("%d are selected, want all 10", n)
	}
	b.do(chromedp.Click(`//button[.="Suspend …"]`), see(`//b[.="10"]`))
	b.checkPage("instances-preview")
	b.do(chromedp.SendKeys(chromedp.CSS("input[name=reason]"), "lunch"), chromedp.Click(`//button[.="Suspend 10 instances"]`), see(`//b[.="Done."]`))
	b.checkPage("instances-done")
	a.await(t, "wait-09", "Suspended")
	b.do(chromedp.Navigate(a.url+"/instances?prefix=wait"), see(`//a[.="wait-00"]`),
		chromedp.Click(chromedp.CSS("input[value=filter]")), chromedp.Click(`//button[.="Terminate …"]`), see(`//b[.="60"]`),
		chromedp.Click(`//button[.="Terminate 60 instances"]`), see(`//b[.="Done."]`), see(`//p[contains(.,"60 terminated")]`))
	b.do(chromedp.Navigate(a.url+"/instances?status=Pending"), see(`//p[.="No instance matches."]`))
	b.checkPage("instances-none")
}

func TestInstance_InABrowser(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	a := startApp(t, orders(), withKeys)
	a.start(t, "Order", "order-7", `{"customer": "`+strings.ReplaceAll(nasty, `"`, `\"`)+`", "items": ["a", "b"]}`, "Running")
	b.signIn(a)
	b.do(chromedp.Navigate(a.url+"/instance?id=order-7"), see(`//pre[contains(.,"paid")]`), see(`//ul[@class="reasons"]/li[contains(.,'event "Go"')]`), see(`//td[contains(.,"Charge")]`))
	for _, id := range []string{"children", "history", "input", "output", "raise", "terminate", "curl"} {
		b.do(press(fmt.Sprintf(`//details[@id="%s"]/summary`, id)))
	}
	b.do(see(`//ul[@class="tree"]//a[.="ship-1"]`), see(`//td[.="ExecutionStarted"]`), see(`//*[@id="input-body"]/pre[contains(.,"customer")]`), see(`//*[@id="output-body"]//p[.="There is none."]`))
	b.do(press(`//summary[.="Children of ship-1"]`), see(`//p[contains(.,"no children")]`))
	b.do(press(`//td[.="TaskFailed"]/..//summary[starts-with(.,"FailureDetails")]`), see(`//td//pre[contains(.,"alert")]`))
	b.checkPage("instance")

	b.do(press(`//button[.="Zoom in"]`), see(`//button[.="All"][not(@disabled)]`), press(`//button[.="All"]`), see(`//button[.="All"][@disabled]`))
	b.do(press(`//div[@class="zones"]/button[3]`), see(`//button[.="All"][not(@disabled)]`))

	// What happens shows on the page that is open, which keeps what was typed.
	b.do(chromedp.SendKeys(chromedp.CSS("#event"), "Go"), chromedp.SendKeys(chromedp.CSS("#payload"), `"yes"`))
	if err := a.client.Suspend(t.Context(), "order-7", "a while"); err != nil {
		t.Fatal(err)
	}
	b.do(see(`//dd/span[.="Suspended"]`))
	if err := a.client.Resume(t.Context(), "order-7", ""); err != nil {
		t.Fatal(err)
	}
	b.do(see(`//dd/span[.="Running"]`), press(`//button[.="Raise the event"]`), text(`@role="status"`, "The event was sent."), see(`//dd/span[.="Completed"]`))

	do := func(action, button, notice string) {
		t.Helper()
		b.do(press(fmt.Sprintf(`//details[@id="%s"]/summary`, action)), press(fmt.Sprintf(`//button[.="%s"]`, button)), text(`@role="status"`, notice))
	}
	b.do(press(`//details[@id="restart"]/summary`), press(`//*[@id="restart"]//input[@name="option"]`))
	b.do(press(`//button[.="Restart the instance"]`), text(`@role="status"`, "restarted"), see(`//dd/span[.="Running"]`), see(`//pre[contains(.,"paid")]`))
	do("suspend", "Suspend the instance", "is to be suspended")
	b.do(see(`//dd/span[.="Suspended"]`))
	do("resume", "Resume the instance", "is to be resumed")
	b.do(see(`//dd/span[.="Running"]`))
	b.agree()
	do("terminate", "Terminate the instance", "is to be terminated")
	b.do(see(`//dd/span[.="Terminated"]`))
	b.agree()
	do("purge", "Purge the instance", "Instance order-7 is purged.")

	a.start(t, "Fail", "f", "{}", "Failed")
	b.do(chromedp.Navigate(a.url+"/instance?id=f"), see(`//pre[contains(.,"broken")]`))
	b.checkPage("instance-failed")
	do("rewind", "Rewind the instance", "is to be rewound")
	b.do(chromedp.Navigate(a.url+"/instance?id=nobody"), see(`//*[@role="alert"][contains(.,"There is no instance")]`))
	b.said() // of the status 404
}

func TestInstance_ReadOnlyInABrowser(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	a := startApp(t, orders(), withKeys)
	a.start(t, "Await", "waits", "{}", "Running")
	b.do(chromedp.Navigate(a.url+"/login?code="+strings.ReplaceAll(theReadKey, " ", "+")), see(`//h1[.="Overview"]`))
	for path, shows := range map[string]string{"/instances": `//a[.="waits"]`, "/instance?id=waits": `//li[contains(.,"event")]`} {
		b.do(chromedp.Navigate(a.url+path), see(shows))
		if forms := run(b, chromedp.Evaluate[int](`[...document.forms].filter(f => f.method == "post" && !f.action.endsWith("/logout")).length`)); forms != 0 {
			t.Errorf("%s has %d forms", path, forms)
		}
		b.checkPage("read-only-" + strings.Trim(path[:9], "/?"))
	}
}
