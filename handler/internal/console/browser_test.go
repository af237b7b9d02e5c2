package console_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler"
	"github.com/labstack/echo/v4"
)

var screenshots = flag.String("screenshots", "", "write a picture of each page, in light and dark, into this `folder`")

const (
	checkout = "../../.."
	// patience is how long a page may take, on a machine that has much else to do.
	patience = 2 * time.Minute

	theKey     = "the key of this test"
	theReadKey = "the read key of this test"
)

// An app is an app that runs on an embedded hub.
type app struct {
	url    string // of the console
	client *durable.Client
}

// startApp starts an app until the test ends.
func startApp(t *testing.T, functions []*durable.Function, change func(*handler.Config)) app {
	t.Helper()
	address, listening := newAddress()
	cfg := handler.Config{
		Address: "127.0.0.1:0", RoutePrefix: "api", Logger: slog.New(address), StorageType: handler.Embedded,
		Embedded: handler.EmbeddedConfig{Path: filepath.Join(t.TempDir(), "hub.db"), Relaxed: true},
	}
	cfg.Storage.TaskHub = "TestHub"
	if change != nil {
		change(&cfg)
	}
	var a app
	s := handler.New(handler.App{Functions: functions, Routes: func(_ *echo.Group, c *durable.Client) { a.client = c }}, cfg)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	a.url = <-listening
	for { // the app answers when it has opened the hub
		answer, err := http.Get(a.url + "/health/ready")
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	a.url += "/api/durabletask/console"
	return a
}

// await waits until an instance has a status.
func (a app) await(t *testing.T, id durable.InstanceID, status string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	for {
		state, err := a.client.Status(ctx, id, durable.Fetch{})
		if err != nil {
			t.Fatal(err)
		}
		if state.Status.String() == status {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// An addressLog is a log that sends the address of which the server says that it listens.
type addressLog struct {
	slog.Handler
	to chan string
}

func newAddress() (addressLog, chan string) {
	to := make(chan string, 1)
	return addressLog{slog.DiscardHandler, to}, to
}

func (l addressLog) Enabled(context.Context, slog.Level) bool { return true }

func (l addressLog) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if r.Message == "listening" && a.Key == "address" {
			l.to <- a.Value.String()
		}
		return true
	})
	return nil
}

func (l addressLog) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l addressLog) WithGroup(string) slog.Handler      { return l }

// chromium is the browser that all tests share, each in a context of its own. It ends with
// the process.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := findChromium()
	if err != nil {
		return nil, err
	}
	opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(patience))
	ctx, _ := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stopChromium = chromedp.NewContext(ctx)
	return ctx, chromedp.Do(ctx)
})

var stopChromium = func() {}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	stopChromium()
	os.Exit(code)
}

func findChromium() (path string, err error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}

// axe returns the source of axe, which checks whether everybody can use a page.
var axe = sync.OnceValues(func() (string, error) {
	path := filepath.Join(checkout, ".npmclient", "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(path); err != nil {
		if out, err := exec.Command(filepath.Join(checkout, "scripts", "npmclient")).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
	}
	text, err := os.ReadFile(path)
	return string(text), err
})

// A browser is a browser without a past.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex // protects the following
	problems []string   // what the console of the browser says
}

// newBrowser starts a browser. The test is skipped without Chromium, unless it is required.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	if _, err := findChromium(); err != nil {
		if azuritetest.Required("chromium") {
			t.Fatal(err)
		}
		t.Skipf("this test needs Chromium: %v", err)
	}
	if _, err := exec.LookPath("npm"); err != nil && !azuritetest.Required("npm") {
		t.Skipf("this test needs axe from npm: %v", err)
	}
	parent, err := chromium()
	if err != nil {
		t.Fatalf("start Chromium: %v", err)
	}
	b := &browser{t: t}
	ctx, stop := chromedp.NewContext(parent, chromedp.WithNewBrowserContext())
	t.Cleanup(stop)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	messages := chromedp.Console(ctx)
	go func() { // ends with ctx
		for m, err := range messages {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.problems = append(b.problems, m.String())
			b.mu.Unlock()
		}
	}()
	b.ctx, stop = context.WithTimeout(ctx, patience)
	t.Cleanup(stop)
	b.do(chromedp.EmulateViewport(1280, 900))
	return b
}

// do carries out actions one after another.
func (b *browser) do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		ctx, stop := context.WithTimeout(context.WithoutCancel(b.ctx), 10*time.Second)
		defer stop()
		page, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("location + '\\n' + document.body.innerText"))
		b.t.Fatalf("%v; the browser's console: %q; the page:\n%s", err, b.said(), page)
	}
}

// run carries out an action and returns its value.
func run[T any](b *browser, action chromedp.Action[T]) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.t.Fatalf("%v; the browser's console: %q", err, b.said())
	}
	return value
}

// said returns what the browser's console has said since the last call.
func (b *browser) said() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.problems
	b.problems = nil
	return all
}

// see waits until the page shows an element, found by an expression of XPath.
func see(path string) chromedp.Action[chromedp.Void] { return chromedp.WaitVisible(path) }

// onNewPages runs a script in pages before their own.
func onNewPages(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

// colours sets the scheme that the page is shown in, light or dark.
func colours(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
		return err
	})
}

// checkPage looks at the page that is open: the browser's console is silent, axe finds
// nothing, in light and dark, and nothing is wider than the narrowest screen.
func (b *browser) checkPage(name string) {
	b.t.Helper()
	source, err := axe()
	if err != nil {
		b.t.Fatalf("install axe: %v", err)
	}
	run(b, chromedp.Evaluate[int](source+";0"))
	for _, scheme := range []string{"light", "dark"} {
		b.do(colours(scheme))
		findings := run(b, chromedp.Evaluate[[]string](
			`axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`, chromedp.EvalAwaitPromise))
		if len(findings) > 0 {
			b.t.Errorf("%s, %s: axe finds %q", name, scheme, findings)
		}
		b.screenshot(name + "-" + scheme)
	}
	b.do(chromedp.EmulateViewport(320, 700))
	wide := run(b, chromedp.Evaluate[[]string](
		`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 321 && !e.closest(".scroll, svg")).map(e => e.outerHTML.slice(0, 200))`))
	if len(wide) > 0 {
		b.t.Errorf("%s: wider than 320 px: %q", name, wide)
	}
	b.screenshot(name + "-320")
	b.do(chromedp.EmulateViewport(1280, 900), colours("light"))
	if said := b.said(); len(said) > 0 {
		b.t.Errorf("%s: the browser's console says %q", name, said)
	}
}

func (b *browser) screenshot(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	picture := run(b, chromedp.FullScreenshot(100))
	if err := os.WriteFile(filepath.Join(*screenshots, strings.ReplaceAll(b.t.Name(), "/", "-")+"-"+name+".png"), picture, 0o644); err != nil {
		b.t.Fatal(err)
	}
}
