package management

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// headerKey is the header that may contain the caller's key. The Functions host uses the same name.
const headerKey = "X-Functions-Key"

// An Access checks the keys of callers of the management API. Without a key, every caller has access.
//
// The key itself never leaves the server. URLs in answers contain a code derived from the key, an
// instance ID and the time. A caller may get such a URL from a route of the app that needs no key. The
// code is therefore valid only for the instance that had the ID at that time, not for a later one.
type Access struct {
	Key     string
	ReadKey string // read-only key; "" for none
}

// A Right describes which operations a caller may use.
type Right int

// Rights of callers.
const (
	NoRight Right = iota
	Read
	Write // includes Read
)

// String returns the name of r.
func (r Right) String() string { return [...]string{"none", "read", "write"}[r] }

// RightOf returns the right of a caller that sends key, which may be "".
func (a Access) RightOf(key string) Right {
	write, read := sameSecret(key, a.Key), sameSecret(key, a.ReadKey)
	switch {
	case a.open() || write:
		return Write
	case a.ReadKey != "" && read:
		return Read
	}
	return NoRight
}

// open reports whether callers need no key.
func (a Access) open() bool { return a.Key == "" }

// of returns the right of the sender of a request.
func (a Access) of(r *http.Request) Right {
	return max(a.RightOf(web.ParseQuery(r.URL.RawQuery).Text("code")), a.RightOf(r.Header.Get(headerKey)))
}

// bearer is the scheme of the Authorization header that may contain the caller's key.
const bearer = "Bearer"

// reads reports whether a request has a key for reading, also as bearer token.
func (a Access) reads(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, bearer) {
		token = ""
	}
	return max(a.of(r), a.RightOf(strings.TrimSpace(token))) >= Read
}

// full reports whether a request has a key that permits its method.
func (a Access) full(r *http.Request) bool {
	right := a.of(r)
	return right == Write || right == Read && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// stampSize is the size of the time in a code, in bytes.
const stampSize = 8

// Code returns a code for the instance that has the ID at the given time.
func (a Access) Code(id durable.InstanceID, at time.Time) string {
	stamp := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(stamp, a.Mac(id, stamp)...))
}

// Mac returns the signature of a code with the given time.
func (a Access) Mac(id durable.InstanceID, stamp []byte) []byte {
	mac := hmac.New(sha256.New, []byte(a.Key))
	mac.Write(stamp)
	mac.Write([]byte("instance:" + string(id)))
	return mac.Sum(nil)
}

// issued returns the time of the code in a request, which is its parameter sig or else its parameter code.
// ok is false if the code is not valid for id. A code of an earlier version of this package has no time
// and counts as the oldest.
func (a Access) issued(r *http.Request, id durable.InstanceID) (at time.Time, ok bool) {
	q := web.ParseQuery(r.URL.RawQuery)
	code, err := base64.RawURLEncoding.DecodeString(cmp.Or(q.Text("sig"), q.Text("code")))
	stamp := len(code) - sha256.Size
	if err != nil || stamp != 0 && stamp != stampSize || !hmac.Equal(code[stamp:], a.Mac(id, code[:stamp])) {
		return time.Time{}, false
	}
	if stamp > 0 {
		at = time.Unix(0, int64(binary.BigEndian.Uint64(code)))
	}
	return at, true
}

// sameSecret compares in a time that depends on neither the content nor the length of the secret.
func sameSecret(given, secret string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
