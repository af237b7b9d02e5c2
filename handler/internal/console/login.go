package console

import (
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

var loginRoutes = []route{
	{method: http.MethodGet, path: "login", serve: showLogin, forAll: true, always: true},
	{method: http.MethodPost, path: "login", serve: login, forAll: true, always: true},
	{method: http.MethodPost, path: "logout", serve: logout, forAll: true, always: true},
}

// showLogin asks for the key. A link with the key in the parameter code signs in at once.
func showLogin(v *visit) error {
	if v.value("code") != "" {
		return login(v)
	}
	return v.page("login", "Sign in", nil)
}

// login starts a session. Its form needs no token, because only a caller with the key can use it.
func login(v *visit) error {
	right := v.console.cfg.API.Access.RightOf(v.value("code"))
	if right == management.NoRight {
		v.status = http.StatusForbidden
		return v.page("login", "Sign in", "The key is not valid.")
	}
	v.setCookie(sessionCookie, v.console.sessions.newSession(right, time.Now().Add(sessionTime)), sessionTime)
	return v.Redirect(http.StatusSeeOther, v.console.base)
}

// logout ends the session in this browser and in this process.
func logout(v *visit) error {
	if v.session != "" {
		v.console.ended.add(v.session, time.Now())
	}
	v.setCookie(sessionCookie, "", -1)
	return v.Redirect(http.StatusSeeOther, v.console.base+"/login")
}
