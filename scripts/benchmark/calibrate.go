package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
)

// probe is a request, or a sequence of requests, to the account that stores the measured hubs. The account
// limits the throughput of a hub.
type probe struct {
	name     string
	requests int // number of requests per call
	call     func(ctx context.Context, i int) error
}

// probesInFlight is the number of concurrent calls in the throughput measurement.
const probesInFlight = 32

// calibrate returns a table with the account's latency of single requests and its throughput in requests per
// second.
func calibrate(ctx context.Context, o options) (table string, err error) {
	name := fmt.Sprintf("probe%x", time.Now().UnixNano())
	probes, remove, err := newProbes(ctx, o.connection, name)
	if err != nil {
		return "", fmt.Errorf("calibrate: %w", err)
	}
	defer func() { err = errors.Join(err, remove()) }()
	var b strings.Builder
	fmt.Fprintf(&b, "\n| bare requests to the account, by the same SDKs | one alone, p50 | requests/s, %d in flight (lowest to highest) |\n|---|--:|--:|\n", probesInFlight)
	for _, p := range probes {
		alone, rates, err := p.measure(ctx, o.runs)
		if err != nil {
			return "", fmt.Errorf("calibrate: %s: %w", p.name, err)
		}
		fmt.Fprintf(&b, "| %s | %s ms | %s (%s–%s) |\n", p.name, short(alone), short(median(rates)), short(slices.Min(rates)), short(slices.Max(rates)))
	}
	return b.String(), nil
}

// measure returns the latency of a single request in milliseconds, and the requests per second in each run
// with many concurrent calls.
func (p probe) measure(ctx context.Context, runs int) (alone float64, rates []float64, err error) {
	const single, many = 50, 640
	var took []float64
	for i := range single {
		began := time.Now()
		if err := p.call(ctx, i); err != nil {
			return 0, nil, err
		}
		took = append(took, milliseconds(time.Since(began))/float64(p.requests))
	}
	for run := range runs {
		began := time.Now()
		err := inParallel(many, probesInFlight, func(i int) error { return p.call(ctx, single+run*many+i) })
		if err != nil {
			return 0, nil, err
		}
		rates = append(rates, float64(many*p.requests)/time.Since(began).Seconds())
	}
	return median(took), rates, nil
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// newProbes returns the probes. Their queue and table have the given name. remove deletes both.
func newProbes(ctx context.Context, connection, name string) (probes []probe, remove func() error, err error) {
	transport := azcore.ClientOptions{Transport: newRequests()}
	queues, err := azqueue.NewServiceClientFromConnectionString(connection, &azqueue.ClientOptions{ClientOptions: transport})
	if err != nil {
		return nil, nil, err
	}
	tables, err := aztables.NewServiceClientFromConnectionString(connection, &aztables.ClientOptions{ClientOptions: transport})
	if err != nil {
		return nil, nil, err
	}
	queue, table := queues.NewQueueClient(name), tables.NewClient(name)
	if _, err := queue.Create(ctx, nil); err != nil {
		return nil, nil, err
	}
	if _, err := table.CreateTable(ctx, nil); err != nil {
		return nil, nil, err
	}
	remove = func() error {
		_, errQueue := queue.Delete(ctx, nil)
		_, errTable := table.Delete(ctx, nil)
		return errors.Join(errQueue, errTable)
	}
	text := strings.Repeat("m", 500) // the size of a message of a small activity
	return []probe{
		{"queue: put, receive, delete", 3, func(ctx context.Context, _ int) error { return passThrough(ctx, queue, text) }},
		{"table: transaction of 4 rows", 1, func(ctx context.Context, i int) error { return insertTogether(ctx, table, i) }},
		{"table: insert of a row", 1, func(ctx context.Context, i int) error {
			_, err := table.AddEntity(ctx, row(fmt.Sprint("single-", i), 0), nil)
			return err
		}},
		{"table: read of a row", 1, func(ctx context.Context, i int) error {
			_, err := table.GetEntity(ctx, fmt.Sprint("single-", i), "0", nil)
			return err
		}},
	}, remove, nil
}

// passThrough enqueues a message, and dequeues and deletes one.
func passThrough(ctx context.Context, queue *azqueue.QueueClient, text string) error {
	if _, err := queue.EnqueueMessage(ctx, text, nil); err != nil {
		return err
	}
	got, err := queue.DequeueMessage(ctx, nil)
	if err != nil {
		return err
	}
	for _, m := range got.Messages {
		if _, err := queue.DeleteMessage(ctx, *m.MessageID, *m.PopReceipt, nil); err != nil {
			return err
		}
	}
	return nil
}

// insertTogether inserts about as much as a checkpoint.
func insertTogether(ctx context.Context, table *aztables.Client, i int) error {
	var actions []aztables.TransactionAction
	for n := range 4 {
		actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeInsertReplace, Entity: row(fmt.Sprint("batch-", i), n)})
	}
	_, err := table.SubmitTransaction(ctx, actions, nil)
	return err
}

func row(partition string, n int) []byte {
	raw, err := json.Marshal(map[string]any{"PartitionKey": partition, "RowKey": fmt.Sprint(n), "EventType": "TaskCompleted", "Result": strings.Repeat("r", 100)})
	if err != nil {
		panic(err) // unreachable: the values are strings
	}
	return raw
}
