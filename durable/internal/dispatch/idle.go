package dispatch

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// maxIdleSize limits the size of the histories of idle sessions together, in bytes. A
// single history may be larger.
const maxIdleSize = 64 << 20

// newlyIdle is how long a session must have waited before it gives way to others that
// came later.
const newlyIdle = time.Second

// idle holds the extended sessions that wait for messages, and ends some where their
// place or memory is needed. DurableTask ends none early; so that others can run, it
// extends the sessions of at most half of its concurrent orchestrators
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, concurrentSessionLock).
type idle struct {
	limit int // of sessions, at least 1
	now   func() time.Time

	mu      sync.Mutex // protects the following
	waiting list.List  // of *idleSession, the one that has waited longest in front
	size    int        // of all their histories, in bytes
	wanted  bool       // a place is needed and none was idle: the next session to enter gives way
}

type idleSession struct {
	size  int
	since time.Time
	end   context.CancelFunc
	over  bool // it is not in waiting any more
}

// enter adds a session whose history has size bytes. The context that it returns ends
// with ctx, and when the session has to give way. The session must call leave when it
// stops waiting. If it goes on although it had to give way, since messages came at the
// same time, another one gives way.
func (i *idle) enter(ctx context.Context, size int) (_ context.Context, leave func(goesOn bool)) {
	ctx, end := context.WithCancel(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	s := &idleSession{size: size, since: i.now(), end: end}
	at := i.waiting.PushBack(s)
	i.size += size
	if i.wanted {
		i.wanted = false
		i.remove(at)
	}
	for i.waiting.Len() > i.limit || i.size > maxIdleSize && i.waiting.Len() > 1 {
		i.removeOne()
	}
	return ctx, func(goesOn bool) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if !s.over {
			i.remove(at)
		} else if goesOn {
			i.makeRoom()
		}
	}
}

// giveWay has one session give way: the next to enter if there is none now.
func (i *idle) giveWay() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.makeRoom()
}

// makeRoom does what giveWay does. mu is locked.
func (i *idle) makeRoom() {
	if i.wanted = i.waiting.Len() == 0; !i.wanted {
		i.removeOne()
	}
}

// satisfied takes back what giveWay asks of the next session to enter.
func (i *idle) satisfied() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wanted = false
}

// removeOne has the session give way that has waited longest, or the last one if none
// has waited for newlyIdle. Otherwise, if more sessions than fit go on in turn, each
// would give way just before it goes on. mu is locked.
func (i *idle) removeOne() {
	at := i.waiting.Front()
	if i.now().Sub(at.Value.(*idleSession).since) < newlyIdle {
		at = i.waiting.Back()
	}
	i.remove(at)
}

// remove has a session give way. mu is locked.
func (i *idle) remove(at *list.Element) {
	s := i.waiting.Remove(at).(*idleSession)
	i.size -= s.size
	s.over = true
	s.end()
}

func (i *idle) len() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.waiting.Len()
}
