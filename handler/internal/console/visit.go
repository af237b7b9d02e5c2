package console

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/secrets"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
	"github.com/labstack/echo/v4"
)

// A visit is one request to the console.
type visit struct {
	echo.Context
	console *Console
	hub     management.Hub
	session string
	right   management.Right
	form    url.Values    // fields of a POST
	status  int           // status of the answer; 0 means 200
	events  *bytes.Buffer // buffer for a part that is sent as an event
}

// signIn sets the session and the right of the request.
func (v *visit) signIn() {
	v.session, v.right = v.console.sessions.of(v.Request(), time.Now())
	if v.console.ended.has(v.session) {
		v.session, v.right = "", management.NoRight
	}
}

// value returns a field of the form of a POST, or a query parameter of any other request.
func (v *visit) value(name string) string {
	if v.form != nil {
		return v.form.Get(name)
	}
	return v.QueryParam(name)
}

// readForm parses the form of a POST.
func (v *visit) readForm() error {
	text, err := web.BodyText(v.Context)
	if err != nil {
		return err
	}
	if v.form, err = url.ParseQuery(string(text)); err != nil {
		return web.BadRequest("The form cannot be read: %v.", err)
	}
	return nil
}

// isPart reports whether the request asks for a part of a page.
func (v *visit) isPart() bool { return v.Request().Header.Get("Hx-Request") != "" || v.wantsEvents() }

// A view is the data of all templates.
type view struct {
	Base     string // path of the console; links start with it
	Version  string // version of the static files, part of their URLs
	Path     string // path of the page, relative to Base
	Title    string
	TaskHub  string
	CSRF     string // token for forms
	CanWrite bool   // the caller may write, so forms are rendered
	SignedIn bool
	Notice   string // result of the previous form
	Now      time.Time
	Data     any
}

// A section is an entry of the navigation.
type section struct{ Path, Text string }

// Sections returns the entries of the navigation.
func (v view) Sections() []section {
	return []section{{"", "Overview"}, {"instances", "Instances"}, {"entities", "Entities"}, {"hub", "Hub"}}
}

// IsIn reports whether the page belongs to a section. The page of an instance belongs to the list of
// instances.
func (v view) IsIn(s section) bool {
	first, _, _ := strings.Cut(v.Path, "/")
	switch first {
	case "instance":
		first = "instances"
	case "entity":
		first = "entities"
	}
	return first == s.Path
}

// page answers with a page.
func (v *visit) page(name, title string, data any) error {
	return v.render(name, "layout", title, data)
}

// part answers with a part that is defined in the file of a page.
func (v *visit) part(page, name string, data any) error { return v.render(page, name, "", data) }

func (v *visit) render(file, name, title string, data any) error {
	c := v.console
	d := view{
		Base: c.base, Version: filesVersion(), Path: strings.Trim(v.Request().URL.Path[len(c.base):], "/"), Title: visible(title), TaskHub: c.cfg.TaskHub,
		CanWrite: v.right == management.Write, SignedIn: v.session != "", Now: time.Now(), Data: data,
	}
	if v.right != management.NoRight {
		d.CSRF = c.sessions.token(v.session, v.right)
	}
	if name == "layout" {
		d.Notice = visible(v.takeNotice())
	}
	var out bytes.Buffer
	if err := templates()[file].ExecuteTemplate(&out, name, d); err != nil {
		return err
	}
	if v.events != nil {
		v.events.Write(out.Bytes())
		return nil
	}
	if v.status == 0 {
		v.status = http.StatusOK
	}
	return v.HTMLBlob(v.status, out.Bytes())
}

// done answers a form with a redirect to a path of the console. The next page shows the notice.
func (v *visit) done(path, notice string) error {
	v.setCookie(noticeCookie, url.QueryEscape(notice[:min(len(notice), 1000)]), time.Minute)
	return v.Redirect(http.StatusSeeOther, v.console.base+"/"+path)
}

// download answers with text as a file. It appends .txt to the name.
func (v *visit) download(name, text string) error {
	v.Response().Header().Set("Content-Disposition", "attachment; filename=\""+fileName(name)+".txt\"")
	return v.Stream(http.StatusOK, "text/plain; charset=utf-8", strings.NewReader(text))
}

// fileName replaces all characters of name except letters, digits, dots and hyphens.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || r == '-' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '-'
	}, name)
}

// takeNotice returns the notice of the previous form and removes it.
func (v *visit) takeNotice() string {
	cookie, err := v.Request().Cookie(noticeCookie)
	if err != nil {
		return ""
	}
	v.setCookie(noticeCookie, "", -1)
	notice, err := url.QueryUnescape(cookie.Value)
	if err != nil {
		return ""
	}
	return notice
}

