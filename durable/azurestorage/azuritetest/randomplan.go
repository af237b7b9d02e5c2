package azuritetest

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"
)

// RandomPlan returns a random plan. On average one request in every has a fault or a delay of up
// to longest; all faults are equally likely. With the same seed, the n-th request for an operation
// of a service always has the same fate.
func RandomPlan(seed uint64, every int, longest time.Duration) Plan {
	var mu sync.Mutex
	asked := map[string]uint64{}
	return func(call Call) Handling {
		operation := call.Service + " " + call.Name
		mu.Lock()
		asked[operation]++
		n := asked[operation]
		mu.Unlock()
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(operation)) // never fails
		random := rand.New(rand.NewPCG(seed, hash.Sum64()+n))
		if random.IntN(every) > 0 {
			return Handling{}
		}
		wait := time.Duration(random.Int64N(int64(longest)))
		return [...]Handling{
			{Fault: Drop},
			{Fault: DropResponse},
			{Fault: Cut},
			{Fault: Twice},
			{DeliveryDelay: wait},
			{ResponseDelay: wait},
			{DeliveryDelay: wait, Fault: Drop},
		}[random.IntN(7)]
	}
}
