package durable_test

import (
	"context"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func listFiles(context.Context, string) ([]string, error) { return []string{"a", "bb", "ccc"}, nil }
func copyFile(_ context.Context, f string) (int64, error) { return int64(len(f)), nil }

func backup(ctx *durable.Context, dir string) (total int64, err error) {
	files, err := durable.CallActivity(ctx, listFiles, dir).Await()
	if err != nil {
		return 0, err
	}
	tasks := make([]*durable.Task[int64], len(files))
	for i, f := range files {
		tasks[i] = durable.CallActivity(ctx, copyFile, f) // all run concurrently
	}
	sizes, err := durable.AwaitAll(ctx, tasks...)
	for _, n := range sizes {
		total += n
	}
	return total, err
}

// Call many activities concurrently and combine their results.
func Example_fanOut() {
	registry := durable.NewRegistry(
		durable.Orchestrator("Backup", backup),
		durable.Activity("ListFiles", listFiles),
		durable.Activity("CopyFile", copyFile),
	)
	runExample(registry, backup, "/srv")
	// Output: 6
}
