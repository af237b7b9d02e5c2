package dispatch

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// maxIdleSize limits the total size, in bytes, of the histories of idle sessions. A single
// session may be larger.
const maxIdleSize = 64 << 20

// newlyIdle is the time that a session must wait before it is ended in favor of a newer one; see
// removeOne.
const newlyIdle = time.Second

// idle holds the extended sessions that are waiting for messages. It ends some of them if their slot or
// memory is needed. DurableTask does not end sessions early. To leave slots for other instances, it extends
// the sessions of at most half of its concurrent orchestrators
// (DurableTask.Core/TaskOrchestrationDispatcher.cs, concurrentSessionLock).
type idle struct {
	limit int // maximum number of sessions; at least 1
	now   func() time.Time

	mu      sync.Mutex // protects the following
	waiting list.List  // of *idleSession; the longest wait is in front
	size    int        // total size of their histories, in bytes
	wanted  int        // number of sessions to end when they enter, because their slots are needed
}

type idleSession struct {
	size  int
	since time.Time
	end   context.CancelFunc
	over  bool // no longer in waiting
}

// enter adds a session whose history has size bytes. The returned context ends with ctx, or when the session
// must end. The session must call leave when it stops waiting. If messages arrive at the same time, the
// session may continue, and another session ends instead.
func (i *idle) enter(ctx context.Context, size int) (_ context.Context, leave func(continues bool)) {
	ctx, end := context.WithCancel(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	s := &idleSession{size: size, since: i.now(), end: end}
	at := i.waiting.PushBack(s)
	i.size += size
	if i.wanted > 0 {
		i.wanted--
		i.remove(at)
	}
	for i.waiting.Len() > i.limit || i.size > maxIdleSize && i.waiting.Len() > 1 {
		i.removeOne()
	}
	return ctx, func(continues bool) {
		i.mu.Lock()
		defer i.mu.Unlock()
		if !s.over {
			i.remove(at)
		} else if continues {
			i.makeRoom()
		}
	}
}

// endOne ends one session. If no session is idle, it ends the next one to enter.
func (i *idle) endOne() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.makeRoom()
}

// makeRoom is endOne for a caller that holds mu.
func (i *idle) makeRoom() {
	if i.waiting.Len() == 0 {
		i.wanted++
	} else {
		i.removeOne()
	}
}

// withdraw withdraws the requests of endOne to end the next sessions to enter.
func (i *idle) withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.wanted = 0
}

// removeOne ends the session that has waited longest, or the newest if none has waited for newlyIdle. Without
// this exception, each of too many sessions that are used in turn would end just before it is needed. mu is
// locked.
func (i *idle) removeOne() {
	at := i.waiting.Front()
	if i.now().Sub(at.Value.(*idleSession).since) < newlyIdle {
		at = i.waiting.Back()
	}
	i.remove(at)
}

// remove ends a session. mu is locked.
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
