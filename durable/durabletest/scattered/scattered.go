// Package scattered is for tests of code that reads lists of instances. Its hub returns many short
// pages, and an empty page before each of them. A provider may do the same.
package scattered

import (
	"context"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// PageSize is the maximum number of instances on a page.
const PageSize = 2

// A Store is a hub that implements the optional interfaces for purges and rewinds.
type Store interface {
	provider.Provider
	provider.Purger
	provider.Rewinder
}

// Hub is a hub with short pages.
type Hub struct{ Store }

// gap is the beginning of the continuation of an empty page.
const gap = "gap-"

// Instances returns a page with at most PageSize instances. The first page is empty, and so is every
// other page after it.
func (h Hub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	next, ok := strings.CutPrefix(q.Continuation, gap)
	if !ok {
		return &provider.Page{Continuation: gap + q.Continuation}, nil
	}
	q.Continuation = next
	if q.PageSize <= 0 || q.PageSize > PageSize {
		q.PageSize = PageSize
	}
	return h.Store.Instances(ctx, q)
}
