package console

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
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
	form    url.Values    // of a POST
	status  int           // of the answer; 0 is 200
	events  *bytes.Buffer // takes a part that is sent as an event
}

// value returns a field of the form or, of a page, a parameter of the URL; "" if there is none.
func (v *visit) value(name string) string {
	if v.form != nil {
		return v.form.Get(name)
	}
	return v.QueryParam(name)
}

// readForm reads the form of a POST.
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

// isPart reports whether the answer goes into a page that is there already.
func (v *visit) isPart() bool { return v.Request().Header.Get("Hx-Request") != "" || v.wantsEvents() }

// A view is what templates are executed with.
type view struct {
	Base     string // path of the console, with which links begin
	Version  string // of the console's files, in their addresses
	Path     string // of the page below Base
	Title    string
	TaskHub  string
	CSRF     string // for forms
	CanWrite bool   // forms may be shown
	SignedIn bool
	Notice   string // what the last form did
	Now      time.Time
	Data     any
}

// page answers with a page of a template.
func (v *visit) page(name, title string, data any) error {
	return v.render(name, "layout", title, data)
}

// part answers with a part in the file of a page's template.
func (v *visit) part(page, name string, data any) error { return v.render(page, name, "", data) }

func (v *visit) render(file, name, title string, data any) error {
	c := v.console
	d := view{
		Base: c.base, Version: filesVersion(), Path: strings.Trim(v.Request().URL.Path[len(c.base):], "/"), Title: title, TaskHub: c.cfg.TaskHub,
		CanWrite: v.right == management.Write, SignedIn: v.session != "", Now: time.Now(), Data: data,
	}
	if v.right != management.NoRight {
		d.CSRF = c.sessions.token(v.session, v.right)
	}
	if name == "layout" {
		d.Notice = v.takeNotice()
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

// done answers a form with the page at a path below the console, which shows a notice of
// what was done.
func (v *visit) done(path, notice string) error {
	v.setCookie(noticeCookie, url.QueryEscape(notice[:min(len(notice), 1000)]), time.Minute)
	return v.Redirect(http.StatusSeeOther, v.console.base+"/"+path)
}

// takeNotice returns the notice of the last form, and forgets it.
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

// setCookie sets a cookie of the console, or removes it if its time is negative.
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
