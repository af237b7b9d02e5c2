package console_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/google/uuid"
)

// A counter is the state of an entity.
type counter struct{ Total int }

func (c *counter) add(_ *durable.EntityContext, n int) (int, error) {
	c.Total += n
	return c.Total, nil
}

var event = durable.Event[string]("Go")

// await waits for an event.
func await(ctx *durable.Context, _ struct{}) (string, error) {
	return event.Wait(ctx).Await()
}

// fail fails.
func fail(*durable.Context, struct{}) (string, error) { return "", errors.New("broken") }

// hold holds the lock of an entity until an event comes.
func hold(ctx *durable.Context, key string) (string, error) {
	defer durable.LockEntities(ctx, durable.EntityID{Name: "Counter", Key: key})()
	return await(ctx, struct{}{})
}

var functions = []*durable.Function{
	durable.Orchestrator("Await", await), durable.Orchestrator("Fail", fail), durable.Orchestrator("Hold", hold),
	durable.Entity("Counter", durable.Op("add", (*counter).add)),
}

func withKeys(cfg *handler.Config) { cfg.Key, cfg.ReadKey = theKey, theReadKey }

// start starts an instance and waits until it has a status.
func (a app) start(t *testing.T, name string, id durable.InstanceID, input, status string) {
	t.Helper()
	if _, err := a.client.StartByName(t.Context(), name, []byte(input), id); err != nil {
		t.Fatal(err)
	}
	a.await(t, id, status)
}

func TestConsole_PagesInABrowser(t *testing.T) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		testPages(t, nil)
	})
	t.Run("azure", func(t *testing.T) {
		t.Parallel()
		testPages(t, func(cfg *handler.Config) {
			var err error
			if cfg.Connection, err = azurestorage.ParseConnectionString(azuritetest.Start(t)); err != nil {
				t.Fatal(err)
			}
			cfg.StorageType, cfg.Storage.TaskHub = handler.AzureStorage, "Hub"+strings.ReplaceAll(uuid.NewString(), "-", "")
		})
	})
}

// testPages visits each page of the console of an app.
func testPages(t *testing.T, change func(*handler.Config)) {
	b := newBrowser(t)
	a := startApp(t, functions, change)
	a.start(t, "Await", "waits", "{}", "Running")
	a.start(t, "Fail", "fails", "{}", "Failed")
	a.start(t, "Hold", "holds", `"held"`, "Running")

	b.do(chromedp.Navigate(a.url), see(`//h2[.="Health"]/..//*[.="ready"]`))
	if change != nil { // only that hub has partitions
		b.do(see(`//tr[td="3"]/td[.="0s"]`), see(`//td[contains(.,"this process")]/../td[2][contains(.,"3")]`))
	}
	b.do(see(`//dt[.="Failed"]/following-sibling::dd[1][contains(.,"1 in 60 minutes")]`), see(`//dt[.="Started"]/following-sibling::dd[1][contains(.,"3 in 60 minutes")]`))
	b.checkPage("overview")
	b.do(chromedp.Click(`//button[.="Count"]`), see(`//*[@id="counts"]//tr[td="Failed"]/td[.="1"]`), see(`//*[@id="counts"]//tr[td="Await"]/td[.="1"]`))
	b.checkPage("counts")

	b.do(chromedp.Navigate(a.url+"/hub"), see(`//tr[td="counter"]/td[.="entity"]`), see(`//td[contains(.,"hubName")]`))
	b.checkPage("hub")

	b.do(chromedp.Navigate(a.url+"/entities?name=Counter&empty=on"), see(`//tr[td[contains(.,"held")]]//a[.="holds"]`))
	b.checkPage("entities")
	b.do(
		chromedp.Click(chromedp.CSS("summary")),
		chromedp.SendKeys(chromedp.CSS("#s-name"), "Counter"), chromedp.SendKeys(chromedp.CSS("#s-key"), "a b+ü"),
		chromedp.SendKeys(chromedp.CSS("#s-operation"), "add"), chromedp.SendKeys(chromedp.CSS("#s-input"), "7"),
	)
	b.checkPage("entities-signal")
	b.do(chromedp.Click(`//button[.="Send"]`), see(`//*[@role="status"][.="Sent add to @counter@a b+ü."]`), see(`//pre[contains(.,"7")]`))
	b.checkPage("entity")
	// The state changes on the page that is open.
	if err := a.client.SignalEntity(t.Context(), durable.EntityID{Name: "Counter", Key: "a b+ü"}, "add", []byte("5")); err != nil {
		t.Fatal(err)
	}
	b.do(see(`//pre[contains(.,"12")]`))

	b.do(chromedp.Navigate(a.url+"/entity?name=Counter&key=nobody"), see(`//p[contains(.,"Nothing is stored")]`))
	b.checkPage("entity-unknown")
}

