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
	"github.com/durablefunctions-go/durablefunctions/handler/browsertest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
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

// hold holds the lock of an entity until an event arrives.
func hold(ctx *durable.Context, key string) (string, error) {
	defer durable.LockEntities(ctx, durable.EntityID{Name: "Counter", Key: key})()
	return await(ctx, struct{}{})
}

var functions = []*durable.Registration{
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

// onEachHub runs a test of an app on each type of hub.
func onEachHub(t *testing.T, test func(t *testing.T, change func(*handler.Config))) {
	t.Parallel()
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, nil)
	})
	t.Run("azure", func(t *testing.T) {
		t.Parallel()
		processtest.SkipInShortRuns(t)
		test(t, func(cfg *handler.Config) {
			var err error
			if cfg.Connection, err = azurestorage.ParseConnectionString(azuritetest.Start(t)); err != nil {
				t.Fatal(err)
			}
			cfg.StorageType, cfg.Storage.TaskHub, cfg.Storage.WorkerID = handler.AzureStorage, "Shop"+uuid.NewString()[:8], "worker-1"
		})
	})
}

func TestConsole_PagesInABrowser(t *testing.T) { onEachHub(t, testPages) }

// testPages opens each page of the console.
func testPages(t *testing.T, change func(*handler.Config)) {
	b := browsertest.New(t)
	a := startApp(t, functions, change)
	a.start(t, "Await", "waits", "{}", "Running")
	a.start(t, "Fail", "fails", "{}", "Failed")
	a.start(t, "Hold", "holds", `"held"`, "Running")

	b.Do(chromedp.Navigate(a.url), browsertest.See(`//h2[.="Health"]/..//*[.="ready"]`))
	if change == nil {
		b.Do(browsertest.See(`//h2[.="Storage"]/..//dd[contains(.,"per second")]`))
	} else { // only that hub has partitions and services
		b.Do(browsertest.See(`//h2[.="Storage"]/..//tr[td="table"]`), browsertest.See(`//tr[td="3"]/td[.="0s"]`), browsertest.See(`//td[contains(.,"this process")]/../td[2][contains(.,"3")]`))
	}
	b.Do(browsertest.See(`//dt[.="Failed"]/following-sibling::dd[1][contains(.,"1 in 10 minutes")]`), browsertest.See(`//dt[.="Started"]/following-sibling::dd[1][contains(.,"3 in 10 minutes")]`))
	b.CheckPage("overview")
	b.Do(chromedp.Click(`//button[.="Count"]`), browsertest.See(`//*[@id="counts"]//tr[td="Failed"]/td[.="1"]`), browsertest.See(`//*[@id="counts"]//tr[td="Await"]/td[.="1"]`))
	b.CheckPage("counts")

	b.Do(chromedp.Navigate(a.url+"/hub"), browsertest.See(`//tr[td="counter"]/td[.="entity"]`), browsertest.See(`//td[contains(.,"hubName")]`))
	b.CheckPage("hub")

	b.Do(chromedp.Navigate(a.url+"/entities?name=Counter&empty=on"), browsertest.See(`//tr[td[contains(.,"held")]]//a[.="holds"]`))
	b.CheckPage("entities")
	b.Do(
		chromedp.Click(chromedp.CSS("summary")),
		chromedp.SendKeys(chromedp.CSS("#s-name"), "Counter"), chromedp.SendKeys(chromedp.CSS("#s-key"), "a b+ü"),
		chromedp.SendKeys(chromedp.CSS("#s-operation"), "add"), chromedp.SendKeys(chromedp.CSS("#s-input"), "7"),
	)
	b.CheckPage("entities-signal")
	b.Do(chromedp.Click(`//button[.="Send"]`), browsertest.See(`//*[@role="status"][.="Sent add to @counter@a b+ü."]`), browsertest.See(`//pre[contains(.,"7")]`))
	b.CheckPage("entity")
	// The state changes on the open page.
	if err := a.client.SignalEntity(t.Context(), durable.EntityID{Name: "Counter", Key: "a b+ü"}, "add", []byte("5")); err != nil {
		t.Fatal(err)
	}
	b.Do(browsertest.See(`//pre[contains(.,"12")]`))

	b.Do(chromedp.Navigate(a.url+"/entity?name=Counter&key=nobody"), browsertest.See(`//p[contains(.,"does not exist")]`))
	b.CheckPage("entity-unknown")
}

