package durable_test

import (
	"context"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Limiter is an entity that issues a limited number of tickets per period. If none is
// available, it returns the time to wait.
type Limiter struct {
	Given []time.Time `json:"given"` // issue times of the tickets in the current period
}

// Limit is the number of tickets per period.
type Limit struct {
	Count int
	While time.Duration
}

// Ticket is a ticket, or the time to wait before the next request.
type Ticket struct {
	At   time.Time
	Wait time.Duration
}

// Take requests a ticket.
func (l *Limiter) Take(ctx *durable.EntityContext, limit Limit) (Ticket, error) {
	now := ctx.Now()
	for len(l.Given) > 0 && !l.Given[0].Add(limit.While).After(now) {
		l.Given = l.Given[1:]
	}
	if len(l.Given) < limit.Count {
		l.Given = append(l.Given, now)
		return Ticket{At: now}, nil
	}
	return Ticket{Wait: l.Given[0].Add(limit.While).Sub(now)}, nil
}

var gently = Limit{Count: 2, While: 200 * time.Millisecond}

// takeTicket waits for a ticket.
func takeTicket(ctx *durable.Context, to durable.EntityKey[Limiter], limit Limit) (time.Time, error) {
	for {
		ticket, err := durable.CallEntity(ctx, to, (*Limiter).Take, limit).Await()
		if err != nil || ticket.Wait == 0 {
			return ticket.At, err
		}
		ctx.Sleep(ticket.Wait)
	}
}

func askService(_ context.Context, question int) (string, error) {
	return fmt.Sprint("answer ", question), nil
}

// askGently calls a service with a rate limit that all orchestrations share.
func askGently(ctx *durable.Context, questions int) ([]string, error) {
	var answers []string
	var asked []time.Time
	for n := range questions {
		at, err := takeTicket(ctx, "the service", gently)
		if err != nil {
			return nil, err
		}
		asked = append(asked, at)
		answer, err := durable.CallActivity(ctx, askService, n).Await()
		if err != nil {
			return nil, err
		}
		answers = append(answers, answer)
	}
	for i := gently.Count; i < len(asked); i++ {
		if asked[i].Sub(asked[i-gently.Count]) < gently.While {
			answers = append(answers, "asked too often")
		}
	}
	return answers, nil
}

// Limit the rate of calls across orchestrations.
func Example_rateLimiter() {
	registry := durable.NewRegistry(
		durable.Orchestrator("AskGently", askGently),
		durable.Activity("AskService", askService),
		durable.Entity("Limiter", durable.Op("take", (*Limiter).Take)),
	)
	runExample(registry, askGently, 5)
	// Output: [answer 0 answer 1 answer 2 answer 3 answer 4]
}
