package console

import "net/url"

// A trail holds the continuations of the previous pages of the list, oldest first. The continuation of
// the first page is "". Continuations lead only forward, so the URL carries the way back. It is limited
// to maxTrailSize bytes; the oldest continuations are dropped.
type trail []string

// maxTrailSize is the largest size of a trail in a URL, in bytes. Some hosts limit the query to 2,048 bytes.
const maxTrailSize = 1200

// extend returns the trail of the next page. continuation belongs to the current page.
func (w trail) extend(continuation string) trail {
	next := append(w[:len(w):len(w)], continuation)
	size := 0
	for i := len(next) - 1; i >= 0; i-- {
		if size += len("&way=") + len(url.QueryEscape(next[i])); size > maxTrailSize {
			return next[i+1:]
		}
	}
	return next
}

// back returns the query of the previous page. It returns false if the previous page is not known.
func (w trail) back(f listFilter) (query string, ok bool) {
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
