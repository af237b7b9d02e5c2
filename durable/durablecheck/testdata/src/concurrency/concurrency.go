package concurrency

import (
	"sync"
	"sync/atomic"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func goroutines(ctx *durable.Context, in int) (int, error) {
	var wg sync.WaitGroup
	wg.Add(1)   // want `sync.WaitGroup.Add waits for goroutines, .* use durable.Go and durable.AwaitAll`
	go func() { // want `^a go statement runs code whose timing the history does not record; use durable.Go$`
		defer wg.Done()
		ctx.Now()
	}()
	wg.Wait() // want `sync.WaitGroup.Wait waits`
	return in, nil
}

func channels(ctx *durable.Context, in chan int) (int, error) {
	c := make(chan int, 1) // want `^making a channel waits for other goroutines`
	c <- 1                 // want `^a send to channel c waits`
	for range in {         // want `^ranging over channel in waits`
		break
	}
	close(c)        // want `^closing channel c waits`
	return <-c, nil // want `^a receive from channel c waits .* use tasks, durable.Go or an event`
}

func selects(ctx *durable.Context, a, b chan int) (int, error) {
	select { // want `^select chooses by timing, which the history does not record; use durable.AwaitAny$`
	case v := <-a:
		return v, nil
	case b <- 1:
	case <-b:
		return <-a, nil // want `a receive from channel a`
	default:
	}
	return 0, nil
}

func genericChannel[C ~chan int](ctx *durable.Context, c C) (int, error) {
	return <-c, nil // want `a receive from channel c`
}

type guarded struct {
	sync.Mutex
	n int
}

func locks(ctx *durable.Context, g *guarded) (int, error) {
	g.Lock() // want `sync.Mutex.Lock synchronizes goroutines, .* use plain variables`
	defer g.Unlock()
	var once sync.Once
	once.Do(func() { g.n++ }) // want `sync.Once.Do keeps state of an earlier run`
	var m sync.Map
	m.Store(1, 2) // want `sync.Map.Store synchronizes`
	var n atomic.Int64
	n.Add(1) // want `atomic.Int64.Add shares state`
	var k int64
	atomic.AddInt64(&k, 1) // want `atomic.AddInt64 shares state`
	var l sync.Locker = g
	l.Lock() // want `sync.Locker.Lock synchronizes`
	return g.n, nil
}

func right(ctx *durable.Context, in []int) (int, error) {
	total := 0
	a := durable.Go(ctx, func() (int, error) { total++; ctx.Sleep(1); return total, nil })
	b := durable.Go(ctx, func() (int, error) { return total, nil })
	both := make([]int, 0, 2)
	vs, err := durable.AwaitAll(ctx, a, b)
	both = append(both, vs...)
	if durable.AwaitAny(ctx, a, b) == durable.Awaitable(a) {
		return both[0], err
	}
	return -both[0], err
}
