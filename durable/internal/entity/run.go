package entity

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// A run orders the requests of one execution of a sender.
//
// Each attempt at an episode sends requests whose labels form a chain. Each request follows the
// previous one; the first follows the last request of a committed episode. Attempts at the same
// episode have different labels, and may send different requests. A request of a later episode
// shows which attempt was committed: it follows the last request of that attempt. Until then:
//
//  1. A request takes effect when all earlier requests of its chain have arrived. The requests of a
//     branch of an orchestrator are in order in each chain, so they take effect in order.
//  2. If a request has taken effect as part of one chain, the run keeps only a link for its position
//     in the others.
type run struct {
	last      time.Time // the newest label that arrived; may be zero
	execution string
	buffered  []*Request // waiting requests, ordered by label
	links     []link     // waiting links
	recent    marks      // of the last requests that took effect
	came      chain      // labels after old that arrived with all their predecessors

	// old is the last label of the last episode that is known to be committed. All committed
	// requests up to it have arrived. Other requests with such labels are duplicates, or belong
	// to attempts that were not committed.
	old time.Time
	// Requests do not wait for labels up to free. Loose is set if a request took effect without
	// its predecessor: labels then do not show which episodes were committed.
	free  time.Time
	loose bool
}

// A link is the position in a chain of a request that has taken effect.
type link struct{ label, after time.Time }

// has reports whether a label arrived with all its predecessors.
func (e *run) has(label time.Time) bool { return !label.After(e.old) || e.came.has(label) }

// waits reports whether a request that follows the given label must wait.
func (e *run) waits(after, horizon time.Time) bool {
	return !e.has(after) && after.After(e.free) && !after.Before(horizon)
}

// hold buffers r until it may take effect. Of a duplicate it keeps only the link.
func (e *run) hold(r *Request, known bool) {
	if known {
		e.addLink(link{r.Timestamp, r.Predecessor})
		e.last = later(e.last, r.Timestamp)
		return
	}
	i, found := slices.BinarySearchFunc(e.buffered, r, compareRequests)
	if found {
		e.buffered[i] = r
		return
	}
	e.buffered = slices.Insert(e.buffered, i, r)
}

func (e *run) addLink(l link) {
	same := func(k link) bool { return k.label.Equal(l.label) && k.after.Equal(l.after) }
	if !slices.ContainsFunc(e.links, same) {
		e.links = append(e.links, l)
	}
}

// compareRequests orders requests by label. Attempts with clocks that are behind may use the
// same label.
func compareRequests(a, b *Request) int {
	return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.key(), b.key()))
}

// unbuffer replaces buffered requests with the given key by links.
func (e *run) unbuffer(key string) {
	e.buffered = slices.DeleteFunc(e.buffered, func(b *Request) bool {
		if b.key() == key {
			e.addLink(link{b.Timestamp, b.Predecessor})
		}
		return b.key() == key
	})
}

func (e *run) nextLink(horizon time.Time) (link, bool) {
	i := slices.IndexFunc(e.links, func(l link) bool { return !e.waits(l.after, horizon) })
	if i < 0 {
		return link{}, false
	}
	l := e.links[i]
	e.links = slices.Delete(e.links, i, i+1)
	return l, true
}

func (e *run) nextBuffered(horizon time.Time) (*Request, bool) {
	i := slices.IndexFunc(e.buffered, func(r *Request) bool { return !e.waits(r.Predecessor, horizon) })
	if i < 0 {
		return nil, false
	}
	r := e.buffered[i]
	e.buffered = slices.Delete(e.buffered, i, i+1)
	return r, true
}

// recordLabel records a label whose predecessors have all arrived. If more than a tick lies
// between the label and its predecessor, the predecessor is the end of an earlier, committed
// episode. Only requests after it can be sent again with other labels.
func (e *run) recordLabel(label, after, horizon time.Time) {
	newEpisode := e.came.has(after) && label.Sub(after) > tick
	if !e.has(after) && !after.Before(horizon) {
		e.loose = true
	}
	switch {
	case newEpisode && e.loose:
		e.recent = e.recent.last(keepOther)
	case newEpisode:
		e.markCommitted(after)
	}
	if !e.has(label) {
		e.free = later(e.free, e.came.add(label))
	}
}

// markCommitted records that the episode with the given last label was committed. It discards
// buffered requests with earlier labels: they belong to attempts that were not committed, or
// are sent again.
func (e *run) markCommitted(label time.Time) {
	e.old = label
	if !e.last.After(label) {
		e.recent = e.recent.last(keepCommitted - 1)
	}
	e.forgetChains(label)
}

