package simulated_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// The hub is deleted while its worker runs, with or without the app lease. The worker creates the
// hub again, and the next start of the same client runs.
func TestTaskHub_DeletedDuringUseIsCreatedAgain(t *testing.T) {
	for _, tt := range []struct {
		manager  azurestorage.PartitionManager
		appLease bool
	}{
		{azurestorage.TablePartitions, false},
		{azurestorage.TablePartitions, true},
		{azurestorage.SafeBlobLeases, false},
		{azurestorage.SafeBlobLeases, true},
		{azurestorage.LegacyBlobLeases, false},
		{azurestorage.LegacyBlobLeases, true},
	} {
		t.Run(fmt.Sprintf("%v, app lease %v", tt.manager, tt.appLease), func(t *testing.T) {
			inFleet(t, azurestorage.Config{PartitionManager: tt.manager, AppLease: azurestorage.AppLease{Disabled: !tt.appLease}}, func(f *fleet) {
				t := f.T
				f.join("one", nil)
				hub, _ := f.hub("client", nil)
				client := durable.NewClient(hub, durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence)))
				start := func() error {
					_, err := client.StartByName(t.Context(), "HelloSequence", nil, durable.InstanceID("a"))
					return err
				}
				if err := start(); err != nil {
					t.Fatal(err)
				}
				f.awaitDone(client, "a")

				admin, _ := f.hub("admin", nil)
				if err := admin.Delete(t.Context(), true); err != nil {
					t.Fatal(err)
				}
				before := f.elapsed()
				for start() != nil {
					if f.elapsed() > before+time.Minute {
						t.Fatalf("no start succeeds: %v", start())
					}
					time.Sleep(time.Second)
				}
				f.awaitDone(client, "a")
			})
		})
	}
}

// blocked is a transport that rejects requests to a service.
type blocked struct {
	policy.Transporter

	service string
}

func (w *blocked) Do(r *http.Request) (*http.Response, error) {
	if w.service != "" && strings.Contains(r.URL.Host, w.service) {
		return nil, errors.New("the test blocks the service")
	}
	return w.Transporter.Do(r)
}

// If a service cannot delete its part of the hub, the other parts are deleted, and the error names
// the remaining resources.
func TestDelete_ContinuesAfterAnError(t *testing.T) {
	inFleet(t, azurestorage.Config{PartitionCount: 1}, func(f *fleet) {
		f.join("one", nil)
		time.Sleep(time.Minute)
		f.leave("one")
		way := new(blocked)
		hub, _ := f.hub("admin", func(c *azurestorage.Config) { way.Transporter, c.Transport = c.Transport, way })
		way.service = "table"
		err := hub.Delete(f.Context(), true)
		for _, table := range []string{"FleetInstances", "FleetHistory", "FleetPartitions"} {
			if err == nil || !strings.Contains(err.Error(), table) {
				f.Errorf("error %v, want one with %s", err, table)
			}
		}
		if left := fmt.Sprint(f.account.Queues(), containers(f.account)); left != "[] []" {
			f.Errorf("queues and containers are left: %s", left)
		}
		way.service = ""
		if err := hub.Delete(f.Context(), false); err != nil {
			f.Error(err)
		}
		if left := f.account.Tables(); len(left) > 0 {
			f.Errorf("tables are left: %v", left)
		}
	})
}

// Check fails if either the tables or the queues are unreachable.
func TestCheck_NeedsTablesAndQueues(t *testing.T) {
	inFleet(t, azurestorage.Config{AppLease: azurestorage.AppLease{Disabled: true}}, func(f *fleet) {
		way := new(blocked)
		hub, _ := f.hub("client", func(c *azurestorage.Config) { way.Transporter, c.Transport = c.Transport, way })
		for _, way.service = range []string{"", "table", "queue"} {
			ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
			if err := hub.Check(ctx); (err == nil) != (way.service == "") {
				f.Errorf("without the service %q, Check returned %v", way.service, err)
			}
			cancel()
		}
	})
}

// A worker without requests from clients also creates a deleted hub again.
func TestTaskHub_DeletedIsCreatedAgainByItsWorker(t *testing.T) {
	inFleet(t, azurestorage.Config{AppLease: azurestorage.AppLease{Disabled: true}}, func(f *fleet) {
		f.join("one", nil)
		time.Sleep(time.Minute)
		queues := len(f.account.Queues())
		admin, _ := f.hub("admin", nil)
		if err := admin.Delete(f.Context(), true); err != nil {
			f.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		if got := len(f.account.Queues()); got != queues {
			f.Errorf("%d queues, want %d as before", got, queues)
		}
		creations := 0
		for _, e := range f.account.Log() {
			if e.Operation == "CreateQueue" && strings.Contains(e.Path, "workitems") {
				creations++
			}
		}
		if creations != 2 {
			f.Errorf("the hub was created %d times, want 2", creations)
		}
	})
}

// The first request to a deleted hub fails with an error that names the missing resource.
func TestTaskHub_DeletedReturnsTheErrorOfTheService(t *testing.T) {
	inFleet(t, azurestorage.Config{AppLease: azurestorage.AppLease{Disabled: true}}, func(f *fleet) {
		hub, _ := f.hub("client", nil)
		client := durable.NewClient(hub, durable.NewRegistry(durable.Orchestrator("HelloSequence", helloSequence)))
		start := func(id durable.InstanceID) error {
			_, err := client.StartByName(f.Context(), "HelloSequence", nil, id)
			return err
		}
		if err := start("a"); err != nil {
			f.Fatal(err)
		}
		admin, _ := f.hub("admin", nil)
		if err := admin.Delete(f.Context(), true); err != nil {
			f.Fatal(err)
		}
		err := start("b")
		if e, ok := errors.AsType[*azcore.ResponseError](err); !ok || e.StatusCode != http.StatusNotFound {
			f.Errorf("the first start returned %v, want the error of the service", err)
		}
		if err := start("c"); err != nil {
			f.Errorf("the next start returned %v", err)
		}
	})
}

// A hub without an audit has no audit table. That does not mean that the hub was deleted.
func TestTaskHub_WithoutAnAuditIsNotMistakenForDeleted(t *testing.T) {
	log := &lockedBuffer{}
	cfg := azurestorage.Config{AppLease: azurestorage.AppLease{Disabled: true}, Logger: slog.New(slog.NewTextHandler(log, nil))}
	inFleet(t, cfg, func(f *fleet) {
		hub := f.join("one", nil)
		time.Sleep(time.Minute)
		if page, err := hub.Tracking(f.Context(), "a", provider.TrackingQuery{}); !errors.Is(err, provider.ErrNotSupported) {
			f.Errorf("the audit is %+v, %v; want ErrNotSupported", page, err)
		}
		if log.count("was deleted") > 0 {
			f.Error("the hub was mistaken for a deleted one")
		}
	})
}