func TestConsole_SignsInByKeyboard(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, functions, withKeys)
	b.Do(chromedp.Navigate(a.url+"/entities"), browsertest.See(`//h1[.="Sign in"]`))
	b.CheckPage("login")
	b.Do(chromedp.KeyEvent("not the key"), chromedp.KeyEvent(kb.Enter), browsertest.See(`//*[@role="alert"][.="The key is not valid."]`))
	if said := b.ConsoleMessages(); len(said) != 1 || !strings.Contains(said[0], "403") {
		t.Errorf("a wrong key: the browser's console says %q", said)
	}
	b.CheckPage("login-wrong")
	b.Do(chromedp.KeyEvent(theKey), chromedp.KeyEvent(kb.Enter), browsertest.See(`//h1[.="Overview"]`))
	// The first key skips the navigation, the next ones reach its links.
	b.Do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Tab),
		chromedp.KeyEvent(kb.Enter), browsertest.See(`//h1[.="Entities"]`))
	b.CheckPage("entities-none")
	b.Do(chromedp.Click(`//button[.="Sign out"]`), browsertest.See(`//h1[.="Sign in"]`), chromedp.Navigate(a.url+"/hub"), browsertest.See(`//h1[.="Sign in"]`))
}

func TestConsole_ShowsNoActionsToReaders(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, functions, withKeys)
	b.Do(chromedp.Navigate(a.url+"/login"), chromedp.SendKeys(chromedp.CSS("#code"), theReadKey+kb.Enter), browsertest.See(`//h1[.="Overview"]`), browsertest.See(`//*[.="read only"]`))
	b.CheckPage("read-only")
	for _, path := range []string{"", "/instances", "/entities", "/entity?name=Counter&key=k", "/hub"} {
		b.Do(chromedp.Navigate(a.url+path), browsertest.See(`//h1`))
		forms := browsertest.Run(b, chromedp.Evaluate[[]string](`[...document.forms].filter(f => f.method == "post").map(f => f.action)`))
		if len(forms) != 1 || !strings.HasSuffix(forms[0], "/logout") {
			t.Errorf("%s has the forms %q, want only that to sign out", path, forms)
		}
	}
}

// If events do not pass, the page polls.
func TestConsole_PollsIfEventsDoNotPass(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, functions, nil)
	b.Do(browsertest.OnNewPages(`window.EventSource = class { static CLOSED = 2; readyState = 2; constructor() { setTimeout(() => this.onerror(), 10); } close() {} }`))
	b.Do(chromedp.Navigate(a.url+"/entity?name=Counter&key=k"), browsertest.See(`//p[contains(.,"does not exist")]`))
	if err := a.client.SignalEntity(t.Context(), durable.EntityID{Name: "Counter", Key: "k"}, "add", []byte("41")); err != nil {
		t.Fatal(err)
	}
	b.Do(browsertest.See(`//pre[contains(.,"41")]`))
	b.CheckPage("polled")
}

// A tab in the background has no connection.
func TestConsole_IsSilentInTheBackground(t *testing.T) {
	t.Parallel()
	b := browsertest.New(t)
	a := startApp(t, functions, nil)
	b.Do(browsertest.OnNewPages(`window.seen = []; window.EventSource = class extends EventSource { constructor(url) { super(url); seen.push("open"); } close() { super.close(); seen.push("close"); } }`))
	b.Do(chromedp.Navigate(a.url), browsertest.See(`//h1[.="Overview"]`))
	seen := browsertest.Run(b, chromedp.Evaluate[[]string](`
		for (const hidden of [true, false, true]) {
			Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
			document.dispatchEvent(new Event("visibilitychange"));
		}
		seen`))
	if want := "open close close open close"; strings.Join(seen, " ") != want { // the second close closes a closed source
		t.Errorf("the page connects as %q, want %q", seen, want)
	}
}
