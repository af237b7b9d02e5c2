// Package reclaim makes Go collect garbage early while large payloads are processed, and then
// returns the memory to the operating system. By default, Go collects when the garbage is as
// large as the live heap, and keeps the freed memory for some time.
package reclaim

import (
	"runtime/debug"
	"sync"
	"time"
)

const (
	// Large is the minimum size of a large payload, in bytes.
	Large = 1 << 20

	// earlyPercent is the GOGC value during such work: the size of the garbage, in percent of
	// the live heap, that triggers a collection.
	earlyPercent = 25
	// freeAfter is the time from the last work until the memory is returned.
	freeAfter = 5 * time.Second
)

// Pacer tracks work on large payloads. The zero value is ready to use. It is safe for
// concurrent use.
type Pacer struct {
	mu       sync.Mutex // protects the fields below
	early    bool       // early collection is on, and a call of free is scheduled
	moreWork bool       // work was done since free was scheduled; schedule it once more
}

// Step records work on a payload of n bytes. Call it before and after the work. It ignores
// small payloads.
func (p *Pacer) Step(n int) {
	if n < Large {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moreWork = p.early
	if !p.early {
		p.early = true
		percent.lower()
		time.AfterFunc(freeAfter, p.free)
	}
}

// free returns unused memory to the system. Without new work since it was scheduled, it ends
// early collection.
func (p *Pacer) free() {
	debug.FreeOSMemory()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.early = p.moreWork; p.moreWork {
		p.moreWork = false
		time.AfterFunc(freeAfter, p.free)
		return
	}
	percent.restore()
}

// percent is the GOGC value of the process. It is lowered while any pacer needs it.
var percent lowered

// lowered is a GOGC value that can be lowered and restored.
type lowered struct {
	mu    sync.Mutex // protects the fields below
	users int
	usual int
}

// lower makes Go collect early. If the user has set a lower value or turned collection off,
// that stays.
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

// restore reverts one call of lower. A value that the user set in the meantime stays.
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
