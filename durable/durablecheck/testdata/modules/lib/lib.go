// Package lib stands for another module.
package lib

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var (
	mu    sync.Mutex
	cache = map[string]string{}
)

// Upper keeps a cache, which does not change what it returns.
func Upper(s string) string {
	mu.Lock()
	defer mu.Unlock()
	if _, ok := cache[s]; !ok {
		fmt.Println("miss")
		cache[s] = s
	}
	return cache[s]
}

// Load does several things that orchestrators must not.
func Load(name string) string {
	time.Sleep(time.Second)
	go func() {}()
	b, _ := os.ReadFile(name)
	return string(b) + time.Now().String()
}

// Client was made with the help of the environment, in its own package.
var Client = newClient()

type client struct{ region string }

func newClient() *client { return &client{os.Getenv("REGION")} }

func (c *client) Name() string { return c.region }

// NewClient is called by others to initialise variables.
func NewClient() *client { return newClient() }

// Step is for orchestrators.
func Step(ctx *durable.Context, n int) (time.Time, error) { ctx.Sleep(1); return time.Now(), nil }

// Pool counts its own use.
type Pool struct{ used int }

// Get changes the pool.
func (p *Pool) Get(s string) string { p.used++; return s }
