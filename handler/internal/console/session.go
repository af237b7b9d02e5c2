package console

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/management"
)

const (
	sessionCookie = "durable-session"
	noticeCookie  = "durable-notice"

	// sessionTime is the duration of a session.
	sessionTime = 12 * time.Hour

	csrfField  = "csrf"
	csrfHeader = "X-Csrf-Token"
)

// sessions creates and validates sessions. A session is a text signed with the key that was used to
// sign in, and has an expiry time. All processes of the app accept it, also after a restart. Changing
// the key ends all its sessions.
type sessions struct {
	access  management.Access
	formKey []byte // random key for form tokens of a console without a key
}

// newSession returns a session for a right that expires at end. Each session is unique.
func (s sessions) newSession(right management.Right, end time.Time) string {
	text := right.String() + "." + strconv.FormatInt(end.Unix(), 10) + "." + rand.Text()
	return text + "." + s.mac(right, "console session "+text)
}

// of returns the session of a request and its right. If the app has no key, every caller may write and
// needs no session.
func (s sessions) of(r *http.Request, now time.Time) (session string, right management.Right) {
	if s.access.Key == "" {
		return "", management.Write
	}
	cookie, err := r.Cookie(sessionCookie)
	if err != nil {
		return "", management.NoRight
	}
	parts := strings.Split(cookie.Value, ".") // right, expiry, random text, signature
	if len(parts) != 4 {
		return "", management.NoRight
	}
	end, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil || !now.Before(time.Unix(end, 0)) {
		return "", management.NoRight
	}
	text := strings.Join(parts[:3], ".")
	for _, right := range []management.Right{management.Write, management.Read} {
		if parts[0] == right.String() && s.secret(right) != nil && hmac.Equal([]byte(parts[3]), []byte(s.mac(right, "console session "+text))) {
			return cookie.Value, right
		}
	}
	return "", management.NoRight
}

// endedSessions holds the sessions that were signed out in this process. Other processes still accept
// them.
type endedSessions struct {
	mu    sync.Mutex
	until map[string]time.Time // expiry of each session
}

// add ends a session. It also removes expired sessions.
func (e *endedSessions) add(session string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.until == nil {
		e.until = map[string]time.Time{}
	}
	maps.DeleteFunc(e.until, func(_ string, until time.Time) bool { return !now.Before(until) })
	e.until[session] = now.Add(sessionTime)
}

// has reports whether a session was signed out in this process.
func (e *endedSessions) has(session string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.until[session]
	return ok
}

// token returns the token for the forms of a session.
func (s sessions) token(session string, right management.Right) string {
	return s.mac(right, "console form "+session)
}

// isToken reports whether token is the token for the forms of a session.
func (s sessions) isToken(token, session string, right management.Right) bool {
	return hmac.Equal([]byte(token), []byte(s.token(session, right)))
}

func (s sessions) mac(right management.Right, text string) string {
	mac := hmac.New(sha256.New, s.secret(right))
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// secret returns the signing key for sessions of a right, or nil if the right has no key.
func (s sessions) secret(right management.Right) []byte {
	switch {
	case s.access.Key == "":
		return s.formKey
	case right == management.Write:
		return []byte(s.access.Key)
	case right == management.Read && s.access.ReadKey != "":
		return []byte(s.access.ReadKey)
	}
	return nil
}