// forgetChains drops labels and requests up to a label.
func (e *run) forgetChains(label time.Time) {
	e.came = slices.DeleteFunc(e.came, func(s span) bool { return !s.last.After(label) })
	e.links = slices.DeleteFunc(e.links, func(l link) bool { return !l.label.After(label) })
	e.buffered = slices.DeleteFunc(e.buffered, func(r *Request) bool { return !r.Timestamp.After(label) })
}

// forgetBefore drops everything older than the horizon. No request waits for that.
func (e *run) forgetBefore(horizon time.Time) {
	for _, label := range []*time.Time{&e.last, &e.old, &e.free} {
		if label.Before(horizon) {
			*label = time.Time{}
		}
	}
	e.forgetChains(horizon.Add(-tick))
}

// isOver reports whether the whole run is older than the horizon.
func (e *run) isOver() bool { return e.last.IsZero() && len(e.buffered) == 0 }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A chain is a set of labels. The labels of one episode usually form one span.
type chain []span

// A span is a range of labels that are a tick apart.
type span struct{ first, last time.Time }

// maxSpans is the maximum number of spans of an execution.
const maxSpans = 16

func (c chain) has(label time.Time) bool {
	return slices.ContainsFunc(c, func(s span) bool { return !label.Before(s.first) && !label.After(s.last) })
}

// add adds a label. If there are too many spans then, it removes the oldest and returns its
// last label.
func (c *chain) add(label time.Time) (forgotten time.Time) {
	for i := range *c {
		if s := &(*c)[i]; s.last.Add(tick).Equal(label) {
			s.last = label
			return time.Time{}
		}
	}
	*c = append(*c, span{label, label})
	if len(*c) <= maxSpans {
		return time.Time{}
	}
	oldest := slices.MinFunc(*c, func(a, b span) int { return a.last.Compare(b.last) })
	*c = slices.DeleteFunc(*c, func(s span) bool { return s == oldest })
	return oldest.last
}

// hasExtensions reports whether the run has members that DurableTask does not have.
func (e *run) hasExtensions() bool {
	return len(e.recent) > 0 || len(e.came) > 0 || len(e.links) > 0 || e.loose || e.free.After(e.old)
}

// write writes DurableTask's members, then the extensions. It omits old if it is the only
// extension.
func (e *run) write(w *writer) {
	w.time("Last", e.last)
	w.filled("ExecutionId", e.execution)
	if len(e.buffered) > 0 {
		w.key("Buffered")
		w.open()
		var last time.Time
		for _, r := range e.buffered { // the key is the label, made unique by adding ticks
			if last = later(r.Timestamp, last.Add(tick)); !last.Equal(r.Timestamp) {
				w.key(stampText(last.UTC()))
			} else {
				w.key(stampText(r.Timestamp))
			}
			r.write(w)
		}
		w.close()
	}
	w.marks("seen", e.recent)
	if !e.old.IsZero() && e.hasExtensions() {
		w.time("old", e.old)
	}
	if e.free.After(e.old) {
		w.time("free", e.free)
	}
	if e.loose {
		w.bool("loose", true)
	}
	e.writeChain(w)
}

// writeChain writes labels as the number of ticks before Last: for each span the last label and
// the length, for each link both labels.
func (e *run) writeChain(w *writer) {
	base := ticksOf(e.last)
	if len(e.came) > 0 {
		w.list("came", 2*len(e.came), func(i int) {
			s := e.came[i/2]
			n := base - ticksOf(s.last)
			if i%2 > 0 {
				n = ticksOf(s.last) - ticksOf(s.first)
			}
			w.buf = strconv.AppendInt(w.buf, n, 10)
		})
	}
	if len(e.links) > 0 {
		w.list("links", 2*len(e.links), func(i int) {
			l := e.links[i/2]
			w.buf = strconv.AppendInt(w.buf, base-ticksOf([]time.Time{l.label, l.after}[i%2]), 10)
		})
	}
}

// ends returns the labels that the next request of the run may follow.
func (e *run) ends() []time.Time {
	all := []time.Time{e.last}
	add := func(label time.Time) {
		if !label.IsZero() && !slices.ContainsFunc(all, label.Equal) {
			all = append(all, label)
		}
	}
	add(e.old)
	add(e.free)
	for _, s := range e.came {
		add(s.last)
	}
	return all
}
