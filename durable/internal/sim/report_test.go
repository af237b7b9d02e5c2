package sim_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"runtime/pprof"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
)

// report fails the test. Its last lines are the faults, the seed, the command that repeats the run, and the
// file with the trace. flags select one run of the test.
func report(t *testing.T, plan *sim.Plan, faults []string, trace, flags string) {
	t.Helper()
	t.Errorf("workers %d, partitions %d, faults %v, repeats %v, loose %v, disturbances %v, stopped at operation %d\n%s\nseed %d\nrepeat: %s\ntrace: %s",
		plan.Workers, plan.Partitions, plan.Faults, plan.Repeats, plan.Loose, plan.Disturbances, plan.StopAt,
		strings.Join(faults, "\n"), plan.Seed, repeatCommand(t, flags), keepTrace(t, plan, faults, trace))
}

// repeatCommand returns the command that repeats a test with additional flags.
func repeatCommand(t *testing.T, flags string) string {
	var pattern []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	return strings.TrimSuffix(fmt.Sprintf("go test ./durable/internal/sim -run '%s' %s", strings.Join(pattern, "/"), flags), " ")
}

// repeatable calls f on a goroutine with a label that contains the command to repeat the run. The label
// appears in tracebacks, also after a panic or a timeout.
func repeatable(t *testing.T, flags string, f func()) {
	t.Helper()
	pprof.Do(t.Context(), pprof.Labels("repeat", repeatCommand(t, flags)), func(context.Context) { f() })
}

// keepTrace writes the trace to a new file and returns its name.
func keepTrace(t *testing.T, plan *sim.Plan, faults []string, trace string) string {
	if trace == "" {
		return "none on this hub, -sim.log prints the log"
	}
	f, err := os.CreateTemp("", fmt.Sprintf("%s-%d-*.txt", strings.ReplaceAll(t.Name(), "/", "-"), plan.Seed)) //nolint:usetesting // the trace outlives the test
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := fmt.Fprintf(f, "%s\n%s\n", trace, strings.Join(faults, "\n")); err != nil {
		return err.Error()
	}
	return f.Name()
}
