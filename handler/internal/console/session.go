package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

const (
	sessionCookie = "durable-session"
	noticeCookie  = "durable-notice"

	// sessionTime is how long a session lasts.
	sessionTime = 12 * time.Hour

	csrfField  = "csrf"
	csrfHeader = "X-Csrf-Token"
)

// sessions makes and checks sessions. A session is a text that is made of the key with which
// somebody signed in, and of a time: it outlives a restart, every process of the app
// knows it, and who changes the key ends it.
type sessions struct {
	access    management.Access
	unguessed []byte // makes tokens where there is no key
}

// newSession returns a session for a right that ends at a time.
func (s sessions) newSession(right management.Right, end time.Time) string {
	text := right.String() + "." + strconv.FormatInt(end.Unix(), 10)
	return text + "." + s.mac(right, "console session "+text)
}

// of returns the session of a request, and what it may do. Without a key everybody may do
// everything, without a session.
func (s sessions) of(r *http.Request, now time.Time) (session string, right management.Right) {
	if s.access.Key == "" {
		return "", management.Write
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return "", management.NoRight
	}
	_, text, _ := strings.Cut(cookie.Value, ".")
	text, _, _ = strings.Cut(text, ".")
	end, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !now.Before(time.Unix(end, 0)) {
		return "", management.NoRight
	}
	for _, right := range []management.Right{management.Write, management.Read} {
		if s.secret(right) != nil && hmac.Equal([]byte(cookie.Value), []byte(s.newSession(right, time.Unix(end, 0)))) {
			return cookie.Value, right
		}
	}
	return "", management.NoRight
}

// token returns what forms of a session have.
func (s sessions) token(session string, right management.Right) string {
	return s.mac(right, "console form "+session)
}

// isToken reports whether a form's token is of a session.
func (s sessions) isToken(token, session string, right management.Right) bool {
	return hmac.Equal([]byte(token), []byte(s.token(session, right)))
}

func (s sessions) mac(right management.Right, text string) string {
	mac := hmac.New(sha256.New, s.secret(right))
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// secret returns what sessions of a right are made with, nil if there can be none.
func (s sessions) secret(right management.Right) []byte {
	switch {
	case s.access.Key == "":
		return s.unguessed
	case right == management.Write:
		return []byte(s.access.Key)
	case right == management.Read && s.access.ReadKey != "":
		return []byte(s.access.ReadKey)
	}
	return nil
}
