package entity

import (
	"cmp"
	"slices"
	"strconv"
	"time"
)

// A run is what is known of one execution of a sender.
//
// Each attempt at an episode sends requests whose labels are a chain: each follows
// the one before, and the first follows the last of an episode that counts.
// Attempts of one episode have different labels, and may have different requests.
// A request of a later episode shows which attempt counts: it follows the last
// request of that. Until then
//
//  1. a request takes effect when all before it in its chain have come. So the
//     requests of an orchestrator's branch take effect in order, since they are in
//     order in each chain;
//  2. of a request that has taken effect in one chain, the others have only a link.
type run struct {
	last      time.Time // the greatest label that came; zero: none
	execution string
	buffered  []*Request // that wait, ordered by label
	links     []link     // that wait
	recent    marks      // of the requests that were delivered last
	came      chain      // labels that came with all before them, after old

	// old is the last label of the last episode that is known to count. All requests
	// up to it that count have come. Others with such labels do not count, or come
	// again.
	old time.Time
	// free is the last label for which no request waits. Loose says that one did not
	// wait, so that labels do not show which episodes count.
	free  time.Time
	loose bool
}

// A link is the place in a chain of a request that has taken effect.
type link struct{ label, after time.Time }

// has reports whether a label came, with all before it.
func (of *run) has(label time.Time) bool { return !label.After(of.old) || of.came.has(label) }

// waits reports whether what follows a label waits for it.
func (of *run) waits(after, horizon time.Time) bool {
	return !of.has(after) && after.After(of.free) && !after.Before(horizon)
}

// hold keeps r until its turn comes; of a duplicate, only its place.
func (of *run) hold(r *Request, known bool) {
	if known {
		of.holdLink(link{r.Timestamp, r.Predecessor})
		of.last = later(of.last, r.Timestamp)
		return
	}
	i, found := slices.BinarySearchFunc(of.buffered, r, compareRequests)
	if found {
		of.buffered[i] = r
		return
	}
	of.buffered = slices.Insert(of.buffered, i, r)
}

func (of *run) holdLink(l link) {
	same := func(k link) bool { return k.label.Equal(l.label) && k.after.Equal(l.after) }
	if !slices.ContainsFunc(of.links, same) {
		of.links = append(of.links, l)
	}
}

// compareRequests orders requests by their labels, which attempts with clocks that are
// behind may share.
func compareRequests(a, b *Request) int {
	return cmp.Or(a.Timestamp.Compare(b.Timestamp), cmp.Compare(a.key(), b.key()))
}

// unbuffer makes links of the buffered requests with a key.
func (of *run) unbuffer(key string) {
	of.buffered = slices.DeleteFunc(of.buffered, func(b *Request) bool {
		if b.key() == key {
			of.holdLink(link{b.Timestamp, b.Predecessor})
		}
		return b.key() == key
	})
}

func (of *run) nextLink(horizon time.Time) (link, bool) {
	i := slices.IndexFunc(of.links, func(l link) bool { return !of.waits(l.after, horizon) })
	if i < 0 {
		return link{}, false
	}
	l := of.links[i]
	of.links = slices.Delete(of.links, i, i+1)
	return l, true
}

func (of *run) nextBuffered(horizon time.Time) (*Request, bool) {
	i := slices.IndexFunc(of.buffered, func(r *Request) bool { return !of.waits(r.Predecessor, horizon) })
	if i < 0 {
		return nil, false
	}
	r := of.buffered[i]
	of.buffered = slices.Delete(of.buffered, i, i+1)
	return r, true
}

// link records a label whose turn has come. If it follows a label of another clock
// reading, that is of an earlier episode of the sender, which counts: only requests
// after it can be sent again with another label.
func (of *run) link(label, after, horizon time.Time) {
	goesOn := of.came.has(after) && label.Sub(after) > tick
	if !of.has(after) && !after.Before(horizon) {
		of.loose = true
	}
	switch {
	case goesOn && of.loose:
		of.recent = of.recent.last(recentOfOther)
	case goesOn:
		of.settle(after)
	}
	if !of.has(label) {
		of.free = later(of.free, of.came.add(label))
	}
}

// settle records that the episode with the given last label counts. Buffered requests
// with earlier labels are of attempts that do not: those that count come again.
func (of *run) settle(label time.Time) {
	of.old = label
	if !of.last.After(label) {
		of.recent = of.recent.last(recentOfRun - 1)
	}
	of.forgetChains(label)
}