func TestConsole_SignsInByKeyboard(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	a := startApp(t, functions, withKeys)
	b.do(chromedp.Navigate(a.url+"/entities"), see(`//h1[.="Sign in"]`))
	b.checkPage("login")
	b.do(chromedp.KeyEvent("not the key"), chromedp.KeyEvent(kb.Enter), see(`//*[@role="alert"][.="That is not the key."]`))
	if said := b.said(); len(said) != 1 || !strings.Contains(said[0], "403") {
		t.Errorf("a wrong key: the browser's console says %q", said)
	}
	b.checkPage("login-wrong")
	b.do(chromedp.KeyEvent(theKey), chromedp.KeyEvent(kb.Enter), see(`//h1[.="Overview"]`))
	// The first key leads past the navigation, the next to its links.
	b.do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab),
		chromedp.KeyEvent(kb.Enter), see(`//h1[.="Entities"]`))
	b.checkPage("entities-none")
	b.do(chromedp.Click(`//button[.="Sign out"]`), see(`//h1[.="Sign in"]`), chromedp.Navigate(a.url+"/hub"), see(`//h1[.="Sign in"]`))
}

func TestConsole_ShowsNoActionsToWhoCanOnlyRead(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	a := startApp(t, functions, withKeys)
	b.do(chromedp.Navigate(a.url+"/login"), chromedp.SendKeys(chromedp.CSS("#code"), theReadKey+kb.Enter), see(`//h1[.="Overview"]`), see(`//*[.="read only"]`))
	b.checkPage("read-only")
	for _, path := range []string{"", "/instances", "/entities", "/entity?name=Counter&key=k", "/hub"} {
		b.do(chromedp.Navigate(a.url+path), see(`//h1`))
		forms := run(b, chromedp.Evaluate[[]string](`[...document.forms].filter(f => f.method == "post").map(f => f.action)`))
		if len(forms) != 1 || !strings.HasSuffix(forms[0], "/logout") {
			t.Errorf("%s has the forms %q, want only that to sign out", path, forms)
		}
	}
}

// Where events do not come through, the page asks by itself.
func TestConsole_PollsWhereEventsDoNotComeThrough(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	a := startApp(t, functions, nil)
	b.do(onNewPages(`window.EventSource = class { static CLOSED = 2; readyState = 2; constructor() { setTimeout(() => this.onerror(), 10); } close() {} }`))
	b.do(chromedp.Navigate(a.url+"/entity?name=Counter&key=k"), see(`//p[contains(.,"Nothing is stored")]`))
	if err := a.client.SignalEntity(t.Context(), durable.EntityID{Name: "Counter", Key: "k"}, "add", []byte("41")); err != nil {
		t.Fatal(err)
	}
	b.do(see(`//pre[contains(.,"41")]`))
	b.checkPage("polled")
}

// A tab in the background has no connection.
func TestConsole_IsSilentInTheBackground(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	a := startApp(t, functions, nil)
	b.do(onNewPages(`window.seen = []; window.EventSource = class extends EventSource { constructor(url) { super(url); seen.push("open"); } close() { super.close(); seen.push("close"); } }`))
	b.do(chromedp.Navigate(a.url), see(`//h1[.="Overview"]`))
	seen := run(b, chromedp.Evaluate[[]string](`
		for (const hidden of [true, false, true]) {
			Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
			document.dispatchEvent(new Event("visibilitychange"));
		}
		seen`))
	if want := "open close close open close"; strings.Join(seen, " ") != want { // the second close is of what is closed
		t.Errorf("the page connects as %q, want %q", seen, want)
	}
}
