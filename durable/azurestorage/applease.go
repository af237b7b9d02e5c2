package azurestorage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/lease"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
)

// AppLease says how apps that share a hub take turns: only the workers of the
// app that holds the lease, the primary one, read the control queues. All
// workers of an app hold it together.
type AppLease struct {
	// Disabled has this worker read the queues whatever other apps do.
	Disabled bool
	// AppName tells apps apart. Default: the variable WEBSITE_SITE_NAME or
	// DTFX_APP_NAME, else empty, which all apps outside of Azure have in common.
	AppName string
	// Interval is how long the lease lasts without being renewed. Default 60 s;
	// 15 to 60 s, in whole seconds.
	Interval time.Duration
	// RenewInterval is how often it is renewed. Default 25 s; less than Interval.
	RenewInterval time.Duration
	// AcquireInterval is how often a secondary app tries to get it. Default 5
	// minutes.
	AcquireInterval time.Duration
}

// The defaults of [AppLease]
// (DurableTask.AzureStorage/Partitioning/AppLeaseOptions.cs).
const (
	DefaultAppLeaseInterval        = time.Minute
	DefaultAppLeaseRenewInterval   = 25 * time.Second
	DefaultAppLeaseAcquireInterval = 5 * time.Minute
)

func (a AppLease) withDefaults() AppLease {
	set(&a.Interval, DefaultAppLeaseInterval)
	set(&a.RenewInterval, DefaultAppLeaseRenewInterval)
	set(&a.AcquireInterval, DefaultAppLeaseAcquireInterval)
	for _, name := range []string{"WEBSITE_SITE_NAME", "DTFX_APP_NAME"} { // DurableTask.Core/Common/Utils.cs, AppName
		if a.AppName == "" {
			a.AppName = os.Getenv(name)
		}
	}
	return a
}

func (a AppLease) validate() error {
	switch {
	case a.Interval < 15*time.Second || a.Interval > time.Minute:
		return fmt.Errorf("AppLease.Interval is %v; want 15s to 1m0s", a.Interval)
	case a.RenewInterval <= 0 || a.RenewInterval >= a.Interval:
		return fmt.Errorf("AppLease.RenewInterval is %v; want less than Interval, which is %v", a.RenewInterval, a.Interval)
	case a.AcquireInterval <= 0 || a.AcquireInterval > 24*time.Hour:
		return fmt.Errorf("AppLease.AcquireInterval is %v; want more than 0 and at most 24h0m0s", a.AcquireInterval)
	}
	return nil
}

// appLeaseID returns the ID of the lease that an app has, the same in all its
// workers (DurableTask.AzureStorage/Partitioning/AppLeaseManager.cs).
func appLeaseID(app string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(app)) // never fails
	return fmt.Sprintf("%08x-0000-0000-0000-000000000000", h.Sum32())
}

// appLeaseInfo is the text of the blob that says who holds the app lease, and
// who is to get it.
type appLeaseInfo struct {
	OwnerID       *string `json:"OwnerId"`
	DesiredSwapID *string `json:"DesiredSwapId"`
}

// appLeaseManager is a partition manager that lets another work while this app
// is the primary one.
type appLeaseManager struct {
	hub  *TaskHub
	id   string
	wake store.Nudge // the lease is to be tried for now
}

func newAppLeaseManager(h *TaskHub) *appLeaseManager {
	return &appLeaseManager{hub: h, id: appLeaseID(h.cfg.AppLease.AppName), wake: store.NewNudge()}
}

// run implements partitionManager. When the app is no longer the primary one,
// the partitions are given up as at the end of a worker.
func (a *appLeaseManager) run(ctx, work context.Context) {
	for told := false; ctx.Err() == nil; {
		err := a.acquire(ctx)
		if err == nil {
			told = false
			a.hub.health.ok("app lease")
			a.hub.log.Info("this app is the hub's primary one", "app", a.hub.cfg.AppLease.AppName, "leaseId", a.id)
			a.lead(ctx, work)
			continue
		}
		wait := a.hub.cfg.AppLease.AcquireInterval
		switch {
		case ctx.Err() != nil:
			return
		case !store.IsConflict(err):
			a.hub.health.failed("app lease", err)
			wait = min(wait, store.MaxOutageDelay)
		case !told:
			told = true
			a.hub.log.Warn("another app is the hub's primary one: this one does not work on it", "app", a.hub.cfg.AppLease.AppName,
				"fix", "give both the same name, make this app the primary one, or turn the app lease off (useAppLease)")
		}
		a.wake.Pause(ctx, wait)
	}
}

