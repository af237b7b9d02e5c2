package azuritetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// delayVariable is the environment variable that enables delays; see [Start].
const delayVariable = "DURABLE_TEST_DELAY"

// delayed returns connection, or if the environment enables delays, the connection string of a
// proxy that ends with the process.
func delayed(connection string) (string, error) {
	text := os.Getenv(delayVariable)
	if text == "" {
		return connection, nil
	}
	limit, err := time.ParseDuration(text)
	if err != nil || limit <= 0 {
		return "", fmt.Errorf("%s=%q is not a duration above 0, such as 250ms", delayVariable, text)
	}
	p := NewProxy()
	p.SetPlan(func(Call) Handling {
		return Handling{DeliveryDelay: randomDelay(limit), ResponseDelay: randomDelay(limit)}
	})
	return p.Storage(connection)
}

// randomDelay returns 0 with probability 3/4, or else a random duration up to limit.
func randomDelay(limit time.Duration) time.Duration {
	if rand.IntN(4) > 0 {
		return 0
	}
	return rand.N(limit)
}
