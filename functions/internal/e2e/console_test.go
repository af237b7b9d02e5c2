//go:build unix

package e2e_test

import (
	"bufio"
	"html"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/browsertest"
)

const consoleKey = "the key of the console"

// visitor emulates a browser's cookies and forms.
type visitor struct {
	t      *testing.T
	client *http.Client
	base   string // URL of the console
}

func newVisitor(t *testing.T, base string) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{t, &http.Client{Jar: jar, Timeout: time.Minute}, base}
}

// visit requests a page, or sends a form, and returns the resulting page.
func (v *visitor) visit(path string, form url.Values) (status int, page string) {
	v.t.Helper()
	method, body := http.MethodGet, ""
	if form != nil {
		method, body = http.MethodPost, form.Encode()
	}
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	if form != nil {
		origin, _, _ := strings.Cut(strings.TrimPrefix(v.base, "http://"), "/")
		r.Header.Set("Origin", "http://"+origin)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	if _, err := bufio.NewReader(resp.Body).WriteTo(&text); err != nil {
		v.t.Fatal(err)
	}
	return resp.StatusCode, text.String()
}

var csrfInput = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// firstEvent returns the first event of a page part, and the time until it arrived.
func (v *visitor) firstEvent(path string) (text string, took time.Duration) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodGet, v.base+path, nil)
	if err != nil {
		v.t.Fatal(err)
	}
	r.Header.Set("Accept", "text/event-stream")
	began := time.Now()
	resp, err := v.client.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	line, err := bufio.NewReader(resp.Body).ReadString('\n')
	if err != nil || resp.StatusCode != http.StatusOK {
		v.t.Fatalf("%s: %d %q %v", path, resp.StatusCode, line, err)
	}
	return line, time.Since(began)
}

// The host requires its own key, which a browser's cookie does not contain. The console is exempt, because it
// asks for the app's key itself.
func TestHost_TheConsoleRequiresOnlyItsOwnKey(t *testing.T) {
	t.Parallel()
	requireFunc(t)
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	writeFunctions(t, e2eApp, root)
	a := launchHost(t, e2eApp, root, []string{"DURABLE_KEY=" + consoleKey}, "--enableAuth")
	v := newVisitor(t, a.url+"/api/durabletask/console")
	eventually(t, 90*time.Second, "the console below the host", func() bool {
		got, err := a.try(http.MethodGet, "/api/durabletask/console", nil)
		return err == nil && got.status == http.StatusOK && strings.Contains(got.body, "Sign in")
	})
	for _, path := range []string{"/api/durabletask/instances", "/api/durabletask/configuration", "/api/start", "/api/durabletask/console/../instances", "/api/durabletask/console/..%2Finstances"} {
		if got := a.call(http.MethodGet, path, nil); got.status < 400 && !strings.Contains(got.body, "Sign in") {
			t.Errorf("%s without a host key: %d %.200s", path, got.status, got.body)
		}
	}
	if status, _ := v.visit("/login", url.Values{"code": {"wrong"}}); status != http.StatusForbidden {
		t.Errorf("a wrong key: %d", status)
	}
	if status, page := v.visit("/login", url.Values{"code": {consoleKey}}); status != http.StatusOK || !strings.Contains(page, "Backlog") || !strings.Contains(page, "Partition") {
		t.Errorf("the key: %d %s", status, page)
	}
	if event, took := v.firstEvent("/overview/now"); !strings.HasPrefix(event, "data: <div") || took > 20*time.Second {
		t.Errorf("the first event arrived after %v: %q", took, event)
	}
	_, page := v.visit("/entities", nil)
	token := csrfInput.FindStringSubmatch(page)
	if token == nil {
		t.Fatalf("no form on %s", page)
	}
	form := url.Values{"name": {"Counter"}, "key": {"k"}, "operation": {"get"}, "csrf": {token[1]}}
	if status, page := v.visit("/entity/signal", form); status != http.StatusOK || !strings.Contains(page, "Sent get to @counter@k.") {
		t.Errorf("a form: %d %s", status, page)
	}
	for path, want := range map[string]string{"/instances?status=Running&prefix=a%25b": "No instance matches", "/instance/history?id=%40counter%40k": "ExecutionStarted", "/instance?id=a+b%2Fc%25d": "a b/c%d"} {
		if _, page := v.visit(path, nil); !strings.Contains(html.UnescapeString(page), want) {
			t.Errorf("%s lacks %q: %s", path, want, page)
		}
	}
	purge := url.Values{"id": {"@counter@k"}, "action": {"purge"}, "csrf": {token[1]}}
	if status, page := v.visit("/instance/act", purge); status != http.StatusOK || !strings.Contains(page, "Instance @counter@k is purged.") {
		t.Errorf("an action: %d %s", status, page)
	}
	form.Set("csrf", "wrong")
	if status, _ := v.visit("/entity/signal", form); status != http.StatusForbidden {
		t.Errorf("a form without the token: %d", status)
	}
	mustHub(t, root, nil, "start", "Waits", "--id", "order-7")
	t.Run("in a browser", func(t *testing.T) { browse(t, v.base, root) })
}

