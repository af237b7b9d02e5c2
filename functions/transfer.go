package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Payment is the input of [Transfer].
type Payment struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Cents int64  `json:"cents"`
}

// Transfer moves money from one account to another, in durable steps. If the second account
// refuses the money, the first one gets it back.
func Transfer(ctx *durable.Context, p Payment) (string, error) {
	post := func(step, account string, cents int64) *durable.Task[int64] {
		return durable.Step(ctx, step, func(ctx context.Context) (int64, error) {
			info, _ := durable.ActivityInfoFrom(ctx)
			return bank.post(account, cents, info.IdempotencyKey)
		})
	}
	if _, err := post("withdraw", p.From, -p.Cents).Await(); err != nil {
		return "", err
	}
	balance, err := post("deposit", p.To, p.Cents).Await()
	if err == nil {
		return fmt.Sprintf("%s has %d cents", p.To, balance), nil
	}
	if _, undone := post("give back", p.From, p.Cents).Await(); undone != nil {
		return "", errors.Join(err, undone)
	}
	return "", err
}

// ledger stands for a bank with an API. It recognizes repeated requests by their key.
type ledger struct {
	mu       sync.Mutex // protects the following
	balances map[string]int64
	done     map[string]int64 // balances after the requests, by key
}

var bank = &ledger{balances: map[string]int64{"alice": 10_000, "bob": 500}, done: map[string]int64{}}

// post adds cents to an account and returns its balance.
func (l *ledger) post(account string, cents int64, key string) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if balance, repeated := l.done[key]; repeated {
		return balance, nil
	}
	balance, exists := l.balances[account]
	switch {
	case !exists:
		return 0, durable.NonRetryable(fmt.Errorf("the bank has no account %q", account))
	case balance+cents < 0:
		return 0, durable.NonRetryable(fmt.Errorf("account %q has only %d cents", account, balance))
	}
	l.balances[account] = balance + cents
	l.done[key] = balance + cents
	return balance + cents, nil
}
