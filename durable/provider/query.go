package provider

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Query selects instances. All conditions that are set must hold.
type Query struct {
	CreatedFrom time.Time               // the first moment; zero: no bound
	CreatedTo   time.Time               // the last moment; zero: no bound
	Statuses    []history.RuntimeStatus // empty: any
	IDPrefix    string
	Name        string // of the orchestrator; empty: any
	// ExcludeEntities leaves out instances whose ID begins with "@".
	ExcludeEntities bool
	Fetch           Fetch
	PageSize        int // 0: the provider's default
	// PageBytes is the size of inputs, outputs, custom statuses and tags, in bytes,
	// with which a page ends. The instance that reaches it is on the page. 0:
	// [DefaultPageBytes].
	PageBytes    int
	Continuation string // Page.Continuation of the page before
}

// DefaultPageBytes is the default of [Query.PageBytes], 16 MiB.
const DefaultPageBytes = 16 << 20

// PageRoom is what is left of [Query.PageBytes] on a page.
type PageRoom struct{ left int }

// Room returns the room of an empty page.
func (q *Query) Room() *PageRoom { return &PageRoom{cmp.Or(max(q.PageBytes, 0), DefaultPageBytes)} }

// Take subtracts the size of an instance, which is on the page in any case.
func (r *PageRoom) Take(s *InstanceState) {
	for _, text := range []*string{s.Input, s.Output, s.CustomStatus} {
		if text != nil {
			r.left -= len(*text)
		}
	}
	for name, value := range s.Tags {
		r.left -= len(name) + len(value)
	}
}

// Left returns how many bytes are left. A page ends with none.
func (r *PageRoom) Left() int { return max(r.left, 0) }

// Matches reports whether q selects an instance. A provider may filter in its
// storage, but returns only instances that match.
func (q *Query) Matches(s *InstanceState) bool {
	id := s.Instance.InstanceID
	switch {
	case !q.CreatedFrom.IsZero() && s.CreatedAt.Before(q.CreatedFrom),
		!q.CreatedTo.IsZero() && s.CreatedAt.After(q.CreatedTo),
		len(q.Statuses) > 0 && !slices.Contains(q.Statuses, s.Status),
		!strings.HasPrefix(id, q.IDPrefix),
		q.Name != "" && s.Name != q.Name,
		q.ExcludeEntities && history.IsEntity(id):
		return false
	}
	return true
}

// Page is a part of a query's result. A page can have a continuation though it is
// empty or has fewer instances than the query asks for.
type Page struct {
	Instances []*InstanceState
	// Continuation is [Query.Continuation] of the next page; empty on the last one. It
	// is valid in an HTTP header.
	Continuation string
	// Unreadable are the instances that were left out because their records cannot be
	// read. They may or may not match.
	Unreadable []UnreadableInstance
}

// UnreadableInstance is an instance whose record cannot be decoded, or of which a
// payload is missing. It can also be a range of IDs whose records cannot be read: InstanceID is
// the first possible one, and Cause names the range. An outage fails the query instead.
type UnreadableInstance struct {
	InstanceID string
	Cause      error
}

// ErrContinuation is the error of a continuation that the hub did not return.
var ErrContinuation = errors.New("the continuation is not one that this task hub returned")

// EncodeContinuation encodes a provider's places of the next page as a continuation,
// in base64url: it is opaque, and HTTP does not change it, as it would trim blanks.
func EncodeContinuation(places ...string) string {
	text, err := json.Marshal(places)
	if err != nil {
		panic("texts cannot be encoded as JSON: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeContinuation returns the n places of a continuation, or [ErrContinuation].
func DecodeContinuation(continuation string, n int) (places []string, err error) {
	text, err := base64.RawURLEncoding.DecodeString(continuation)
	if err == nil {
		err = json.Unmarshal(text, &places)
	}
	if err != nil || len(places) != n {
		return nil, ErrContinuation
	}
	return places, nil
}
