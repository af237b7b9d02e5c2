package app

import (
	"slices"

	"facts/lib"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var tally lib.Tally

func count() { tally.Add(1) }

func counted(ctx *durable.Context, in int) (int, error) {
	return tally.Sum(), nil // want `package variable tally reads`
}

func orchestrator(ctx *durable.Context, m map[string]int) (int, error) {
	lib.Stamp()          // want `^time.Now, reached via lib.Stamp → lib.stamp, reads the machine's clock, which differs on replay; use ctx.Now\(\)$`
	lib.Now()            // want `time.Now, reached via lib.Now, reads`
	n := lib.Level       // want `package variable lib.Level reads`
	lib.Level = 3        // want `changing package variable lib.Level`
	lib.SetLevel(1)      // want `changing package variable Level, reached via lib.SetLevel, changes`
	new(lib.Dice).Roll() // want `rand.Intn, reached via lib.Dice.Roll, gives`
	lib.Guarded()        // want `sync.Mutex.Lock, reached via lib.Guarded, synchronizes`
	ks := lib.Keys(m)    // want `what lib.Keys returns is in the order of a map`
	sorted := lib.Keys(m)
	slices.Sort(sorted)
	lib.Allowed()
	n += lib.Pure(lib.Limit) + len(ks[0])
	durable.CallActivity(ctx, lib.Activity, 1)
	for k := range m { // want `ranging over m makes durable calls \(durable.CallActivity via lib.Step\)`
		lib.Step(ctx, m[k])
	}
	defer lib.Step(ctx, 1) // want `durable.CallActivity, reached via lib.Step, runs in a defer`
	defer lib.Wrapped(nil)()
	return lib.Step(ctx, n)
}
