package leases

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/pause"
)

// appLeaseID returns the lease ID of an app. It is the same in all workers of the app
// (DurableTask.AzureStorage/Partitioning/AppLeaseManager.cs).
func appLeaseID(app string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(app)) // never fails
	return fmt.Sprintf("%08x-0000-0000-0000-000000000000", h.Sum32())
}

// appLeaseInfo is the content of the app lease blob. It names the app that owns the app lease, and the
// app that should acquire it next.
type appLeaseInfo struct {
	OwnerID       *string `json:"OwnerId"`
	DesiredSwapID *string `json:"DesiredSwapId"`
}

// An AppManager runs a partition manager while its app is the primary app of the task hub.
type AppManager struct {
	worker *Worker
	id     string
	wake   store.Nudge // try to acquire the lease now
}

// NewAppManager returns a manager for w, a worker of the app.
func NewAppManager(w *Worker) *AppManager {
	return &AppManager{worker: w, id: appLeaseID(w.App.AppName), wake: store.NewNudge()}
}

// Run implements [Manager]. When the app loses the app lease, the worker releases its partitions as on
// shutdown.
func (a *AppManager) Run(ctx, work context.Context) {
	for reported := false; ctx.Err() == nil; {
		err := a.acquire(ctx)
		if err == nil {
			reported = false
			a.worker.Health.OK("app lease")
			a.worker.Log.Info("this app is now the primary app of the task hub", "app", a.worker.App.AppName, "leaseId", a.id)
			a.lead(ctx, work)
			continue
		}
		wait := a.worker.App.AcquireInterval
		switch {
		case ctx.Err() != nil:
			return
		case !store.IsConflict(err):
			a.worker.Health.Failed("app lease", err)
			wait = min(wait, store.MaxOutageDelay)
		case !reported:
			reported = true
			a.worker.Log.Warn("another app is the primary app of the task hub; this app runs no instances", "app", a.worker.App.AppName,
				"fix", "give both apps the same name, make this app the primary app, or disable the app lease (useAppLease)")
		}
		a.wake.Pause(ctx, wait)
	}
}

// lead runs the partition manager until the lease cannot be renewed.
func (a *AppManager) lead(ctx, work context.Context) {
	primary, resign := context.WithCancel(ctx)
	defer resign()
	done := make(chan struct{})
	a.worker.Tasks.Go(func() {
		defer close(done)
		NewManager(a.worker).Run(primary, work)
	})
	for until := a.worker.Clock.Now().Add(a.worker.App.Interval); pause.For(primary, a.worker.App.RenewInterval); {
		began := a.worker.Clock.Now()
		err := a.renew(primary)
		switch {
		case err == nil:
			until = began.Add(a.worker.App.Interval)
			a.worker.Health.OK("app lease")
			continue
		case primary.Err() != nil:
		case !store.IsConflict(err) && !until.HasPassed(a.worker.Clock.Now()):
			a.worker.Health.Failed("app lease", err)
			continue
		default:
			a.worker.Log.Warn("this app is no longer the primary app of the task hub", "app", a.worker.App.AppName, "reason", err)
		}
		break
	}
	resign()
	<-done
}

// acquire acquires the app lease. If this app was made primary while another app holds the lease,
// acquire changes the lease to its own ID. A conflict means that another app holds the lease.
func (a *AppManager) acquire(ctx context.Context) error {
	info, err := a.info(ctx)
	if err != nil {
		return err
	}
	ours := info.OwnerID != nil && *info.OwnerID == a.id
	if info.DesiredSwapID != nil && *info.DesiredSwapID == a.id && info.OwnerID != nil && !ours {
		c, err := a.client(*info.OwnerID)
		if err != nil {
			return err
		}
		if _, err := c.ChangeLease(ctx, a.id, nil); err == nil {
			return a.write(ctx, appLeaseInfo{OwnerID: &a.id})
		} else if !store.IsConflict(err) {
			return fmt.Errorf("take over the app lease: %w", err)
		} // the lease of the other app has expired
	}
	c, err := a.client(a.id)
	if err != nil {
		return err
	}
	seconds := int32(a.worker.App.Interval / time.Second)
	if _, err := c.AcquireLease(ctx, seconds, nil); err != nil {
		return fmt.Errorf("acquire the app lease: %w", err)
	}
	if ours {
		return nil
	}
	desired := info.DesiredSwapID
	if desired != nil && *desired == a.id {
		desired = nil
	}
	return a.write(ctx, appLeaseInfo{OwnerID: &a.id, DesiredSwapID: desired})
}

func (a *AppManager) renew(ctx context.Context) error {
	c, err := a.client(a.id)
	if err != nil {
		return err
	}
	_, err = c.RenewLease(ctx, nil)
	return err
}

func (a *AppManager) client(id string) (*lease.ContainerClient, error) {
	return lease.NewContainerClient(a.worker.AppBlobs.Client, &lease.ContainerClientOptions{LeaseID: &id})
}

func (a *AppManager) info(ctx context.Context) (info appLeaseInfo, err error) {
	resp, err := a.worker.AppBlobs.Client.NewBlobClient(a.worker.Names.AppLeaseInfoBlob()).DownloadStream(ctx, nil)
	if err != nil {
		return info, fmt.Errorf("read the owner of the app lease: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(raw, &info); err != nil {
		return info, fmt.Errorf("blob %s/%s: %w", a.worker.Names.AppLeaseContainer(), a.worker.Names.AppLeaseInfoBlob(), err)
	}
	return info, nil
}

func (a *AppManager) write(ctx context.Context, info appLeaseInfo) error {
	raw, err := json.Marshal(info)
	if err != nil {
		return err
	}
	_, err = a.worker.AppBlobs.Client.NewBlockBlobClient(a.worker.Names.AppLeaseInfoBlob()).
		Upload(ctx, streaming.NopCloser(bytes.NewReader(raw)), &blockblob.UploadOptions{HTTPHeaders: store.BlobHeaders})
	if err != nil {
		return fmt.Errorf("write the owner of the app lease: %w", err)
	}
	return nil
}

// MakePrimary makes this app the primary app of the task hub
// (DurableTask.AzureStorage/Partitioning/AppLeaseManager.cs, ForceChangeAppLeaseAsync).
func (a *AppManager) MakePrimary(ctx context.Context) error {
	err := store.Retry(ctx, "make this app the primary app of the task hub", func(ctx context.Context) error {
		info, err := a.info(ctx)
		if err != nil {
			return err
		}
		info.DesiredSwapID = &a.id
		return a.write(ctx, info)
	})
	if err == nil {
		a.wake.Send()
	}
	return err
}