// forgetChains forgets labels and requests up to a label.
func (of *run) forgetChains(label time.Time) {
	of.came = slices.DeleteFunc(of.came, func(s span) bool { return !s.last.After(label) })
	of.links = slices.DeleteFunc(of.links, func(l link) bool { return !l.label.After(label) })
	of.buffered = slices.DeleteFunc(of.buffered, func(r *Request) bool { return !r.Timestamp.After(label) })
}

// forgetBefore forgets what is older than the horizon, where nothing waits.
func (of *run) forgetBefore(horizon time.Time) {
	for _, label := range []*time.Time{&of.last, &of.old, &of.free} {
		if label.Before(horizon) {
			*label = time.Time{}
		}
	}
	of.forgetChains(horizon.Add(-tick))
}

// isOver reports whether all of the run is older than the horizon.
func (of *run) isOver() bool { return of.last.IsZero() && len(of.buffered) == 0 }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// A chain is a set of labels. Those of one episode are mostly one span.
type chain []span

// A span is a range of labels, a tick apart.
type span struct{ first, last time.Time }

// mostSpans is the most spans of an execution.
const mostSpans = 16

func (c chain) has(label time.Time) bool {
	return slices.ContainsFunc(c, func(s span) bool { return !label.Before(s.first) && !label.After(s.last) })
}

// add adds a label. If there are then too many spans, it removes the oldest and
// returns its last label.
func (c *chain) add(label time.Time) (forgotten time.Time) {
	for i := range *c {
		if s := &(*c)[i]; s.last.Add(tick).Equal(label) {
			s.last = label
			return time.Time{}
		}
	}
	*c = append(*c, span{label, label})
	if len(*c) <= mostSpans {
		return time.Time{}
	}
	oldest := slices.MinFunc(*c, func(a, b span) int { return a.last.Compare(b.last) })
	*c = slices.DeleteFunc(*c, func(s span) bool { return s == oldest })
	return oldest.last
}

// hasOurs reports whether a run has members that DurableTask does not have.
func (of *run) hasOurs() bool {
	return len(of.recent) > 0 || len(of.came) > 0 || len(of.links) > 0 || of.loose || of.free.After(of.old)
}

// write writes DurableTask's members and then ours. Without others of ours, old is
// left out.
func (of *run) write(w *writer) {
	w.time("Last", of.last)
	w.filled("ExecutionId", of.execution)
	if len(of.buffered) > 0 {
		w.key("Buffered")
		w.open()
		var last time.Time
		for _, r := range of.buffered { // a key is a label, or later if several have one
			if last = later(r.Timestamp, last.Add(tick)); !last.Equal(r.Timestamp) {
				w.key(stampText(last.UTC()))
			} else {
				w.key(stampText(r.Timestamp))
			}
			r.write(w)
		}
		w.close()
	}
	w.marks("seen", of.recent)
	if !of.old.IsZero() && of.hasOurs() {
		w.time("old", of.old)
	}
	if of.free.After(of.old) {
		w.time("free", of.free)
	}
	if of.loose {
		w.bool("loose", true)
	}
	of.writeChain(w)
}

// writeChain writes labels as ticks before Last: of each span the last label and its
// length, of each link both labels.
func (of *run) writeChain(w *writer) {
	base := ticksOf(of.last)
	if len(of.came) > 0 {
		w.list("came", 2*len(of.came), func(i int) {
			s := of.came[i/2]
			n := base - ticksOf(s.last)
			if i%2 > 0 {
				n = ticksOf(s.last) - ticksOf(s.first)
			}
			w.buf = strconv.AppendInt(w.buf, n, 10)
		})
	}
	if len(of.links) > 0 {
		w.list("links", 2*len(of.links), func(i int) {
			l := of.links[i/2]
			w.buf = strconv.AppendInt(w.buf, base-ticksOf([]time.Time{l.label, l.after}[i%2]), 10)
		})
	}
}

// ends returns the labels that the next request of a run may follow.
func (of *run) ends() []time.Time {
	all := []time.Time{of.last}
	add := func(label time.Time) {
		if !label.IsZero() && !slices.ContainsFunc(all, label.Equal) {
			all = append(all, label)
		}
	}
	add(of.old)
	add(of.free)
	for _, s := range of.came {
		add(s.last)
	}
	return all
}
