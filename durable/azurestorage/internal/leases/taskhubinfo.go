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

// taskHubInfo is the content of the blob taskhub.json, which the blob partition managers create
// (DurableTask.AzureStorage/Partitioning/TaskHubInfo.cs).
type taskHubInfo struct {
	TaskHubName    string
	CreatedAt      time.Time
	PartitionCount int
}

// CreateInfo creates the container of the lease blobs and the blob that describes the hub, unless they
// exist. It returns the partition count of the hub. .NET overwrites the count instead, although
// workers with either count keep running
// (DurableTask.AzureStorage/Partitioning/BlobPartitionLeaseManager.cs,
// CreateLeaseStoreIfNotExistsAsync).
func (w *Worker) CreateInfo(ctx context.Context, taskHub string) (partitions int, err error) {
	if err := w.Blobs.Create(ctx); err != nil {
		return 0, err
	}
	text, err := json.Marshal(taskHubInfo{TaskHubName: taskHub, CreatedAt: history.TruncateToTicks(time.Now().UTC()), PartitionCount: len(w.Partitions)})
	if err != nil {
		return 0, err
	}
	if err := w.Blobs.CreateBlob(ctx, w.Names.TaskHubInfoBlob(), text); err != nil {
		return 0, err
	}
	return w.CountPartitions(ctx)
}

// CreateBlobs creates the missing lease blobs of the worker's partitions.
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

// CountPartitions returns the partition count in the blob that describes the hub.
func (w *Worker) CountPartitions(ctx context.Context) (n int, err error) {
	var info taskHubInfo
	err = store.Retry(ctx, "read "+w.Names.TaskHubInfoBlob(), func(ctx context.Context) error {
		resp, err := w.Blobs.Client.NewBlobClient(w.Names.TaskHubInfoBlob()).DownloadStream(ctx, nil)
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
			return fmt.Errorf("blob %s/%s: %w", w.Names.LeaseContainer(), w.Names.TaskHubInfoBlob(), err)
		}
		return nil
	})
	return info.PartitionCount, err
}
