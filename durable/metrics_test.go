package durable_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/memhub"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

func TestMetrics_CountWorkItemsByOutcome(t *testing.T) {
	for _, sessions := range []bool{false, true} {
		t.Run(fmt.Sprint("sessions ", sessions), func(t *testing.T) { countWorkItems(t, sessions) })
	}
}

func countWorkItems(t *testing.T, sessions bool) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		h, r := memhub.New(), tracedFunctions()
		stop := run(t, h, r, durable.Config{
			ExtendedSessionIdle: sessionIdle(sessions), Metrics: durable.Metrics{Provider: sdk.NewMeterProvider(sdk.WithReader(reader))},
		})
		c := durable.NewClient(h, r)
		if _, err := durable.Start(t.Context(), c, tracedListener, durable.Void{}, durable.InstanceID("listener")); err != nil {
			t.Fatal(err)
		}
		i, err := durable.Start(t.Context(), c, tracedParent, "listener", durable.InstanceID("parent"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := i.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop() // so that the last work items are counted
		var all metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &all); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range all.ScopeMetrics[0].Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "durabletask.work_items" {
				for _, p := range sum.DataPoints {
					var attrs []string
					for _, a := range p.Attributes.ToSlice() {
						attrs = append(attrs, a.Value.String())
					}
					got = append(got, fmt.Sprintf("%s %d", strings.Join(attrs, " "), p.Value))
				}
			}
		}
		slices.Sort(got)
		want := []string{ // outcome, name, type
			"completed Child orchestration 2",
			"completed Listener orchestration 2",
			"completed Parent orchestration 5",
			"completed Step activity 2",
			"failed Child orchestration 0", // reported before the first failure
			"failed Listener orchestration 0",
			"failed Parent orchestration 0",
			"failed Step activity 1",
		}
		if !slices.Equal(got, want) {
			t.Errorf("counted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
