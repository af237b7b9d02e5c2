package simulated_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
)

func TestLoad_CountsMessagesAndWorkers(t *testing.T) {
	for _, m := range managers {
		t.Run(m.String(), func(t *testing.T) {
			inFleet(t, azurestorage.Config{PartitionManager: m, PartitionCount: 1, MaxQueuePollingInterval: time.Second}, func(f *fleet) {
				h, _ := f.hub("client", nil)
				client := durable.NewClient(h, durable.NewRegistry())
				for i := range 3 {
					if _, err := client.StartByName(f.Context(), "HelloSequence", nil, durable.InstanceID(fmt.Sprintf("hello-%d", i))); err != nil {
						f.Fatal(err)
					}
				}
				time.Sleep(time.Minute)
				load, err := h.Load(f.Context())
				if err != nil {
					f.Fatal(err)
				}
				q := load.ControlQueues[0]
				if len(load.ControlQueues) != 1 || q.Length != 3 || q.Stored != 3 || q.Latency < time.Minute || q.Latency > time.Minute+10*time.Second || load.WorkItems.Length != 0 || load.Workers != 0 {
					f.Errorf("without a worker the load is %+v", *load)
				}
				f.join("one", nil)
				if _, err := client.StartByName(f.Context(), "HelloSequence", nil, durable.StartAt(time.Now().Add(time.Hour))); err != nil {
					f.Fatal(err)
				}
				time.Sleep(time.Minute)
				if load, err = h.Load(f.Context()); err != nil {
					f.Fatal(err)
				}
				if q := load.ControlQueues[0]; q.Length != 0 || q.Stored != 1 || q.Latency != 0 || load.Workers != 1 {
					f.Errorf("with a worker the load is %+v", *load)
				}
			})
		})
	}
}
