package main_test

import (
	"testing"
	"time"

	"app/helpers"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func orchestrator(ctx *durable.Context, in int) (time.Time, error) {
	helpers.Cached("")     // want `sync.Mutex.Lock, reached via helpers.Cached, synchronizes` `package variable cache, reached via helpers.Cached, reads`
	return time.Now(), nil // want `time.Now reads`
}

func TestOutside(t *testing.T) { _ = orchestrator }
