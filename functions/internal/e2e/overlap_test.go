//go:build unix

package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
)

// The host starts the next process while the previous one still drains, on the same instance of a plan. The
// processes must be two workers: they share the partitions, and neither processes the other's work.
func TestStandalone_TwoProcessesOnOneInstanceAreTwoWorkers(t *testing.T) {
	t.Parallel()
	root := newRoot(t, newHub(), azuritetest.Start(t), nil)
	instance := "WEBSITE_INSTANCE_ID=0123456789abcdef"
	const lease = "E2E_LEASE=1m" // so long that a slow machine loses no lease
	first := startStandalone(t, e2eApp, root, instance, lease)
	first.awaitLog("event=LeaseAcquisitionSucceeded", 60*time.Second)
	second := startStandalone(t, e2eApp, root, instance, lease)
	second.awaitLog("event=LeaseAcquisitionSucceeded", 60*time.Second)

	var started []checkStatus
	for i := range 20 {
		app := []*app{first, second}[i%2]
		started = append(started, app.start("Steps", map[string]int{"steps": 3}))
	}
	for i, s := range started {
		app := []*app{second, first}[i%2]
		app.completed(fmt.Sprintf("/api/durabletask/instances/%s", s.ID), time.Minute, "[1,4,9]")
	}

	for _, app := range []*app{first, second} {
		if log := app.log(); strings.Contains(log, "SplitBrainDetected") || strings.Contains(log, "another worker has taken the instance over") {
			t.Error("a process ran instances of the other process")
		}
	}
}
