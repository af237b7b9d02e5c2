package durable_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Counter is an entity: a value that is stored under a name and a key, and changed by
// one operation at a time. Its fields are stored as JSON.
type Counter struct {
	Total int64 `json:"total"`
}

// Add is an operation. When it returns, c is stored.
func (c *Counter) Add(_ *durable.EntityContext, n int64) (int64, error) {
	if c.Total+n < 0 {
		return 0, ErrNegative // a failed operation changes nothing
	}
	c.Total += n
	return c.Total, nil
}

var ErrNegative = errors.New("the counter would become negative")

// tally signals a counter without waiting, and then calls it. The entity processes the
// messages of an orchestration in order.
func tally(ctx *durable.Context, readings []int64) (int64, error) {
	meter := durable.EntityKey[Counter]("meter-7")
	for _, n := range readings {
		durable.SignalFrom(ctx, meter, (*Counter).Add, n)
	}
	_, err := durable.CallEntity(ctx, meter, (*Counter).Add, -1000).Await()
	if !errors.Is(err, ErrNegative) {
		return 0, fmt.Errorf("the counter became negative: %w", err)
	}
	return durable.CallEntity(ctx, meter, (*Counter).Add, 0).Await()
}

// Orchestrations share a counter.
func Example_entity() {
	registry := durable.NewRegistry(
		durable.Orchestrator("Tally", tally),
		durable.Entity("Counter", durable.Op("add", (*Counter).Add)),
		durable.ErrorValue("Negative", ErrNegative),
	)
	runExample(registry, tally, []int64{3, 4, 5})
	// Output: 12
}

// DeviceReport is a report of a device.
type DeviceReport struct {
	Device      string  `json:"device"`
	Temperature float64 `json:"temperature"`
}

// Summary aggregates the reports of all devices of a site. It is stored as a map.
type Summary map[string]float64

// Report records a report and raises an alarm if the temperature is too high.
func (s *Summary) Report(ctx *durable.EntityContext, r DeviceReport) (durable.Void, error) {
	if *s == nil {
		*s = Summary{}
	}
	(*s)[r.Device] = r.Temperature
	if r.Temperature > 80 {
		// The start is sent when the report is stored, exactly once.
		if _, err := durable.StartFrom(ctx, raiseAlarm, r, durable.InstanceID("alarm-"+r.Device)); err != nil {
			return durable.Void{}, err
		}
	}
	return durable.Void{}, nil
}

// Hottest returns the device with the highest temperature.
func (s *Summary) Hottest(*durable.EntityContext, durable.Void) (string, error) {
	hottest := ""
	for device, temperature := range *s {
		if hottest == "" || temperature > (*s)[hottest] || temperature == (*s)[hottest] && device < hottest {
			hottest = device
		}
	}
	return hottest, nil
}

func raiseAlarm(_ *durable.Context, r DeviceReport) (string, error) {
	return fmt.Sprintf("%s has %.0f degrees", r.Device, r.Temperature), nil
}

// inspect waits for reports, signals each one to the summary of the site, and then
// calls the summary.
func inspect(ctx *durable.Context, reports int) (string, error) {
	site := durable.EntityKey[Summary]("north")
	for range reports {
		report, err := reported.Wait(ctx).Await()
		if err != nil {
			return "", err
		}
		durable.SignalFrom(ctx, site, (*Summary).Report, report)
	}
	return durable.CallEntity(ctx, site, (*Summary).Hottest, durable.Void{}).Await()
}

const reported = durable.Event[DeviceReport]("Reported")

// An entity aggregates data from many sources and acts on it.
func Example_aggregator() {
	registry := durable.NewRegistry(
		durable.Orchestrator("Inspect", inspect),
		durable.Orchestrator("RaiseAlarm", raiseAlarm),
		durable.Entity("Summary", durable.Op("report", (*Summary).Report), durable.Op("hottest", (*Summary).Hottest)),
	)
	runExample(registry, inspect, 3, func(ctx context.Context, c *durable.Client, id durable.InstanceID) error {
		for _, r := range []DeviceReport{{"boiler", 71}, {"engine", 93}, {"lamp", 30}} {
			if err := reported.Raise(ctx, c, id, r); err != nil {
				return err
			}
		}
		return nil
	}, func(ctx context.Context, c *durable.Client, _ durable.InstanceID) error {
		alarm, err := waitFor(ctx, durable.InstanceOf[string](c, "alarm-engine"))
		fmt.Println(alarm)
		return err
	})
	// Output:
	// engine has 93 degrees
	// engine
}

// waitFor waits for an instance that may not exist yet.
func waitFor[O any](ctx context.Context, i *durable.Instance[O]) (O, error) {
	for {
		out, err := i.Wait(ctx)
		if !errors.Is(err, durable.ErrInstanceNotFound) {
			return out, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
