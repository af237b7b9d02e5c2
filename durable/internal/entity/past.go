package entity

import (
	"cmp"
	"slices"
	"time"
)

// limits bound the size of a Sorter.
type limits struct {
	// senders is the number of quiet senders with a full entry. When there are twice as many,
	// the Sorter moves the older half to its past.
	senders int
	// marks is the maximum number of marks in the past. 8,192 marks take 64 KiB in a state.
	// They suffice for about 4,000 senders of one request each.
	marks int
}

// limitsFor returns the limits on a hub. An exact hub needs no entries. Its content may,
// however, be copied to a hub that is not exact, where requests in flight must wait for their
// predecessors. These are recent, so only the entries of recent senders are needed.
func limitsFor(exact bool) limits {
	if exact {
		return limits{senders: 16}
	}
	return limits{senders: 64, marks: 8192}
}

const (
	// pastMarks is the number of marks after which a new moment starts. The marks of a moment are
	// dropped together.
	// maxSenderMarks is the maximum number of marks of a sender.
	pastMarks      = 256
	maxSenderMarks = 64
)

// A past holds marks of senders that have been quiet for longer than others. It has the marks
// of the IDs of requests that may be sent again, and of the labels that the sender's next
// request may follow. The next request recalls them; see [past.recall].
type past struct {
	marked []moment // in order of time
	// forgotten is the newest label that was dropped because there were too many marks. A
	// request of an unknown sender does not wait if its predecessor has this label or an older
	// one.
	forgotten time.Time
}

// A moment holds the marks of senders whose last label is at most at, and newer than the
// previous moment's.
type moment struct {
	at    time.Time
	marks marks
}

// markOf returns the mark of a label of a sender's execution. Loose is the flag of its [run]:
// labels do not show which episodes were committed.
func markOf(sender, execution string, label time.Time, loose bool) uint64 {
	end := ""
	if loose {
		end = "\x00loose"
	}
	return mark(sender + "\x00" + execution + "\x00" + stampText(label.UTC()) + end)
}

func (p *past) has(k uint64) bool {
	return slices.ContainsFunc(p.marked, func(m moment) bool { return slices.Contains(m.marks, k) })
}

// recall adds what the past holds about r and its predecessor to e, the run of its sender.
func (p *past) recall(e *run, r *Request) {
	if len(p.marked) == 0 && p.forgotten.IsZero() {
		return
	}
	if k := mark(r.key()); p.has(k) && !slices.Contains(e.recent, k) {
		e.recent = append(e.recent, k)
	}
	switch after := r.Predecessor; {
	case e.has(after):
	case p.has(markOf(r.Parent, r.ParentExecution, after, false)):
		e.free = later(e.free, e.came.add(after))
		e.last = later(e.last, after)
	case p.has(markOf(r.Parent, r.ParentExecution, after, true)):
		e.free, e.last, e.loose = later(e.free, after), later(e.last, after), true
	case !after.After(p.forgotten) && len(e.buffered) == 0:
		e.free = later(e.free, after)
	}
}

// add adds the marks of a sender. It drops [source].over. A late request of one of the sender's
// forgotten executions may therefore wait for the whole window.
func (p *past) add(sender string, from *source) {
	var all marks
	var at time.Time
	for _, e := range from.runs() {
		all = append(all, e.recent...)
		for _, label := range e.ends() {
			all = append(all, markOf(sender, e.execution, label, e.loose || e.free.After(e.old)))
			at = later(at, label)
		}
	}
	if n := len(p.marked); n > 0 && (!at.After(p.marked[n-1].at) || len(p.marked[n-1].marks)+len(all) <= pastMarks) {
		last := &p.marked[n-1]
		last.at, last.marks = later(last.at, at), append(last.marks, all...)
	} else {
		p.marked = append(p.marked, moment{at, all})
	}
}

// limit drops the oldest marks while there are more than most.
func (p *past) limit(most int) {
	n := 0
	for _, m := range p.marked {
		n += len(m.marks)
	}
	for ; n > most; p.marked = p.marked[1:] {
		n -= len(p.marked[0].marks)
		p.forgotten = later(p.forgotten, p.marked[0].at)
	}
}

// forgetBefore drops marks older than the horizon.
func (p *past) forgetBefore(horizon time.Time) {
	p.marked = slices.DeleteFunc(p.marked, func(m moment) bool { return m.at.Before(horizon) })
	if p.forgotten.Before(horizon) {
		p.forgotten = time.Time{}
	}
}

// horizon returns the first label after those in the past. DurableTask, which ignores the past,
// must not wait for older labels.
func (p *past) horizon() time.Time {
	last := p.forgotten
	if n := len(p.marked); n > 0 {
		last = later(last, p.marked[n-1].at)
	}
	if last.IsZero() {
		return last
	}
	return last.Add(tick)
}

func (p *past) write(w *writer) {
	if len(p.marked) > 0 {
		w.key("past")
		w.open()
		for _, m := range p.marked {
			w.marks(stampText(m.at.UTC()), m.marks)
		}
		w.close()
	}
	if !p.forgotten.IsZero() {
		w.time("forgotten", p.forgotten)
	}
}

// pastOf decodes a past.
func pastOf(marked ordered[marks], forgotten time.Time) (p past, err error) {
	p.forgotten = forgotten
	for _, text := range marked.keys {
		at, err := parseStamp(text)
		if err != nil {
			return past{}, err
		}
		p.marked = append(p.marked, moment{at, marked.values[text]})
	}
	slices.SortStableFunc(p.marked, func(a, b moment) int { return cmp.Compare(ticksOf(a.at), ticksOf(b.at)) })
	return p, nil
}
