package simulated_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// openForAccess has a function per kind of hub that opens one with worker w. The function returns
// the hub's Run and Close.
var openForAccess = map[string]func(azurestorage.Connection, *azsim.Worker, *slog.Logger) (func(context.Context) error, func() error, error){
	"queues": func(c azurestorage.Connection, w *azsim.Worker, log *slog.Logger) (func(context.Context) error, func() error, error) {
		h, err := azurestorage.Open(c, azurestorage.Config{TaskHub: "Sim", WorkerID: w.Name(), Transport: w, Logger: log})
		return h.Run, func() error { return nil }, err
	},
	"log": func(c azurestorage.Connection, w *azsim.Worker, log *slog.Logger) (func(context.Context) error, func() error, error) {
		h, err := partitionlog.Open(c, partitionlog.Config{TaskHub: "Sim", WorkerID: w.Name(), Transport: w, Logger: log})
		return h.Run, h.Close, err
	},
}

// A starting worker waits for its role assignment and logs that. It stops after any other
// rejection, and after a rejection that lasts too long.
func TestRun_WaitsForItsRoleAssignment(t *testing.T) {
	const missing = "AuthorizationPermissionMismatch"
	for kind, open := range openForAccess {
		for name, tt := range map[string]struct {
			code    string
			refuses time.Duration // how long the account refuses
			stops   string        // part of the error of a worker that stops
			stopsIn time.Duration
		}{
			"the role arrives late":    {missing, 9 * time.Minute, "", 0},
			"no role exists":           {missing, 24 * time.Hour, "Storage Queue Data Contributor", 12 * time.Minute},
			"shared keys are disabled": {"KeyBasedAuthenticationNotPermitted", time.Hour, "allowSharedKeyAccess", time.Second},
			"the firewall rejects":     {"AuthorizationFailure", time.Hour, "firewall", time.Second},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					account := azsim.New(azsim.Config{Forbid: func(azsim.Request) string {
						if time.Since(began) < tt.refuses {
							return tt.code
						}
						return ""
					}})
					defer account.End()
					c, err := azurestorage.ParseConnectionString(account.ConnectionString())
					if err != nil {
						t.Fatal(err)
					}
					log := &lockedBuffer{}
					run, shut, err := open(c, account.Worker("w"), slog.New(slog.NewTextHandler(log, nil)))
					if err != nil {
						t.Fatal(err)
					}
					ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
					defer cancel()
					err = run(ctx)
					took := time.Since(began)
					_ = shut() // the hub may never have been created
					switch {
					case tt.stops == "" && (err != nil || took < 20*time.Minute):
						t.Errorf("Run returned after %v with %v, want it to continue", took, err)
					case tt.stops != "" && (err == nil || !strings.Contains(err.Error(), tt.stops) || took > tt.stopsIn):
						t.Errorf("Run returned after %v with %v, want an error with %q within %v", took, err, tt.stops, tt.stopsIn)
					}
					if says := log.count("takes up to 10 minutes"); (says > 0) != (tt.code == missing) {
						t.Errorf("%d log lines about a pending role assignment", says)
					}
				})
			})
		}
	}
}
