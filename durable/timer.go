package durable

import (
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// Timer returns a task that is complete when d has passed since [Context.Now].
// Its value is the time at which it was due. If d is not above zero it is due
// at once; even then it takes an episode of its own.
//
// Timers of more than 6 days are made of several in a row, of 3 days each.
func (c *Context) Timer(d time.Duration) *Task[time.Time] {
	due := history.Ticks(c.x.Now().Add(d))
	t := &Task[time.Time]{resolved: true, value: due}
	c.x.CreateTimer(&t.f, due)
	return t
}

// Sleep waits for d, as [Context.Timer] does.
func (c *Context) Sleep(d time.Duration) {
	_, _ = c.Timer(d).Await() // a timer cannot fail
}
