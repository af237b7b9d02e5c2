package management

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// headerKey is the header that a caller's key may be in, as with the Functions
// host.
const headerKey = "X-Functions-Key"

// An Access checks the keys of callers of the management API. Without a key everybody has
// access.
//
// The key itself never leaves the server. URLs in answers have a code made of the key, an
// instance's ID and the time. It is valid only for the instance that has the ID at that
// time, since everybody gets such URLs who can start an instance, even through a route of
// the app that needs no key.
type Access struct {
	Key     string
	ReadKey string // with which one can only read; "" if there is none
}

// A Right is what a caller may do.
type Right int

// The rights.
const (
	NoRight Right = iota
	Read
	Write // and read
)

// String returns the name of r.
func (r Right) String() string { return [...]string{"none", "read", "write"}[r] }

// Of returns what a caller may do who sends a key, "" if none.
func (a Access) Of(key string) Right {
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

// of returns what the sender of a request may do.
func (a Access) of(r *http.Request) Right {
	return max(a.Of(web.ParseQuery(r.URL.RawQuery).Text("code")), a.Of(r.Header.Get(headerKey)))
}

// full reports whether a request has a key that is good for it.
func (a Access) full(r *http.Request) bool {
	right := a.of(r)
	return right == Write || right == Read && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// stampSize is the number of bytes of a code's time.
const stampSize = 8

// Code returns a code for the instance that has an ID at a time.
func (a Access) Code(id durable.InstanceID, at time.Time) string {
	stamp := binary.BigEndian.AppendUint64(nil, uint64(at.UnixNano()))
	return base64.RawURLEncoding.EncodeToString(append(stamp, a.Mac(id, stamp)...))
}

// Mac returns the code without its stamp.
func (a Access) Mac(id durable.InstanceID, stamp []byte) []byte {
	mac := hmac.New(sha256.New, []byte(a.Key))
	mac.Write(stamp)
	mac.Write([]byte("instance:" + string(id)))
	return mac.Sum(nil)
}

// issued returns the time of a request's code for an ID. Ok is false if the code is wrong.
// Codes of earlier versions of this package have no time: they count as the oldest.
func (a Access) issued(r *http.Request, id durable.InstanceID) (at time.Time, ok bool) {
	code, err := base64.RawURLEncoding.DecodeString(web.ParseQuery(r.URL.RawQuery).Text("code"))
	stamp := len(code) - sha256.Size
	if err != nil || stamp != 0 && stamp != stampSize || !hmac.Equal(code[stamp:], a.Mac(id, code[:stamp])) {
		return time.Time{}, false
	}
	if stamp > 0 {
		at = time.Unix(0, int64(binary.BigEndian.Uint64(code)))
	}
	return at, true
}

// sameSecret compares in a time that tells nothing of the secret, its length
// included.
func sameSecret(given, secret string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
