package console

import "net/url"

// A way are the continuations of the pages that led to a page of the list, the first one
// first; that of the first page is "". Continuations lead forward only: the way back is what
// the URL remembers. It has no more than fits into a URL, so that the oldest are forgotten.
type way []string

// mostWay bounds a way in a URL, in bytes: some hosts take no more than 2,048 of a query.
const mostWay = 1200

// onwards returns the way to the page after one with a continuation, which this way led to.
func (w way) onwards(continuation string) way {
	next := append(w[:len(w):len(w)], continuation)
	size := 0
	for i := len(next) - 1; i >= 0; i-- {
		if size += len("&way=") + len(url.QueryEscape(next[i])); size > mostWay {
			return next[i+1:]
		}
	}
	return next
}

// back returns the query of the page before; false if the way does not know it.
func (w way) back(f listFilter) (query string, ok bool) {
	if len(w) == 0 {
		return "", false
	}
	v := f.Values()
	if last := w[len(w)-1]; last != "" {
		v.Set("continuation", last)
	}
	if before := w[:len(w)-1]; len(before) > 0 {
		v["way"] = before
	}
	return v.Encode(), true
}