// lead runs the partition manager while the lease can be renewed.
func (a *appLeaseManager) lead(ctx, work context.Context) {
	primary, resign := context.WithCancel(ctx)
	defer resign()
	done := make(chan struct{})
	a.hub.tasks.Go(func() {
		defer close(done)
		a.hub.manager().run(primary, work)
	})
	for until := time.Now().Add(a.hub.cfg.AppLease.Interval); store.Sleep(primary, a.hub.cfg.AppLease.RenewInterval); {
		began := time.Now()
		err := a.renew(primary)
		switch {
		case err == nil:
			until = began.Add(a.hub.cfg.AppLease.Interval)
			a.hub.health.ok("app lease")
			continue
		case primary.Err() != nil:
		case !store.IsConflict(err) && time.Now().Before(until):
			a.hub.health.failed("app lease", err)
			continue
		default:
			a.hub.log.Warn("this app is not the hub's primary one any more", "app", a.hub.cfg.AppLease.AppName, "reason", err)
		}
		break
	}
	resign()
	<-done
}

// acquire gets the lease, or has it changed to ours if the app was made the
// primary one. A conflict means that another app has it.
func (a *appLeaseManager) acquire(ctx context.Context) error {
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
			return fmt.Errorf("take the app lease over: %w", err)
		} // it has run out
	}
	c, err := a.client(a.id)
	if err != nil {
		return err
	}
	seconds := int32(a.hub.cfg.AppLease.Interval / time.Second)
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

func (a *appLeaseManager) renew(ctx context.Context) error {
	c, err := a.client(a.id)
	if err != nil {
		return err
	}
	_, err = c.RenewLease(ctx, nil)
	return err
}

func (a *appLeaseManager) client(id string) (*lease.ContainerClient, error) {
	return lease.NewContainerClient(a.hub.appLeases.Client, &lease.ContainerClientOptions{LeaseID: &id})
}

func (a *appLeaseManager) info(ctx context.Context) (info appLeaseInfo, err error) {
	resp, err := a.hub.appLeases.Client.NewBlobClient(a.hub.names.AppLeaseInfo()).DownloadStream(ctx, nil)
	if err != nil {
		return info, fmt.Errorf("read who has the app lease: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return info, err
	}
	if err := json.Unmarshal(raw, &info); err != nil {
		return info, fmt.Errorf("blob %s/%s: %w", a.hub.names.AppLease(), a.hub.names.AppLeaseInfo(), err)
	}
	return info, nil
}

func (a *appLeaseManager) write(ctx context.Context, info appLeaseInfo) error {
	raw, err := json.Marshal(info)
	if err != nil {
		return err
	}
	_, err = a.hub.appLeases.Client.NewBlockBlobClient(a.hub.names.AppLeaseInfo()).
		Upload(ctx, streaming.NopCloser(bytes.NewReader(raw)), &blockblob.UploadOptions{HTTPHeaders: store.Octets})
	if err != nil {
		return fmt.Errorf("say who has the app lease: %w", err)
	}
	return nil
}

// errNoAppLease says that a hub has no app lease to get.
var errNoAppLease = errors.New("the app lease is turned off (useAppLease)")

// MakePrimary has this app become the one whose workers work on the hub. The
// workers of the app that was so before find out when they renew the lease
// (DurableTask.AzureStorage/Partitioning/AppLeaseManager.cs,
// ForceChangeAppLeaseAsync).
func (h *TaskHub) MakePrimary(ctx context.Context) error {
	if h.cfg.AppLease.Disabled {
		return errNoAppLease
	}
	if err := h.ensureCreated(ctx); err != nil {
		return fmt.Errorf("make this app the hub's primary one: %w", err)
	}
	err := store.Retry(ctx, "make this app the hub's primary one", func(ctx context.Context) error {
		info, err := h.appLease.info(ctx)
		if err != nil {
			return err
		}
		info.DesiredSwapID = &h.appLease.id
		return h.appLease.write(ctx, info)
	})
	if err != nil {
		return err
	}
	h.appLease.wake.Give()
	return nil
}
