package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/durablefunctions-go/durablefunctions/handler"
)

// leaseVariable names the environment variable that makes partitions' leases
// shorter than settings can, so that what a killed process had is free sooner.
const leaseVariable = "E2E_LEASE"

// serve is handler.Main with leases of the given length.
func serve(app handler.App, lease string) error {
	cfg, err := handler.Load()
	if err != nil {
		return err
	}
	if cfg.Storage.LeaseInterval, err = time.ParseDuration(lease); err != nil {
		return fmt.Errorf("%s: %w", leaseVariable, err)
	}
	cfg.Storage.LeaseAcquireInterval = cfg.Storage.LeaseInterval / 4
	cfg.Logger = handler.NewLogger(os.Stdout, cfg.LogLevel)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return handler.New(app, cfg).Run(ctx)
}
