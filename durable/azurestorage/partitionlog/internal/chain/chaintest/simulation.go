package chaintest

import (
	"flag"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// Seeds are the random seeds of a simulation test, taken from its flags.
type Seeds struct{ first, count *uint64 }

// NewSeeds defines the flags what.seed and what.seeds.
func NewSeeds(what string) Seeds {
	return Seeds{
		flag.Uint64(what+".seed", 1, "first seed of the simulation "+what),
		flag.Uint64(what+".seeds", 6, "number of seeds to simulate"),
	}
}

// Each runs test as a subtest for each seed, in its own synctest bubble. stop returns true once the
// time lasts is over or the test has failed; inject faults only until then.
func (s Seeds) Each(t *testing.T, lasts time.Duration, test func(t *testing.T, seed uint64, stop func() bool)) {
	for seed := *s.first; seed < *s.first+*s.count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				end := time.Now().Add(lasts)
				test(t, seed, func() bool { return time.Now().After(end) || t.Failed() })
			})
		})
	}
}

// Workers without injected faults.
const (
	Setup = "setup" // creates the container
	Last  = "last"  // verifies the final state
)

// NewAccount returns a simulated account that contains the hub's container.
func NewAccount(t *testing.T, cfg azsim.Config) *azsim.Account {
	t.Helper()
	account := azsim.New(cfg)
	if err := Simulated(t, account, account.Worker(Setup)).Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return account
}

// FaultyConfig is the configuration of an account with [RandomFaults]. For every third seed,
// mailboxes are downloaded at 40 bytes per second until stop returns true. For another third, each
// twentieth append is transferred at 10 bytes per second.
func FaultyConfig(seed, oneOf uint64, stop func() bool) azsim.Config {
	faults := RandomFaults(oneOf, stop)
	return azsim.Config{
		Seed: seed, MinLatency: 5 * time.Millisecond, MaxLatency: 60 * time.Millisecond, Loose: true,
		Decide: func(r azsim.Request) azsim.Fault {
			if r.Worker == Setup || r.Worker == Last {
				return azsim.None
			}
			return faults(r)
		},
		Bandwidth: func(r azsim.Request) int {
			if seed%3 == 0 && !stop() && r.Operation == "GetBlob" && strings.Contains(r.Path, "/mail-") {
				return 40
			}
			if seed%3 == 1 && !stop() && r.Operation == "AppendBlock" && r.Roll/11%20 == 0 {
				return 10
			}
			return 0
		},
	}
}

// LogEnd logs the last lines of the account's trace if the test has failed.
func LogEnd(t *testing.T, account *azsim.Account, lines int) {
	t.Helper()
	if t.Failed() {
		tail := strings.Split(account.Trace(), "\n")
		t.Log(strings.Join(tail[max(0, len(tail)-lines):], "\n"))
	}
}
