package azuritetest

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// Weather returns a random plan. On average one request in every has a fault or a delay of up to
// longest; all faults are equally likely. With the same seed, the n-th request for an operation of
// a service always has the same fate.
func Weather(seed uint64, every int, longest time.Duration) Plan {
	var mu sync.Mutex
	asked := map[string]uint64{}
	return func(call Call) Fate {
		operation := call.Service + " " + call.Name
		mu.Lock()
		asked[operation]++
		n := asked[operation]
		mu.Unlock()
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(operation)) // never fails
		random := rand.New(rand.NewPCG(seed, hash.Sum64()+n))
		if random.IntN(every) > 0 {
			return Fate{}
		}
		wait := time.Duration(random.Int64N(int64(longest)))
		return [...]Fate{
			{Fault: Drop},
			{Fault: DropAnswer},
			{Fault: Cut},
			{Fault: Twice},
			{Late: wait},
			{Hold: wait},
			{Late: wait, Fault: Drop},
		}[random.IntN(7)]
	}
}
