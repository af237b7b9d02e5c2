package leases

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// taskHubInfo is what the blob taskhub.json holds, which the blob partition
// managers make (DurableTask.AzureStorage/Partitioning/TaskHubInfo.cs).
type taskHubInfo struct {
	TaskHubName    string
	CreatedAt      time.Time
	PartitionCount int
}

// CreateInfo makes the container of lease blobs and the blob that describes the hub,
// unless they are there, and returns how many partitions the hub has. .NET overwrites
// the count instead, though both counts go on being used
// (DurableTask.AzureStorage/Partitioning/BlobPartitionLeaseManager.cs,
// CreateLeaseStoreIfNotExistsAsync).
func (w *Worker) CreateInfo(ctx context.Context, taskHub string) (partitions int, err error) {
	if err := w.Blobs.Create(ctx); err != nil {
		return 0, err
	}
	text, err := json.Marshal(taskHubInfo{TaskHubName: taskHub, CreatedAt: history.Ticks(time.Now().UTC()), PartitionCount: len(w.Partitions)})
	if err != nil {
		return 0, err
	}
	if err := w.Blobs.CreateBlob(ctx, w.Names.TaskHubInfo(), text); err != nil {
		return 0, err
	}
	return w.CountPartitions(ctx)
}

// CreateBlobs makes the lease blobs of the worker's partitions that are not there yet.
func (w *Worker) CreateBlobs(ctx context.Context) error {
	var partitions []string
	for _, p := range w.Partitions {
		partitions = append(partitions, p.Name())
	}
	for _, folder := range w.folders() {
		if err := w.leaseSet(folder).create(ctx, partitions); err != nil {
			return err
		}
	}
	return nil
}

// CountPartitions returns how many partitions the hub has, by the blob that describes it.
func (w *Worker) CountPartitions(ctx context.Context) (n int, err error) {
	var info taskHubInfo
	err = store.Retry(ctx, "read "+w.Names.TaskHubInfo(), func(ctx context.Context) error {
		resp, err := w.Blobs.Client.NewBlobClient(w.Names.TaskHubInfo()).DownloadStream(ctx, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
		if err != nil {
			return err
		}
		info = taskHubInfo{}
		if err := json.Unmarshal(raw, &info); err != nil {
			return fmt.Errorf("blob %s/%s: %w", w.Names.Leases(), w.Names.TaskHubInfo(), err)
		}
		return nil
	})
	return info.PartitionCount, err
}