// setCookie sets a cookie of the console. A negative duration removes it.
func (v *visit) setCookie(name, value string, lasts time.Duration) {
	seconds := int(lasts / time.Second)
	if lasts < 0 {
		seconds = -1
	}
	v.SetCookie(&http.Cookie{
		Name: name, Value: value, Path: v.console.base, MaxAge: seconds, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: strings.HasPrefix(v.console.front.Origin(v.Request()), "https:"),
	})
}

// answer answers the request with a route, which is nil if no route matches.
func (v *visit) answer(r *route) error {
	switch {
	case v.right == management.NoRight && (r == nil || !r.forAll):
		return v.redirectToLogin()
	case r == nil:
		return errNoPage
	}
	if r.method == http.MethodPost {
		if err := v.checkForm(r); err != nil {
			return err
		}
	}
	if !r.always {
		if err := v.console.state.Await(v.Request().Context(), management.StartupTimeout); err != nil {
			return err
		}
	}
	return r.serve(v)
}

// checkForm parses the form and rejects it unless it is authorized: its origin, its token and the right
// of the session must be valid.
func (v *visit) checkForm(r *route) error {
	if err := v.console.front.CheckOrigin(v.Request()); err != nil {
		return err
	}
	if err := v.readForm(); err != nil || r.forAll {
		return err
	}
	token := v.value(csrfField)
	if token == "" {
		token = v.Request().Header.Get(csrfHeader)
	}
	switch {
	case !v.console.sessions.isToken(token, v.session, v.right):
		return web.AnswerWith(http.StatusForbidden, web.ErrorBody{Message: "The form belongs to another session. Load the page again."})
	case v.right != management.Write:
		return web.AnswerWith(http.StatusForbidden, web.ErrorBody{Message: "The key is for reading only."})
	}
	return nil
}

// redirectToLogin redirects a caller without a session to the sign-in page.
func (v *visit) redirectToLogin() error {
	if v.isPart() || v.Request().Method != http.MethodGet {
		v.Response().Header().Set("Hx-Refresh", "true")
		return errSignedOut
	}
	return v.Redirect(http.StatusSeeOther, v.console.base+"/login")
}

// fail answers with an error page or, for a part, an error message.
func (v *visit) fail(err error) error {
	if v.events == nil && v.Response().Committed {
		return err
	}
	status, message := v.report(err)
	v.status = status
	if v.isPart() {
		return v.part("error", "message", message)
	}
	return v.page("error", http.StatusText(status), message)
}

// report returns the status and the message that answer an error. It logs unexpected errors.
func (v *visit) report(err error) (status int, message string) {
	status, message = web.StatusOf(err)
	if status >= http.StatusInternalServerError && status != http.StatusServiceUnavailable && v.Request().Context().Err() == nil {
		v.console.logger.Error("request failed", "method", v.Request().Method, "path", v.Request().URL.Path,
			"status", status, "requestId", web.RequestID(v), "error", secrets.Line(err))
	}
	return status, message
}

// streamTime limits one connection for events. Azure limits a request to 230 s. The page then
// reconnects.
const streamTime = 200 * time.Second

// wantsEvents reports whether the request asks for a part as server-sent events.
func (v *visit) wantsEvents() bool {
	return strings.Contains(v.Request().Header.Get(echo.HeaderAccept), "text/event-stream")
}

// stream sends a part as events: at once, and whenever it has changed. If the connection does not
// support deadlines, the host wraps answers. The stream then ends after the first event, and the page
// polls.
func (v *visit) stream(r *route) error {
	w := http.NewResponseController(v.Response().Writer)
	if v.right == management.NoRight {
		return v.NoContent(http.StatusUnauthorized)
	}
	end := time.Now().Add(streamTime)
	isWrapped := w.SetWriteDeadline(end.Add(web.AnswerTimeout)) != nil
	h := v.Response().Header()
	h.Set(echo.HeaderContentType, "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // asks proxies not to buffer events
	v.events = new(bytes.Buffer)
	tick := time.NewTicker(r.live)
	defer tick.Stop()
	last := ""
	for time.Now().Before(end) {
		if v.signIn(); v.right == management.NoRight {
			return nil
		}
		v.events.Reset()
		if err := v.answer(r); err != nil {
			v.events.Reset()
			if err := v.fail(err); err != nil {
				return err
			}
		}
		event := ":\n\n" // a comment that keeps the connection alive and detects that it is closed
		if now := v.events.String(); now != last {
			event, last = "data: "+strings.ReplaceAll(strings.TrimSpace(now), "\n", "\ndata: ")+"\n\n", now
		}
		if _, err := v.Response().Write([]byte(event)); err != nil {
			return nil
		}
		if err := w.Flush(); err != nil || isWrapped {
			return nil
		}
		select {
		case <-tick.C:
		case <-v.console.draining:
			return nil
		case <-v.Request().Context().Done():
			return nil
		}
	}
	return nil
}
