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

// A Query selects instances. Conditions that are set must all hold.
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
	// PageBytes is with how many bytes of inputs, outputs, custom statuses and tags a
	// page ends, the instance included that brings it there; 0: [DefaultPageBytes].
	PageBytes    int
	Continuation string // Page.Continuation of the page before
}

// DefaultPageBytes is what [Query.PageBytes] is unless a query says otherwise.
const DefaultPageBytes = 16 << 20

// A PageRoom is what a page may still have of [Query.PageBytes].
type PageRoom struct{ left int }

// Room returns the room of an empty page.
func (q *Query) Room() *PageRoom { return &PageRoom{cmp.Or(max(q.PageBytes, 0), DefaultPageBytes)} }

// Take takes the room for an instance, which is on the page in any case.
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

// Left returns how many bytes there is room for. Without any the page ends.
func (r *PageRoom) Left() int { return max(r.left, 0) }

// Matches reports whether q selects an instance. A provider may have its storage
// select what it can, but hands out only what Matches is true of.
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

// A Page is part of a query's answer. A page can be empty, or have fewer instances than
// the query asks for, and yet have a continuation.
type Page struct {
	Instances []*InstanceState
	// Continuation asks for the next page; empty on the last. It is made by
	// [EncodeContinuation], so that it can be a header of HTTP.
	Continuation string
	// Unreadable are the instances that were left out since what is stored of them
	// cannot be read. Whether the query selects them is not known.
	Unreadable []UnreadableInstance
}

// An UnreadableInstance is one whose record cannot be decoded, or a payload of
// which is missing. An outage makes a query fail instead.
type UnreadableInstance struct {
	InstanceID string
	Cause      error
}

// ErrContinuation says that a query's continuation is not one that the hub
// returned.
var ErrContinuation = errors.New("the continuation is not one that this task hub returned")

// EncodeContinuation makes a continuation of what a provider needs to find the
// next page. It is base64url: callers cannot read it, and HTTP, which for instance
// takes blanks off the end of a header, does not change it.
func EncodeContinuation(places ...string) string {
	text, err := json.Marshal(places)
	if err != nil {
		panic("texts cannot be encoded as JSON: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeContinuation returns what a continuation was made of, so many places, or
// [ErrContinuation].
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
