package main

import (
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/durabletest"
)

func TestTransfer_MovesMoneyOrGivesItBack(t *testing.T) {
	hub := durabletest.New(t, functions...)
	before := bank.balances["alice"]

	got, err := durabletest.Run(hub, Transfer, Payment{From: "alice", To: "bob", Cents: 300})
	if err != nil || got != "bob has 800 cents" || bank.balances["alice"] != before-300 {
		t.Errorf("%q, %v; alice has %d cents", got, err, bank.balances["alice"])
	}
	_, err = durabletest.Run(hub, Transfer, Payment{From: "alice", To: "carol", Cents: 300})
	if err == nil || !strings.Contains(err.Error(), "no account") || bank.balances["alice"] != before-300 {
		t.Errorf("%v; alice has %d cents, want %d", err, bank.balances["alice"], before-300)
	}
	if _, err = durabletest.Run(hub, Transfer, Payment{From: "bob", To: "alice", Cents: 1_000_000}); err == nil {
		t.Error("bob can spend more than he has")
	}
}
