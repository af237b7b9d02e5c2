package main

import (
	"os"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// blocking are orchestrators that never yield, each for another reason. An orchestrator must not do this.
func blocking() []*durable.Registration {
	return []*durable.Registration{
		durable.Orchestrator("BlocksOnDurableCall", BlocksOnDurableCall),
		durable.Orchestrator("BlocksOnSelect", BlocksOnSelect),
		durable.Orchestrator("BlocksOnMutex", BlocksOnMutex),
		durable.Orchestrator("BlocksOnRead", BlocksOnRead),
		durable.Orchestrator("BlocksInLoop", BlocksInLoop),
	}
}

// BlocksOnDurableCall waits for a goroutine that makes a durable call.
func BlocksOnDurableCall(ctx *durable.Context, _ any) (string, error) {
	called := make(chan struct{}) //durablecheck:ignore the tests need an orchestrator that blocks
	go func() {                   //durablecheck:ignore the tests need an orchestrator that blocks
		defer close(called) //durablecheck:ignore the tests need an orchestrator that blocks
		ctx.Sleep(time.Second)
	}()
	<-called //durablecheck:ignore the tests need an orchestrator that blocks
	return "called", nil
}

// BlocksOnSelect waits for nothing.
func BlocksOnSelect(*durable.Context, any) (string, error) {
	select {} //durablecheck:ignore the tests need an orchestrator that blocks
}

// BlocksOnMutex locks a mutex twice.
func BlocksOnMutex(*durable.Context, any) (string, error) {
	var m sync.Mutex
	m.Lock() //durablecheck:ignore the tests need an orchestrator that blocks
	m.Lock() //durablecheck:ignore the tests need an orchestrator that blocks
	return "locked", nil
}

// BlocksOnRead reads from a pipe without a writer.
func BlocksOnRead(*durable.Context, any) (string, error) {
	return "read", blockedRead() //durablecheck:ignore the tests need an orchestrator that blocks
}

func blockedRead() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	_, err = r.Read(make([]byte, 1))
	_ = w.Close() // keeps the pipe open until here
	return err
}

// BlocksInLoop computes without end.
func BlocksInLoop(*durable.Context, any) (int, error) {
	for n := 0; ; n++ {
		if n < 0 {
			n = 0
		}
	}
}
