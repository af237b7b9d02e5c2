package entity

import (
	"cmp"
	"slices"
	"time"
)

// limits are how much a Sorter knows.
type limits struct {
	// senders is how many quiet senders it knows in full, of which it lets twice as many
	// come before it puts the older half into its past.
	senders int
	// marks is the most marks of a past. 8,192 are 64 KiB in a state: those of some 4,000
	// senders of one request each.
	marks int
}

// limitsOn returns what is needed on a hub. What an exact one delivers needs none, but it may
// be copied to another one, which is not: there, what is on its way must wait for what was
// sent before it. That is later than what a sender sent that has been quiet for long.
func limitsOn(exact bool) limits {
	if exact {
		return limits{senders: 16}
	}
	return limits{senders: 64, marks: 8192}
}

const (
	// pastMarks is how many marks are forgotten together, and mostOfSender how many a sender
	// may have.
	pastMarks    = 256
	mostOfSender = 64
)

// A past is what a Sorter knows of senders that have been quiet for longer than others: the
// marks of the IDs of requests that may be sent again, and of the labels that the next request
// may follow. A request that comes recalls them: see [past.recall].
type past struct {
	marked []moment // in order
	// forgotten is the last label of those that had to go since there were too many. What
	// follows one up to that, of a sender that is not known, waits for nothing.
	forgotten time.Time
}

// A moment has the marks of senders whose last labels are up to at, and after those before.
type moment struct {
	at    time.Time
	marks marks
}

// markOf returns the mark of a label of a sender's execution. Loose says that the label does
// not show which episodes count: see [run].
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

// recall tells a run of a request's sender what is known of the two.
func (p *past) recall(of *run, r *Request) {
	if len(p.marked) == 0 && p.forgotten.IsZero() {
		return
	}
	if k := mark(r.key()); p.has(k) && !slices.Contains(of.recent, k) {
		of.recent = append(of.recent, k)
	}
	switch after := r.Predecessor; {
	case of.has(after):
	case p.has(markOf(r.Parent, r.ParentExecution, after, false)):
		of.free = later(of.free, of.came.add(after))
		of.last = later(of.last, after)
	case p.has(markOf(r.Parent, r.ParentExecution, after, true)):
		of.free, of.last, of.loose = later(of.free, after), later(of.last, after), true
	case !after.After(p.forgotten) && len(of.buffered) == 0:
		of.free = later(of.free, after)
	}
}

// add adds what is known of a sender, but for [source].over: what comes late of one of its
// executions that were forgotten may wait for as long as the window.
func (p *past) add(sender string, from *source) {
	var all marks
	var at time.Time
	for _, of := range from.runs() {
		all = append(all, of.recent...)
		for _, label := range of.ends() {
			all = append(all, markOf(sender, of.execution, label, of.loose || of.free.After(of.old)))
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

// limit forgets the oldest if there are more marks than most.
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

// forgetBefore forgets what is older than the horizon.
func (p *past) forgetBefore(horizon time.Time) {
	p.marked = slices.DeleteFunc(p.marked, func(m moment) bool { return m.at.Before(horizon) })
	if p.forgotten.Before(horizon) {
		p.forgotten = time.Time{}
	}
}

// horizon returns up to where DurableTask, which knows nothing of a past, must not wait for
// labels: up to those of the past.
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

// pastOf returns the past that write wrote.
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
