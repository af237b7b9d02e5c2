package replay

import (
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/coro"
)

// A Collector returns futures in the order in which they complete.
type Collector struct {
	x       *Execution
	futures []*Future
	done    []int // indexes of completed futures that Next has not returned, oldest first
	yielded int
	routine *coro.Routine
	ticket  coro.Ticket
}

// A collection is a future's entry in a Collector.
type collection struct {
	to    *Collector
	index int
}

// Add appends f to the futures.
func (c *Collector) Add(f *Future) {
	c.x.checkOwn("AsCompleted", []*Future{f})
	c.futures = append(c.futures, f)
	c.watch(len(c.futures)-1, f)
}

// watch collects f, the future with index i, when it completes.
func (c *Collector) watch(i int, f *Future) {
	if c.x.events.listen(f); f.IsComplete() {
		c.done = append(c.done, i)
	} else {
		f.collectors = append(f.collectors, collection{c, i})
	}
}

// Next waits for the next future to complete and returns its index. It returns ok == false if
// it has returned all futures.
func (c *Collector) Next() (index int, ok bool) {
	if c.yielded == len(c.futures) {
		return 0, false
	}
	if len(c.done) == 0 {
		c.x.check("AsCompleted")
		c.routine = c.x.group.Running()
		c.ticket = c.routine.Ticket()
		c.x.group.Park()
	}
	index = c.done[0]
	c.done = c.done[1:]
	c.yielded++
	c.x.events.markRead(c.futures[index])
	return index, true
}

// Stop ends the collection. Futures that Next has not returned count as losers of a race; see
// [Execution.AwaitAny].
func (c *Collector) Stop() {
	if c.x.IsUnwinding() || c.yielded == len(c.futures) {
		return
	}
	for _, f := range c.futures {
		f.collectors = slices.DeleteFunc(f.collectors, func(o collection) bool { return o.to == c })
	}
	c.x.events.withdraw(c.futures)
}

func (c *Collector) add(index int) {
	c.done = append(c.done, index)
	if c.routine != nil {
		c.x.group.Wake(c.routine, c.ticket)
		c.routine = nil
	}
}
