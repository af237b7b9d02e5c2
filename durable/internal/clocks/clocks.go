// Package clocks reads the two clocks of a machine, and compares times by both.
//
// The monotonic clock may stand still while the machine sleeps. The wall clock jumps when it is set.
// Only the storage service knows when a lease ends. A process therefore counts its lease by both
// clocks, and stops using it when the first of them reaches the end.
package clocks

import (
	"sync"
	"time"
)

// A Moment is a time by both clocks. Moments of one process can be compared.
type Moment struct {
	Mono time.Duration // since a fixed time in the process
	Wall time.Time     // without a monotonic reading
}

// Add returns the moment d later.
func (m Moment) Add(d time.Duration) Moment {
	return Moment{Mono: m.Mono + d, Wall: m.Wall.Add(d)}
}

// Left returns the time from now to m, by the clock with the shorter time. It is 0 or negative if m
// has passed by at least one clock.
func (m Moment) Left(now Moment) time.Duration {
	return min(m.Mono-now.Mono, m.Wall.Sub(now.Wall))
}

// HasPassed reports whether m has passed by at least one clock.
func (m Moment) HasPassed(now Moment) bool { return m.Left(now) <= 0 }

// A Clock reads the clocks of a machine. A nil Clock reads the clocks of this machine. Others are for
// simulated machines, which sleep and set their wall clocks.
type Clock struct {
	mu    sync.Mutex
	slept time.Duration // total time during which the monotonic clock stood still
	ahead time.Duration // difference between the wall clock and the real time
}

// epoch is the zero of monotonic readings.
var epoch = time.Now()

// Now returns the current moment.
func (c *Clock) Now() Moment { return c.At(time.Now()) }

// At returns the moment of t, which is a result of [time.Now], perhaps with a duration added.
func (c *Clock) At(t time.Time) Moment {
	m := Moment{Mono: t.Sub(epoch), Wall: t.Round(0)}
	if c == nil {
		return m
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return Moment{Mono: m.Mono - c.slept, Wall: m.Wall.Add(c.ahead)}
}

// Sleep simulates that the machine sleeps for d: its monotonic clock loses d.
func (c *Clock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slept += d
}

// Step simulates that the wall clock is set forward by d, or back if d is negative.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// Of returns the clock of the machine that sends its requests through transport. The transport of a
// simulated machine has a method Clock; for any other the result is nil.
func Of(transport any) *Clock {
	if machine, ok := transport.(interface{ Clock() *Clock }); ok {
		return machine.Clock()
	}
	return nil
}
