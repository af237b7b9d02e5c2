package handler

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/netip"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// headerKey is the header that a caller's key may be in, as with the Functions
// host.
const headerKey = "X-Functions-Key"

// shortestKey is how many characters a key should have at least.
const shortestKey = 16

// An access says who may call the management API: whoever has the key, or
// everybody if there is none.
//
// The key itself never leaves the server. URLs that are handed out carry a code
// that is made of the key and an instance's ID and is good for that instance
// only, since they go to whoever starts an instance, also by a route of the app
// that asks for no key.
type access struct{ key string }

// open reports whether everybody may call.
func (a access) open() bool { return a.key == "" }

// full reports whether a request has the key.
func (a access) full(r *http.Request) bool {
	if a.open() {
		return true
	}
	fromURL := sameSecret(parseQuery(r.URL.RawQuery).text("code"), a.key)
	fromHeader := sameSecret(r.Header.Get(headerKey), a.key)
	return fromURL || fromHeader
}

// to reports whether a request may do something with an instance.
func (a access) to(r *http.Request, id durable.InstanceID) bool {
	return a.full(r) || sameSecret(parseQuery(r.URL.RawQuery).text("code"), a.code(id))
}

// code returns what is as good as the key for one instance.
func (a access) code(id durable.InstanceID) string {
	mac := hmac.New(sha256.New, []byte(a.key))
	mac.Write([]byte("instance:" + string(id)))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// sameSecret compares in a time that tells nothing of the secret, its length
// included.
func sameSecret(given, secret string) bool {
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// isLoopback reports whether only this machine can reach an address, which is a
// host with a port or without.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
