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

// leaseVariable names the environment variable that sets the lease duration of partitions, which can be
// shorter than the settings allow. The partitions of a killed process then become free sooner.
const leaseVariable = "E2E_LEASE"

// serve is handler.Main with the given lease duration.
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
