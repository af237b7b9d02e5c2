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

// Query selects instances. An instance matches if it meets all conditions that are set.
type Query struct {
	CreatedFrom time.Time               // earliest creation time (inclusive); zero means no bound
	CreatedTo   time.Time               // latest creation time (inclusive); zero means no bound
	Statuses    []history.RuntimeStatus // empty means any status
	IDPrefix    string                  // empty means any ID
	Name        string                  // of the orchestrator; empty means any name
	// ExcludeEntities skips entities, whose instance IDs begin with "@".
	ExcludeEntities bool
	Fetch           Fetch
	PageSize        int // 0 means the provider's default
	// PageBytes limits the total size of inputs, outputs, custom statuses and tags on a page,
	// in bytes. The page includes the instance that reaches the limit. 0 means
	// [DefaultPageBytes].
	PageBytes    int
	Continuation string // Page.Continuation of the previous page
}

// DefaultPageBytes is the default of [Query.PageBytes], 16 MiB.
const DefaultPageBytes = 16 << 20

// PageBudget counts the bytes that remain of [Query.PageBytes] while a provider fills a page.
type PageBudget struct{ remaining int }

// PageBudget returns the PageBudget of an empty page.
func (q *Query) PageBudget() *PageBudget {
	return &PageBudget{cmp.Or(max(q.PageBytes, 0), DefaultPageBytes)}
}

// Subtract subtracts the size of an instance. The instance belongs to the page even if it
// exceeds the budget.
func (r *PageBudget) Subtract(s *InstanceState) {
	for _, text := range []*string{s.Input, s.Output, s.CustomStatus} {
		if text != nil {
			r.remaining -= len(*text)
		}
	}
	for name, value := range s.Tags {
		r.remaining -= len(name) + len(value)
	}
}

// Remaining returns the number of remaining bytes. A page ends when it is 0.
func (r *PageBudget) Remaining() int { return max(r.remaining, 0) }

// Matches reports whether q selects an instance. Providers may also filter in the storage, but
// return only instances that match.
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

// Page is one page of a query's result. A page may have a continuation even if it is empty or
// contains fewer instances than the requested page size.
type Page struct {
	Instances []*InstanceState
	// Continuation is the [Query.Continuation] of the next page. It is empty on the last page.
	// It is valid in an HTTP header.
	Continuation string
	// Unreadable lists instances that are missing from Instances because their records cannot
	// be read. They may or may not match the query.
	Unreadable []UnreadableInstance
}

// UnreadableInstance is an instance whose record cannot be decoded or whose payload is missing.
// It can also stand for a range of unreadable IDs: InstanceID is then the first possible ID,
// and Cause names the range. An outage of the storage fails the whole query instead.
type UnreadableInstance struct {
	InstanceID string
	Cause      error
}

// ErrContinuation is the error for a continuation that this hub did not return.
var ErrContinuation = errors.New("the continuation token was not issued by this task hub")

// EncodeContinuation encodes a provider's positions of the next page as an opaque continuation.
// The result is base64url because HTTP headers may not preserve other characters, such as
// leading blanks.
func EncodeContinuation(places ...string) string {
	text, err := json.Marshal(places)
	if err != nil {
		panic("texts cannot be encoded as JSON: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// DecodeContinuation returns the n positions of a continuation. The error is [ErrContinuation]
// if continuation is invalid.
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
