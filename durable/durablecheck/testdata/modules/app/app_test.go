package main

import (
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func TestOrchestrator(t *testing.T) {
	inTest := func(ctx *durable.Context, in int) (time.Time, error) {
		return time.Now(), nil // want `time.Now reads`
	}
	_ = inTest
}
