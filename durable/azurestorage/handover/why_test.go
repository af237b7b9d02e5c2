package handover_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
)

// Why explains instances that .NET started, after each write of a scenario.
func TestWhy_ExplainsInstancesThatDotNetStarted(t *testing.T) {
	t.Parallel()
	const about = "is running or about to run" // the history has ended, but not the row
	for _, tt := range []struct {
		scenario
		want []string // the reasons in order, without repetitions
	}{
		{scenario{file: "kinds", scenarios: []string{"retry"}, instances: []string{"retry"}}, []string{
			`waits for a worker to start it`, `activity "Boom"`,
			`timer before attempt 2 of 2 of "Boom", last error: kaboom f1`, `activity "Boom", attempt 2 of 2, last error: kaboom f1`,
			`timer, last error: kaboom f1`, about,
			"has ended: DurableTask.Core.Exceptions.TaskFailedException: Task 'Boom' (#2) failed with an unhandled exception: kaboom f1",
		}},
		{scenario{file: "kinds", scenarios: []string{"timer"}, instances: []string{"tim"}}, []string{
			`waits for a worker to start it`, `timer`, about, `has ended: "timer done"`,
		}},
		{scenario{file: "kinds", scenarios: []string{"terminate"}, instances: []string{"ev2"}}, []string{
			`waits for a worker to start it`, `event "greet"`, about, `has ended: stop it`,
		}},
		{scenario{file: "hello", scenarios: []string{"noext-begin"}, instances: []string{"seq1"}}, []string{
			`waits for a worker to start it`, `activity "Hello"`, about, `has ended: ["Hello Tokyo!","Hello Seattle!","Hello London!"]`,
		}},
	} {
		t.Run(tt.scenarios[0], func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				changes := recordedChanges(t, tt.file, tt.scenarios...)
				h := newHub(t, simulated(t, 1, 0))
				connection, err := azurestorage.ParseConnectionString(h.connection)
				if err != nil {
					t.Fatal(err)
				}
				storage, err := azurestorage.Open(connection, azurestorage.Config{TaskHub: h.name, PartitionCount: 1, Transport: h.worker})
				if err != nil {
					t.Fatal(err)
				}
				client := durable.NewClient(storage, durable.NewRegistry(functions...))
				var got []string
				for cut := 1; cut <= len(changes); cut++ {
					tt.restore(t, h, changes, cut, cut, false)
					w, err := client.Why(t.Context(), durable.InstanceID(fmt.Sprintf("%s-d%02d", tt.instances[0], cut)))
					if err != nil {
						continue // it does not exist yet
					}
					for _, r := range w.Reasons {
						text, place, _ := strings.Cut(r.String(), " it: partition 0 has about ")
						if place != "" {
							text += " it"
						}
						if (r.Kind == durable.ReasonNotStarted) != (place != "") {
							t.Errorf("%q: only the reason of an unstarted instance must have its place", r)
						}
						if !slices.Contains(got[max(0, len(got)-1):], text) {
							got = append(got, text)
						}
					}
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("reasons\n%q, want\n%q", got, tt.want)
				}
			})
		})
	}
}
