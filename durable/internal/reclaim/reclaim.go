// Package reclaim has Go collect garbage early while large payloads are processed, and returns
// the memory to the system afterwards. By itself, Go collects when the garbage is as large as
// the live heap, and keeps the memory for a while.
package reclaim

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	// Large is the size in bytes from which a payload counts.
	Large = 1 << 20

	// earlyPercent is the size of the garbage, in percent of the live heap, at which Go collects
	// it during such work.
	earlyPercent = 25
	// freeAfter is the time from the last work to the return of the memory.
	freeAfter = 5 * time.Second
)

// A Pacer records work on large payloads. The zero value is ready to use.
type Pacer struct {
	mu    sync.Mutex // protects the following
	early bool       // Go collects early, and memory is returned soon
	again bool       // and once more, since more work was done
}

// Step is called before and after work on a payload of n bytes. Small payloads are left to Go.
func (p *Pacer) Step(n int) {
	if n < Large {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.again = p.early
	if !p.early {
		p.early = true
		percent.lower()
		time.AfterFunc(freeAfter, p.free)
	}
}

// free returns unused memory to the system. It ends the early collections if no work was done
// since it was planned.
func (p *Pacer) free() {
	debug.FreeOSMemory()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.early = p.again; p.again {
		p.again = false
		time.AfterFunc(freeAfter, p.free)
		return
	}
	percent.restore()
}

// percent is the setting of the process, which is lower while any pacer needs that.
var percent lowered

// A lowered is a setting of the garbage collector with the value to restore.
type lowered struct {
	mu    sync.Mutex // protects the following
	users int
	usual int
}

// lower has Go collect early. A lower value, or none, of the user stays.
func (l *lowered) lower() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users++; l.users > 1 {
		return
	}
	l.usual = debug.SetGCPercent(earlyPercent)
	if l.usual < earlyPercent {
		debug.SetGCPercent(l.usual)
	}
}

// restore reverts one call of lower. A value that the user has set meanwhile stays.
func (l *lowered) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	if now := debug.SetGCPercent(l.usual); now != earlyPercent {
		debug.SetGCPercent(now)
	}
}
