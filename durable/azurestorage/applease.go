package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
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
	if err := h.resources.ensureCreated(ctx); err != nil {
		return fmt.Errorf("make this app the hub's primary one: %w", err)
	}
	return h.appLease.MakePrimary(ctx)
}
