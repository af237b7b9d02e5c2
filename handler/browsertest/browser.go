// Package browsertest lets tests use pages in Chromium.
package browsertest

import (
	"context"
	"flag"
	"fmt"
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
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

var screenshots = flag.String("screenshots", "", "write pictures of each page, 1440 and 360 pixels wide, in light and dark, into this `folder`")

// Patience limits the time of a test with pages, on a busy machine.
const Patience = 5 * time.Minute

// chromium starts the browser that all tests share. Each test has a context of its own. The browser
// ends with the process.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := findChromium()
	if err != nil {
		return nil, err
	}
	opts := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.WSURLReadTimeout(Patience))
	ctx, _ := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stopChromium = chromedp.NewContext(ctx)
	return ctx, chromedp.Do(ctx)
})

var stopChromium = func() {}

// Stop stops the browser. Call it in TestMain after the tests.
func Stop() { stopChromium() }

// findChromium prefers Chromium without its windows, which needs half as much CPU.
func findChromium() (path string, err error) {
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err = exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", err
}

// axe returns the source of axe, which checks the accessibility of a page.
var axe = sync.OnceValues(func() (string, error) {
	checkout, err := root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(checkout, ".npmclient", "node_modules", "axe-core", "axe.min.js")
	if _, err := os.Stat(path); err != nil {
		if out, err := exec.Command(filepath.Join(checkout, "scripts", "npmclient")).CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
	}
	text, err := os.ReadFile(path)
	return string(text), err
})

// root returns the root folder of the module.
func root() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	return strings.TrimSpace(string(out)), err
}

// A Browser is a browser session without cookies or cached data.
type Browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex // guards the fields below
	problems []string   // messages in the browser's console
}

// New starts a Browser. It skips the test if Chromium is missing, unless Chromium is required.
func New(t *testing.T) *Browser {
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
	b := &Browser{t: t}
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
	b.ctx, stop = context.WithTimeout(ctx, Patience)
	t.Cleanup(stop)
	b.Do(chromedp.EmulateViewport(1280, 900))
	return b
}

// Do runs actions one after another.
func (b *Browser) Do(actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		ctx, stop := context.WithTimeout(context.WithoutCancel(b.ctx), 10*time.Second)
		defer stop()
		page, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("location + '\\n' + document.body.innerText"))
		b.t.Fatalf("%v; the browser's console: %q; the page:\n%s", err, b.ConsoleMessages(), page)
	}
}

// Run runs an action and returns its value.
func Run[T any](b *Browser, action chromedp.Action[T]) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, action)
	if err != nil {
		b.t.Fatalf("%v; the browser's console: %q", err, b.ConsoleMessages())
	}
	return value
}

// ConsoleMessages returns the messages in the browser's console since the previous call.
func (b *Browser) ConsoleMessages() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.problems
	b.problems = nil
	return all
}

// See waits until the page shows an element. path is an XPath expression.
func See(path string) chromedp.Action[chromedp.Void] { return chromedp.WaitVisible(path) }

// AcceptConfirm makes the page's next confirmation succeed.
func (b *Browser) AcceptConfirm() {
	b.t.Helper()
	Run(b, chromedp.Evaluate[int](`window.confirm = () => true; 0`))
}

// Press clicks an element once no part of the page is being loaded, which could move or replace the
// element. path is an XPath expression.
func Press(path string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		if _, err := See(path)(ctx, t); err != nil {
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

// OnNewPages runs a script in each new page before the page's own scripts.
func OnNewPages(script string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return err
	})
}

// setColorScheme sets the color scheme of the page: light or dark.
func setColorScheme(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, media)
		return err
	})
}

// CheckPage checks the current page: the browser's console is empty, axe finds no problems in light and
// dark, and nothing is wider than the narrowest screen.
func (b *Browser) CheckPage(name string) {
	b.t.Helper()
	source, err := axe()
	if err != nil {
		b.t.Fatalf("install axe: %v", err)
	}
	Run(b, chromedp.Evaluate[int](source+";0"))
	for _, scheme := range []string{"light", "dark"} {
		b.Do(setColorScheme(scheme))
		findings := Run(b, chromedp.Evaluate[[]string](
			`axe.run().then(r => r.violations.map(v => v.id + ": " + v.help + " " + v.nodes.map(n => n.html + " " + n.failureSummary).join("; ")))`, chromedp.EvalAwaitPromise))
		if len(findings) > 0 {
			b.t.Errorf("%s, %s: axe finds %q", name, scheme, findings)
		}
		b.screenshots(name + "-" + scheme)
	}
	b.Do(chromedp.EmulateViewport(320, 700))
	wide := Run(b, chromedp.Evaluate[[]string](
		`[...document.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > 321 && !e.closest(".scroll, svg")).map(e => e.outerHTML.slice(0, 200))`))
	if len(wide) > 0 {
		b.t.Errorf("%s: wider than 320 px: %q", name, wide)
	}
	b.Do(chromedp.EmulateViewport(1280, 900), setColorScheme("light"))
	if said := b.ConsoleMessages(); len(said) > 0 {
		b.t.Errorf("%s: the browser's console says %q", name, said)
	}
}

// Pictures writes name-light.png and name-dark.png if the flag -screenshots is set. They show the top of the current
// page, 1280 pixels wide and height pixels high.
func (b *Browser) Pictures(name string, height int64) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	b.Do(chromedp.EmulateViewport(1280, height))
	for _, scheme := range []string{"light", "dark"} {
		b.Do(setColorScheme(scheme))
		picture := Run(b, chromedp.CaptureScreenshot())
		if err := os.WriteFile(filepath.Join(*screenshots, name+"-"+scheme+".png"), picture, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	b.Do(chromedp.EmulateViewport(1280, 900), setColorScheme("light"))
}

// screenshots writes pictures of the current page if the flag is set.
func (b *Browser) screenshots(name string) {
	b.t.Helper()
	if *screenshots == "" {
		return
	}
	for _, width := range []int{1440, 360} {
		b.Do(chromedp.EmulateViewport(int64(width), 900))
		picture := Run(b, chromedp.FullScreenshot(100))
		file := fmt.Sprintf("%s-%s-%d.png", strings.ReplaceAll(b.t.Name(), "/", "-"), name, width)
		if err := os.WriteFile(filepath.Join(*screenshots, file), picture, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	b.Do(chromedp.EmulateViewport(1280, 900))
}
