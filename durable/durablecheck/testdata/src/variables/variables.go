package variables

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

const limit = 5

var (
	ErrRefused = errors.New("refused")
	pattern    = regexp.MustCompile("a+")
	prices     = map[string]int{"a": 1}
	retry      = durable.RetryPolicy{MaxAttempts: 3}
	steps      = []string{"a", "b"}
	replaced   = func(n int) int { return n } // only by a test
	timeout    time.Duration
	rules      map[string]int

	total   int
	cache   = map[string]int{}
	config  struct{ Region string }
	current = &settings{}
	counts  [3]int
	clean   = map[string]int{"a": 1}
	queue   []string
	region  = os.Getenv("REGION")
	zone    = mustEnv("ZONE")
	meter   counter
	pointed = &counter{}
	shared  = registry{}
	dice    = rand.New(rand.NewSource(1))
	buffer  bytes.Buffer
	base    = url.URL{Host: "example.com"}
	fixed   counter
	hook    = func() int { return total }
)

type settings struct{ region string }

type counter struct {
	n     int
	inner struct{ n int }
}

func (c *counter) inc()      { c.inner.n++ }
func (c *counter) incTwice() { c.inc() }
func (c *counter) value() int {
	n := c.n
	n++
	c = nil
	return n
}
func (c counter) copied() int { c.n++; return c.n }

type registry map[string]int

func (r registry) add(s string) { r[s]++ }
func (r registry) size() int    { return len(r) }

func throughMethods() {
	meter.incTwice()
	pointed.inc()
	shared.add("a")
	dice.Intn(6)
	buffer.WriteString("a")
	fixed.value()
	fixed.copied()
}

func readsThem(ctx *durable.Context, in string) (int, error) {
	n := meter.value()   // want `package variable meter reads`
	n += pointed.value() // want `package variable pointed reads`
	n += shared.size()   // want `package variable shared reads`
	n += buffer.Len()    // want `package variable buffer`
	shared.add("b")      // want `changing package variable shared`
	n += dice.Intn(6)    // want `changing package variable dice`
	return n + fixed.value() + fixed.copied() + len(base.JoinPath(in).String()), nil
}

func localState(ctx *durable.Context, in string) (int, error) {
	var c counter
	c.inc()
	r := registry{}
	r.add(in)
	return c.value() + r.size(), nil
}

func init() {
	fixed.inc()
	timeout = time.Minute
	rules = map[string]int{}
	rules["a"] = 1
}

func mustEnv(name string) string { return os.Getenv(name) }

func change(b []byte) {
	total++
	cache["a"] = 1
	json.Unmarshal(b, &config)
	current.region = "eu"
	for _, counts[0] = range []int{1} {
	}
	delete(clean, "a")
	queue = append(queue, "a")
}

func wrong(ctx *durable.Context, in string) (int, error) {
	n := total             // want `^package variable total reads state that the program changes while it runs, so a replay may read another value; pass the value in as input or read it in an activity$`
	n += cache[in]         // want `package variable cache`
	_ = config.Region      // want `package variable config`
	_ = current.region     // want `package variable current`
	n += counts[1]         // want `package variable counts`
	n += clean["a"]        // want `package variable clean`
	n += len(queue)        // want `package variable queue`
	_ = region             // want `os.Getenv, reached via region, depends on the machine`
	_ = zone               // want `os.Getenv, reached via zone → mustEnv, depends on the machine`
	return n + hook(), nil // want `package variable total, reached via hook, reads state`
}

func writes(ctx *durable.Context, in string) (int, error) {
	total += 2    // want `^changing package variable total changes state that all instances and replays share; keep the value in a local variable and return it$`
	cache[in] = 3 // want `changing package variable cache`
	p := &config  // want `changing package variable config`
	p.Region = in
	return bump(), nil // want `changing package variable total, reached via bump, changes`
}

func bump() int { total++; return 1 }

func right(ctx *durable.Context, in string) (int, error) {
	if !pattern.MatchString(in) || len(in) > limit {
		return 0, ErrRefused
	}
	local := cacheOf(prices)
	local[in]++
	total := replaced(len(steps)) + rules["a"]
	total++
	ctx.Sleep(timeout * time.Duration(retry.MaxAttempts))
	return total, nil
}

func cacheOf(m map[string]int) map[string]int { return map[string]int{"a": m["a"]} }