// browse performs the common actions of the console in a browser. The visitor has the key, and the instance
// order-7 waits for an Answer.
func browse(t *testing.T, base, root string) {
	b := browsertest.New(t)
	b.Do(chromedp.Navigate(base+"/entities"), browsertest.See(`//h1[.="Sign in"]`))
	b.Do(chromedp.SendKeys(chromedp.CSS("#code"), consoleKey+kb.Enter), browsertest.See(`//h1[.="Overview"]`),
		browsertest.See(`//h2[.="Storage"]/..//tr[td="table"]`), browsertest.See(`//td[contains(.,"this process")]/../td[2][contains(.,"3")]`))
	b.CheckPage("overview")
	b.Do(chromedp.Navigate(base+"/instances"), browsertest.See(`//a[.="order-7"]`))
	b.Do(chromedp.Click(`//a[.="order-7"]`), browsertest.See(`//ul[@class="reasons"]/li[contains(.,'event "Answer"')]`))

	// The open page shows changes by other processes.
	mustHub(t, root, nil, "suspend", "order-7", "--reason", "lunch")
	b.Do(browsertest.See(`//dd/span[.="Suspended"]`))
	b.Do(browsertest.Press(`//details[@id="resume"]/summary`), browsertest.Press(`//button[.="Resume the instance"]`),
		browsertest.See(`//*[@role="status"][contains(.,"will be resumed")]`), browsertest.See(`//dd/span[.="Running"]`))

	// A form of another session or another site has no valid token.
	b.Do(browsertest.Press(`//details[@id="suspend"]/summary`))
	browsertest.Run(b, chromedp.Evaluate[int](`document.querySelectorAll("input[name=csrf]").forEach(e => e.value = "wrong"); 0`))
	b.Do(browsertest.Press(`//button[.="Suspend the instance"]`), browsertest.See(`//*[@role="alert"][contains(.,"The form belongs to another session")]`))
	if said := b.ConsoleMessages(); len(said) != 1 || !strings.Contains(said[0], "403") {
		t.Errorf("a wrong token: the browser's console contains %q", said)
	}

	b.Do(chromedp.Navigate(base+"/instance?id=order-7"), browsertest.See(`//dd/span[.="Running"]`))
	b.Do(browsertest.Press(`//details[@id="raise"]/summary`), chromedp.SendKeys(chromedp.CSS("#event"), "Answer"), chromedp.SendKeys(chromedp.CSS("#payload"), `"yes"`),
		browsertest.Press(`//button[.="Raise the event"]`), browsertest.See(`//dd/span[.="Completed"]`))
	do := func(action, button, notice, status string) {
		t.Helper()
		b.Do(browsertest.Press(`//details[@id="`+action+`"]/summary`), browsertest.Press(`//button[.="`+button+` the instance"]`),
			browsertest.See(`//*[@role="status"][contains(.,"`+notice+`")]`))
		if status != "" {
			b.Do(browsertest.See(`//dd/span[.="` + status + `"]`))
		}
	}
	b.Do(browsertest.Press(`//*[@id="restart"]//input[@name="option"]`)) // with the same instance ID
	do("restart", "Restart", "restarted", "Running")
	do("suspend", "Suspend", "will be suspended", "Suspended")
	b.AcceptConfirm()
	do("terminate", "Terminate", "will be terminated", "Terminated")
	b.AcceptConfirm()
	do("purge", "Purge", "is purged", "")
	mustHub(t, root, nil, "start", "ActivityFails", "--id", "broken")
	b.Do(chromedp.Navigate(base+"/instance?id=broken"), browsertest.See(`//dd/span[.="Failed"]`))
	do("rewind", "Rewind", "will be rewound", "")

	// Bulk actions, and an entity.
	for _, id := range []string{"many-1", "many-2", "many-3"} {
		mustHub(t, root, nil, "start", "Waits", "--id", id)
	}
	b.Do(chromedp.Navigate(base+"/instances?prefix=many-"), browsertest.See(`//a[.="many-3"]`), chromedp.Click(chromedp.CSS("input[data-all]")),
		chromedp.Click(`//button[.="Terminate …"]`), browsertest.See(`//b[.="3"]`))
	b.Do(chromedp.Click(`//button[.="Terminate 3 instances"]`), browsertest.See(`//p[contains(.,"3 terminated")]`))
	b.Do(chromedp.Navigate(base+"/entity?name=Counter&key=e"), chromedp.Click(`//summary[.="Signal"]`), chromedp.SendKeys(chromedp.CSS("input[name=operation]"), "get"), chromedp.Click(`//button[.="Send"]`),
		browsertest.See(`//*[@role="status"][.="Sent get to @counter@e."]`))
	for path, heading := range map[string]string{"/entities": "Entities", "/hub": "Hub"} {
		b.Do(chromedp.Navigate(base+path), browsertest.See(`//h1[.="`+heading+`"]`))
	}
	if said := b.ConsoleMessages(); len(said) > 0 {
		t.Errorf("the browser's console contains %q", said)
	}
}

func TestHubTool_ServesTheConsoleUntilItIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, root := range map[string]string{
		"embedded": newRoot(t, newHub(), "", nil), "Azure Storage": newRoot(t, newHub(), azuritetest.Start(t), nil),
	} {
		t.Run(name, func(t *testing.T) {
			mustHub(t, root, nil, "start", "Waits", "--id", "a")
			cmd := exec.CommandContext(t.Context(), binary(t, e2eApp), "hub", "console")
			cmd.Dir, cmd.Env, cmd.Stderr = root, environment("DURABLE_KEY=the app's own key"), os.Stderr
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			address, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			base, _, _ := strings.Cut(address, "/login")
			v := newVisitor(t, base)
			if status, page := v.visit("", nil); status != http.StatusOK || !strings.Contains(page, "Sign in") {
				t.Errorf("without the key: %d %s", status, page)
			}
			if status, page := v.visit(strings.TrimSpace(strings.TrimPrefix(address, base)), nil); status != http.StatusOK || !strings.Contains(page, "Overview") {
				t.Errorf("%s: %d %s", address, status, page)
			}
			if status, page := v.visit("/overview/counts", nil); status != http.StatusOK || !strings.Contains(page, "Waits") {
				t.Errorf("%d %s", status, page)
			}
			if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("after an interrupt: %v", err)
			}
		})
	}
	root := newRoot(t, newHub(), "", nil)
	a := startStandalone(t, e2eApp, root)
	eventually(t, 30*time.Second, "the app to open its file", func() bool { return strings.Contains(a.log(), "connected to storage") })
	if got, want := mustHub(t, root, nil, "console"), a.url+"/api/durabletask/console\n"; got != want {
		t.Errorf("hub of a running app: %q, want %q", got, want)
	}
}
