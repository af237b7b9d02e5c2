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
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/durablefunctions-go/durablefunctions/handler/browsertest"
)

const nasty = `<script>alert("x")</script>`

// orders returns functions with all kinds of steps of a timeline.
func orders() []*durable.Registration {
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

// signIn signs in with the key for full access.
func (a app) signIn(b *browsertest.Browser) {
	b.Do(chromedp.Navigate(a.url+"/login?code="+strings.ReplaceAll(theKey, " ", "+")), browsertest.See(`//h1[.="Overview"]`))
}

// text waits for an element with an attribute and a text.
func text(attribute, want string) chromedp.Action[chromedp.Void] {
	return browsertest.See(fmt.Sprintf(`//*[%s][contains(.,%q)]`, attribute, want))
}

func TestInstances_InABrowser(t *testing.T) { onEachHub(t, testInstances) }

func testInstances(t *testing.T, change func(*handler.Config)) {
	b := browsertest.New(t)
	a := startApp(t, orders(), withKeys, change)
	for i := range 60 {
		a.start(t, "Await", durable.InstanceID(fmt.Sprintf("wait-%02d", i)), "{}", "Running")
	}
	a.start(t, "Fail", durable.InstanceID("fails "+nasty[:8]), "{}", "Failed")
	a.signIn(b)
	b.Do(chromedp.Navigate(a.url+"/instances"), browsertest.See(`//a[.="wait-00"]`))
	b.CheckPage("instances")
	b.Do(chromedp.Click(`//a[.="Next page"]`), browsertest.See(`//a[.="wait-59"]`), browsertest.See(`//a[.="First page"]`))
	b.Do(chromedp.Click(`//a[.="Previous page"]`), browsertest.See(`//a[.="wait-00"]`))
	b.Do(chromedp.Click(`//a[.="500"]`), browsertest.See(`//a[.="wait-59"]`), browsertest.See(`//a[.="wait-00"]`))
	b.Do(chromedp.Click(`//a[.="ID"]`), browsertest.See(`//th[@aria-sort="ascending"]`), chromedp.Click(`//th[@aria-sort="ascending"]/a`), browsertest.See(`//th[@aria-sort="descending"]`))
	if id := browsertest.Run(b, chromedp.Evaluate[string](`document.querySelector("td.id").innerText`)); id != "wait-59" {
		t.Errorf("the greatest ID is %s, want wait-59", id)
	}
	b.CheckPage("instances-sorted")
	b.Do(chromedp.Click(`//*[@id="filter"]/summary`), chromedp.SendKeys(chromedp.CSS("input[name=prefix]"), "wait-0"), chromedp.Click(`//button[.="Filter"]`), browsertest.See(`//a[.="Clear"]`))
	if n := browsertest.Run(b, chromedp.Evaluate[int](`document.querySelectorAll("td.id").length`)); n != 10 {
		t.Errorf("%d instances begin with wait-0, want 10", n)
	}
	b.Do(chromedp.Click(chromedp.CSS("input[data-all]")))
	if n := browsertest.Run(b, chromedp.Evaluate[int](`document.querySelectorAll("input[name=id]:checked").length`)); n != 10 {
		t.Errorf("%d are selected, want all 10", n)
	}
	b.Do(chromedp.Click(`//button[.="Suspend …"]`), browsertest.See(`//b[.="10"]`))
	b.CheckPage("instances-preview")
	b.Do(chromedp.SendKeys(chromedp.CSS("input[name=reason]"), "lunch"), chromedp.Click(`//button[.="Suspend 10 instances"]`), browsertest.See(`//b[.="Done."]`))
	b.CheckPage("instances-done")
	a.await(t, "wait-09", "Suspended")
	b.Do(chromedp.Navigate(a.url+"/instances?prefix=wait"), browsertest.See(`//a[.="wait-00"]`),
		chromedp.Click(chromedp.CSS("input[value=filter]")), chromedp.Click(`//button[.="Terminate …"]`), browsertest.See(`//b[.="60"]`),
		chromedp.Click(`//button[.="Terminate 60 instances"]`), browsertest.See(`//b[.="Done."]`), browsertest.See(`//p[contains(.,"60 terminated")]`))
	b.Do(chromedp.Navigate(a.url+"/instances?status=Pending"), browsertest.See(`//p[.="No instance matches."]`))
	b.CheckPage("instances-none")
}

func TestInstance_InABrowser(t *testing.T) { onEachHub(t, testInstance) }

func testInstance(t *testing.T, change func(*handler.Config)) {
	b := browsertest.New(t)
	a := startApp(t, orders(), withKeys, change)
	a.start(t, "Order", "order-7", `{"customer": "`+strings.ReplaceAll(nasty, `"`, `\"`)+`", "items": ["a", "b"]}`, "Running")
	a.awaitEvent(t, "order-7", "Go")
	a.signIn(b)
	b.Do(chromedp.Navigate(a.url+"/instance?id=order-7"), browsertest.See(`//pre[contains(.,"paid")]`), browsertest.See(`//ul[@class="reasons"]/li[contains(.,'event "Go"')]`), browsertest.See(`//td[contains(.,"Charge")]`))
	for _, id := range []string{"children", "history", "curl", "terminate"} {
		b.Do(browsertest.Press(fmt.Sprintf(`//details[@id="%s"]/summary`, id)))
	}
	b.Do(browsertest.See(`//ul[@class="tree"]//a[.="ship-1"]`), browsertest.See(`//td[.="ExecutionStarted"]`), browsertest.See(`//*[@id="input"]/pre[contains(.,"customer")]`), browsertest.See(`//*[@id="output"]//p[.="No output yet"]`))
	b.Do(browsertest.Press(`//summary[.="Children of ship-1"]`), browsertest.See(`//p[.="No children"]`))
	b.Do(browsertest.Press(`//td[.="TaskFailed"]/..//summary[starts-with(.,"FailureDetails")]`), browsertest.See(`//td//pre[contains(.,"alert")]`))
	b.CheckPage("instance")

	b.Do(browsertest.Press(`//button[.="Zoom in"]`), browsertest.See(`//button[.="All"][not(@disabled)]`), browsertest.Press(`//button[.="All"]`), browsertest.See(`//button[.="All"][@disabled]`))
	// The open page shows changes and keeps what was typed.
	b.Do(browsertest.Press(`//details[@id="raise"]/summary`), chromedp.SendKeys(chromedp.CSS("#event"), "Go"), chromedp.SendKeys(chromedp.CSS("#payload"), `"yes"`))
	if err := a.client.Suspend(t.Context(), "order-7", "a while"); err != nil {
		t.Fatal(err)
	}
	b.Do(browsertest.See(`//dd/span[.="Suspended"]`))
	if err := a.client.Resume(t.Context(), "order-7", ""); err != nil {
		t.Fatal(err)
	}
	b.Do(browsertest.See(`//dd/span[.="Running"]`), browsertest.Press(`//button[.="Raise the event"]`), text(`@role="status"`, "The event was sent."), browsertest.See(`//dd/span[.="Completed"]`))

	do := func(action, button, notice string) {
		t.Helper()
		b.Do(browsertest.Press(fmt.Sprintf(`//details[@id="%s"]/summary`, action)), browsertest.Press(fmt.Sprintf(`//button[.="%s"]`, button)), text(`@role="status"`, notice))
	}
	b.Do(browsertest.Press(`//details[@id="restart"]/summary`), browsertest.Press(`//*[@id="restart"]//input[@name="option"]`))
	b.Do(browsertest.Press(`//button[.="Restart the instance"]`), text(`@role="status"`, "restarted"), browsertest.See(`//dd/span[.="Running"]`), browsertest.See(`//pre[contains(.,"paid")]`))
	do("suspend", "Suspend the instance", "will be suspended")
	b.Do(browsertest.See(`//dd/span[.="Suspended"]`))
	do("resume", "Resume the instance", "will be resumed")
	b.Do(browsertest.See(`//dd/span[.="Running"]`))
	b.AcceptConfirm()
	do("terminate", "Terminate the instance", "will be terminated")
	b.Do(browsertest.See(`//dd/span[.="Terminated"]`))
	b.AcceptConfirm()
	do("purge", "Purge the instance", "Instance order-7 is purged.")

	a.start(t, "Fail", "f", "{}", "Failed")
	b.Do(chromedp.Navigate(a.url+"/instance?id=f"), browsertest.See(`//pre[contains(.,"broken")]`))
	b.CheckPage("instance-failed")
	do("rewind", "Rewind the instance", "will be rewound")
	b.Do(chromedp.Navigate(a.url+"/instance?id=nobody"), browsertest.See(`//*[@role="alert"][contains(.,"There is no instance")]`))
	b.ConsoleMessages() // reports status 404
}

func TestInstance_ReadOnlyInABrowser(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, orders(), withKeys)
	a.start(t, "Await", "waits", "{}", "Running")
	b.Do(chromedp.Navigate(a.url+"/login?code="+strings.ReplaceAll(theReadKey, " ", "+")), browsertest.See(`//h1[.="Overview"]`))
	for path, shows := range map[string]string{"/instances": `//a[.="waits"]`, "/instance?id=waits": `//li[contains(.,"event")]`} {
		b.Do(chromedp.Navigate(a.url+path), browsertest.See(shows))
		if forms := browsertest.Run(b, chromedp.Evaluate[int](`[...document.forms].filter(f => f.method == "post" && !f.action.endsWith("/logout")).length`)); forms != 0 {
			t.Errorf("%s has %d forms", path, forms)
		}
		b.CheckPage("read-only-" + strings.Trim(path[:9], "/?"))
	}
}
