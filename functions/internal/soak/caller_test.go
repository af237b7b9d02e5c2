//go:build unix

package soak_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// attemptTimeout limits one request of a client.
const attemptTimeout = 15 * time.Second

// caller is a client that repeats its requests until they are acknowledged.
type caller struct {
	number  int
	random  *rand.Rand
	ledger  *ledger
	routes  func(*rand.Rand) route
	hangsUp bool // on some of its requests, before the answer arrives
}

// run works in rounds until over is closed.
func (c *caller) run(ctx context.Context, over <-chan struct{}) error {
	for n := 1; ; n++ {
		select {
		case <-over:
			return nil
		default:
		}
		if err := c.round(ctx, n); err != nil {
			return err
		}
	}
}

// request is the start of an instance.
type request struct {
	orchestrator, id string
	input            any
}

// round starts an instance of each shape, sends events and signals, and waits for all ends.
func (c *caller) round(ctx context.Context, n int) error {
	id := fmt.Sprintf("c%d-%d", c.number, n)
	key := fmt.Sprintf("c%d-%d", c.number, n/10)
	pad := ""
	if c.random.IntN(4) == 0 {
		pad = fmt.Sprintf("%70000d", n) // too large for a queue message
	}
	accounts := [...]durable.EntityKey[account]{"a", "b", "c", "d"}
	from, step := c.random.IntN(4), 1+c.random.IntN(3)
	listener, err := c.start(ctx, request{"Listen", id + "-listen", conversation{}})
	if err != nil {
		return err
	}
	ids := []string{listener}
	for i, r := range []request{
		{"Courier", id + "-courier", listener},
		{"Move", id + "-move", transfer{accounts[from], accounts[(from+step)%4], 1 + c.random.IntN(9)}},
		{"Family", id + "-family", nil},
		{"Later", id + "-later", key},
		{"Steps", id + "-steps", pad},
		{"Shop", id + "-shop", pad},
		{"Watch", id + "-watch", nil},
	} {
		started, err := c.start(ctx, r)
		if err == nil {
			err = c.speak(ctx, listener, fmt.Sprint(id, "/word", i))
		}
		if err == nil {
			err = c.signal(ctx, key, fmt.Sprint(id, "/signal", i))
		}
		if err != nil {
			return err
		}
		ids = append(ids, started)
	}
	c.forget(ctx, id+"-forgotten")
	end := ending{append(c.ledger.heard(listener), lettersOf(ids[1])...)}
	if err := c.insist(ctx, func(ctx context.Context, r route, _ int) error {
		err := r.raise(ctx, listener, message{End: &end})
		c.ledger.asked(err == nil)
		return err
	}); err != nil {
		return err
	}
	for _, id := range ids {
		if err := c.await(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// insist repeats a request by any route until it is acknowledged or ctx ends.
func (c *caller) insist(ctx context.Context, do func(ctx context.Context, r route, attempt int) error) error {
	for attempt := 1; ; attempt++ {
		limit := attemptTimeout
		if c.hangsUp && c.random.IntN(10) == 0 {
			limit = time.Duration(1+c.random.IntN(300)) * time.Millisecond
		}
		limited, cancel := context.WithTimeout(ctx, limit)
		err := do(limited, c.routes(c.random), attempt)
		cancel()
		if err == nil {
			return nil
		}
		if !pause(ctx, time.Duration(100+c.random.IntN(400))*time.Millisecond) {
			return fmt.Errorf("caller %d, attempt %d: %w", c.number, attempt, err)
		}
	}
}

// pause waits for d. It reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// start starts an instance and returns its ID. Each attempt has its own ID: a repeated start
// with the same ID may run an instance again that has ended.
func (c *caller) start(ctx context.Context, r request) (id string, err error) {
	err = c.insist(ctx, func(ctx context.Context, to route, attempt int) error {
		id = fmt.Sprint(r.id, ".", attempt)
		c.ledger.intend(id, r.orchestrator, r.input)
		err := to.start(ctx, r.orchestrator, id, r.input)
		c.ledger.started(id, err == nil)
		return err
	})
	return id, err
}

// forget starts an instance, hangs up early and does not repeat the request. The instance exists
// and completes, or it does not exist.
func (c *caller) forget(ctx context.Context, id string) {
	if !c.hangsUp || c.random.IntN(3) > 0 {
		return
	}
	c.ledger.intend(id, "Steps", "")
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+c.random.IntN(50))*time.Millisecond)
	defer cancel()
	c.ledger.started(id, c.routes(c.random).start(ctx, "Steps", id, "") == nil)
}

// speak raises an event. Each attempt has its own token.
func (c *caller) speak(ctx context.Context, listener, token string) error {
	return c.insist(ctx, func(ctx context.Context, r route, attempt int) error {
		s := spoken{token: fmt.Sprint(token, ".", attempt), route: r.name()}
		err := r.raise(ctx, listener, message{Token: s.token})
		s.acknowledged = err == nil
		c.ledger.raised(listener, s)
		return err
	})
}

// signal signals a tally. Each attempt has its own token.
func (c *caller) signal(ctx context.Context, key, token string) error {
	return c.insist(ctx, func(ctx context.Context, r route, attempt int) error {
		token := fmt.Sprint(token, ".", attempt)
		err := r.signal(ctx, key, token)
		c.ledger.signaled(key, token, err == nil)
		return err
	})
}

// await waits for the end of an instance.
func (c *caller) await(ctx context.Context, id string) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		limited, cancel := context.WithTimeout(ctx, attemptTimeout)
		status, err := c.routes(c.random).status(limited, id)
		cancel()
		if err == nil && status != "" && status != "Pending" && status != "Running" {
			c.ledger.saw(id)
			return nil
		}
		if !pause(ctx, wait) {
			return fmt.Errorf("caller %d waits for %s: %q, %w", c.number, id, status, ctx.Err())
		}
	}
}
