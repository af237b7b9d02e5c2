package azuritetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"
)

// delayVariable names the environment variable that makes Azurite slow; see [Start].
const delayVariable = "DURABLE_TEST_DELAY"

// delayed returns a connection string that leads through a proxy, which ends with the
// process, if the environment asks for delays, else the one that it is given.
func delayed(connection string) (string, error) {
	text := os.Getenv(delayVariable)
	if text == "" {
		return connection, nil
	}
	most, err := time.ParseDuration(text)
	if err != nil || most <= 0 {
		return "", fmt.Errorf("%s=%q is not a duration above 0, such as 250ms", delayVariable, text)
	}
	p := NewProxy()
	p.Follow(func(Call) Fate { return Fate{Late: somewhat(most), Hold: somewhat(most)} })
	return p.Storage(connection)
}

// somewhat is no time at all three times out of four, else up to most.
func somewhat(most time.Duration) time.Duration {
	if rand.IntN(4) > 0 {
		return 0
	}
	return rand.N(most)
}
