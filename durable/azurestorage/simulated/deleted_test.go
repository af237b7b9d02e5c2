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

// Somebody deletes the hub while its worker runs and has the app lease, if there is one.
// The worker makes it anew, and what a client that has used it before starts is run.
func TestTaskHub_ThatIsDeletedWhileItIsInUseIsMadeAnew(t *testing.T) {
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

// without lets no request through to a service.
type without struct {
	policy.Transporter

	service string
}

func (w *without) Do(r *http.Request) (*http.Response, error) {
	if w.service != "" && strings.Contains(r.URL.Host, w.service) {
		return nil, errors.New("the service is away")
	}
	return w.Transporter.Do(r)
}

// What a service does not delete keeps nothing else from being deleted, and is told.
func TestDelete_GoesOnPastWhatItCannotDelete(t *testing.T) {
	inFleet(t, azurestorage.Config{PartitionCount: 1}, func(f *fleet) {
		f.join("one", nil)
		time.Sleep(time.Minute)
		f.leave("one")
		way := new(without)
		hub, _ := f.hub("admin", func(c *azurestorage.Config) { way.Transporter, c.Transport = c.Transport, way })
		way.service = "table"
		err := hub.Delete(f.Context(), true)
		for _, table := range []string{"FleetInstances", "FleetHistory", "FleetPartitions"} {
			if err == nil || !strings.Contains(err.Error(), table) {
				f.Errorf("the error is %v, want one that names %s", err, table)
			}
		}
		if left := fmt.Sprint(f.account.Queues(), containers(f.account)); left != "[] []" {
			f.Errorf("left over: %s", left)
		}
		way.service = ""
		if err := hub.Delete(f.Context(), false); err != nil {
			f.Error(err)
		}
		if left := f.account.Tables(); len(left) > 0 {
			f.Errorf("tables left over: %v", left)
		}
	})
}

// Neither tables nor queues alone are a hub that takes work.
func TestCheck_AsksTablesAndQueues(t *testing.T) {
	inFleet(t, azurestorage.Config{AppLease: azurestorage.AppLease{Disabled: true}}, func(f *fleet) {
		way := new(without)
		hub, _ := f.hub("client", func(c *azurestorage.Config) { way.Transporter, c.Transport = c.Transport, way })
		for _, way.service = range []string{"", "table", "queue"} {
			ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
			if err := hub.Check(ctx); (err == nil) != (way.service == "") {
				f.Errorf("without the service %q the hub is %v", way.service, err)
			}
			cancel()
		}
	})
}

// A worker to which nobody speaks makes a deleted hub anew, too.
func TestTaskHub_ThatIsDeletedIsMadeAnewByItsWorker(t *testing.T) {
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
			f.Errorf("%d queues, want the %d that there were", got, queues)
		}
		creations := 0
		for _, e := range f.account.Log() {
			if e.Operation == "CreateQueue" && strings.Contains(e.Path, "workitems") {
				creations++
			}
		}
		if creations != 2 {
			f.Errorf("the hub was made %d times, want once at the start and once again", creations)
		}
	})
}

// A request to a hub that is deleted is refused by an error that names what is missing.
func TestTaskHub_ThatIsDeletedRefusesWithTheServicesError(t *testing.T) {
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
			f.Errorf("the first start returned %v, want the service's refusal", err)
		}
		if err := start("c"); err != nil {
			f.Errorf("the next start returned %v", err)
		}
	})
}

// A hub without an audit has no table for it, which is no sign that it was deleted.
func TestTaskHub_IsNotTakenForDeletedWhenItHasNoAudit(t *testing.T) {
	log := &lockedBuffer{}
	cfg := azurestorage.Config{AppLease: azurestorage.AppLease{Disabled: true}, Logger: slog.New(slog.NewTextHandler(log, nil))}
	inFleet(t, cfg, func(f *fleet) {
		hub := f.join("one", nil)
		time.Sleep(time.Minute)
		if page, err := hub.Tracking(f.Context(), "a", provider.TrackingQuery{}); !errors.Is(err, provider.ErrNotSupported) {
			f.Errorf("the audit is %+v, %v", page, err)
		}
		if log.count("was deleted") > 0 {
			f.Error("the hub was taken for a deleted one")
		}
	})
}
