package azurestorage

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

// createLeaseBlobs makes what the blob partition managers keep their leases in,
// and checks that the hub has as many partitions as are configured. .NET writes
// the count anew instead, though both counts go on being used
// (DurableTask.AzureStorage/Partitioning/BlobPartitionLeaseManager.cs,
// CreateLeaseStoreIfNotExistsAsync).
func (h *TaskHub) createLeaseBlobs(ctx context.Context) error {
	if err := h.leaseBlobs.Create(ctx); err != nil {
		return err
	}
	want := taskHubInfo{TaskHubName: h.cfg.TaskHub, CreatedAt: history.Ticks(time.Now().UTC()), PartitionCount: len(h.controlQueues)}
	text, err := json.Marshal(want)
	if err != nil {
		return err
	}
	if err := h.leaseBlobs.CreateBlob(ctx, h.names.TaskHubInfo(), text); err != nil {
		return err
	}
	got, err := h.readTaskHubInfo(ctx)
	if err != nil {
		return err
	}
	if got.PartitionCount != want.PartitionCount {
		return &PartitionCountError{TaskHub: h.cfg.TaskHub, Configured: want.PartitionCount, Existing: got.PartitionCount}
	}
	var partitions []string
	for _, q := range h.controlQueues {
		partitions = append(partitions, q.Name)
	}
	folders := []string{intentLeases, ownershipLeases}
	if h.cfg.PartitionManager == LegacyBlobLeases {
		folders = []string{defaultLeases}
	}
	for _, folder := range folders {
		if err := h.leaseSet(folder).create(ctx, partitions); err != nil {
			return err
		}
	}
	return nil
}

func (h *TaskHub) readTaskHubInfo(ctx context.Context) (info taskHubInfo, err error) {
	err = store.Retry(ctx, "read "+h.names.TaskHubInfo(), func(ctx context.Context) error {
		resp, err := h.leaseBlobs.Client.NewBlobClient(h.names.TaskHubInfo()).DownloadStream(ctx, nil)
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
			return fmt.Errorf("blob %s/%s: %w", h.names.Leases(), h.names.TaskHubInfo(), err)
		}
		return nil
	})
	return info, err
}
