package partitionlog_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
)

// The heartbeats of workers have their steps, so each process reports the steps of all workers.
func TestLoad_HasTheStepsOfOtherWorkers(t *testing.T) {
	inBubble(t, func(s *simulated) {
		pay := func(ctx *durable.Context, _ durable.Void) (int, error) {
			return durable.Step(ctx, "pay", func(context.Context) (int, error) {
				time.Sleep(time.Hour) // real time: it runs in a bubble
				return 1, nil
			}).Await()
		}
		functions := durable.NewRegistry(durable.Orchestrator("Pay", pay))
		worker, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		defer s.workAs(worker, functions)()
		instances := durable.DefaultMaxConcurrentActivitiesPerCore*runtime.NumCPU() + 3
		for i := range instances {
			if _, err := durable.Start(s.Context(), durable.NewClient(worker, functions), pay, durable.Void{}, durable.InstanceID(fmt.Sprint(i))); err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute)
		reader, _ := s.openWith("reader", partitionlog.Config{PartitionCount: 1})
		load, err := reader.Load(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		if load.Steps.Length != instances || load.Steps.Latency < 9*time.Minute || load.WorkItems.Length != 0 {
			s.Errorf("the load is %+v, want %d steps, some of which wait", load, instances)
		}
		time.Sleep(3 * time.Hour)
		if load, err = reader.Load(s.Context()); err != nil || load.Steps.Length != 0 || load.Steps.Latency != 0 {
			s.Errorf("after the steps the load is %+v, %v", load, err)
		}
		if err := reader.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A delayed signal is stored work, with and without a worker. `hub drained` depends on it.
func TestLoad_CountsMessagesThatAreNotDue(t *testing.T) {
	inBubble(t, func(s *simulated) {
		reader, _ := s.open("reader")
		want := func(when string) {
			s.Helper()
			load, err := reader.Load(s.Context())
			if err != nil {
				s.Fatal(err)
			}
			length, stored := 0, 0
			for _, q := range load.ControlQueues {
				length, stored = length+q.Length, stored+q.Stored
			}
			if length != 0 || stored != 1 {
				s.Errorf("%s, %d messages wait and %d are stored; want 0 and 1", when, length, stored)
			}
		}
		worker, _ := s.open("w")
		stop := s.workAs(worker, shapes)
		if err := durable.Signal(s.Context(), durable.NewClient(reader, shapes), durable.EntityKey[account]("a"), (*account).Add, 1, durable.SignalAfter(24*time.Hour)); err != nil {
			s.Fatal(err)
		}
		time.Sleep(time.Minute)
		want("with a worker")
		stop()
		time.Sleep(time.Minute)
		want("without a worker")
		if err := reader.Close(); err != nil {
			s.Error(err)
		}
	})
}
