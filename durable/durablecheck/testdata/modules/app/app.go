package main

import (
	"app/helpers"

	"example.com/lib"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var own = lib.NewClient()

var pool lib.Pool

func main() { pool.Get("a") }

func orchestrator(ctx *durable.Context, name string) (string, error) {
	lib.Upper(name)
	lib.Load(name)        // want `^os.ReadFile, reached via lib.Load, does I/O that the history does not record and each replay repeats; do it in an activity$`
	_ = lib.Client.Name() // want `os.Getenv, reached via lib.Client → lib.newClient, depends on the machine`
	lib.Step(ctx, 1)      // want `time.Now, reached via lib.Step, reads`
	helpers.Step(ctx, 1)  // reported where it is
	helpers.Cached(name)  // want `sync.Mutex.Lock, reached via helpers.Cached, synchronizes` `package variable cache, reached via helpers.Cached, reads`
	pool.Get(name)
	return own.Name(), nil
}
