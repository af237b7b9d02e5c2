package handler

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

// embeddedHub returns the configuration of an app with a hub in an existing file.
func embeddedHub(t *testing.T) Config {
	t.Helper()
	cfg := Config{Root: t.TempDir(), StorageType: Embedded}.WithDefaults()
	cfg.Storage.TaskHub = "Own"
	hub, err := embedded.Open(cfg.hubFile(), cfg.embeddedConfig())
	if err == nil {
		err = hub.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestHubCopy_RefusesToCopyAHubOntoItself(t *testing.T) {
	t.Parallel()
	cfg := embeddedHub(t)
	link := filepath.Join(cfg.Root, "link.db")
	if err := os.Symlink(cfg.hubFile(), link); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(cfg.hubFile(), filepath.Join(cfg.Root, "other.db.copying")); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]string{
		{"embedded", "embedded"},
		{"embedded", "embedded:" + cfg.hubFile()},
		{"embedded:" + link, "embedded"},
		{"embedded", "embedded:" + filepath.Join(cfg.Root, "other.db")}, // the temporary file of the copy
		{"azurestorage", "azurestorage:" + DefaultConnectionName},
	} {
		began := time.Now()
		_, err := hubCopy{cfg}.run(t.Context(), hubcli.CopyRequest{From: pair[0], To: pair[1], Wait: time.Hour, Progress: func(string) {}})
		if err == nil || !strings.Contains(err.Error(), "are the same task hub") {
			t.Errorf("copy %s %s: %v after %v, want an error about the same hub", pair[0], pair[1], err, time.Since(began))
		}
	}
}

func TestHubCopy_TaskHubNamesTheHubInAzureStorageOnly(t *testing.T) {
	t.Parallel()
	cfg := embeddedHub(t)
	target := filepath.Join(cfg.Root, "copy.db")
	totals, err := hubCopy{cfg}.run(t.Context(), hubcli.CopyRequest{
		From: "embedded", To: "embedded:" + target, TaskHub: "Other", Progress: func(string) {},
	})
	if err != nil || totals != (provider.Totals{}) {
		t.Errorf("copied %v, %v, want the hub of the configuration", totals, err)
	}
}

// refusing is a hub that cannot be read.
type refusing struct {
	provider.Portable
	err error
}

func (r refusing) Export(context.Context, provider.HubWriter, provider.ExportOptions) error {
	return r.err
}

// The copy opens the source with the partition count that the source has. It does not change the count
// of the target, nor a count of the source that is correct already.
func TestHubCopy_UsesThePartitionCountOfItsSource(t *testing.T) {
	t.Parallel()
	of := func(hub error) error {
		return fmt.Errorf("read the source: %w", copySource{refusing{err: hub}}.Export(t.Context(), nil, provider.ExportOptions{}))
	}
	wrong := &azurestorage.PartitionCountError{Configured: 4, Existing: 16}
	for _, tt := range []struct {
		name, from, to string
		err            error
		queues, logs   int // partition count of each type afterwards
		want           bool
	}{
		{"of queues", "azurestorage", "partitionlog", of(wrong), 16, 4, true},
		{"of logs", "partitionlog", "azurestorage", of(wrong), 4, 16, true},
		{"of logs, to a file", "partitionlog", "embedded", of(wrong), 4, 16, true},
		{"of the target", "azurestorage", "partitionlog", wrong, 4, 4, false},
		{"both of one kind", "partitionlog", "partitionlog:Other", of(wrong), 4, 4, false},
		{"none yet", "azurestorage", "partitionlog", of(&azurestorage.PartitionCountError{Configured: 4}), 4, 4, false},
		{"taken already", "partitionlog", "embedded", of(&azurestorage.PartitionCountError{Configured: 8, Existing: 4}), 4, 4, false},
		{"another error", "partitionlog", "embedded", of(errors.New("no")), 4, 4, false},
	} {
		c := hubCopy{Config{}.WithDefaults()}
		c.Storage.PartitionCount, c.PartitionLog.PartitionCount = 4, 4
		got := c.adoptSourceCount(tt.err, hubcli.CopyRequest{From: tt.from, To: tt.to})
		if got != tt.want || c.Storage.PartitionCount != tt.queues || c.PartitionLog.PartitionCount != tt.logs {
			t.Errorf("%s: %v, %d queues, %d logs; want %v, %d, %d", tt.name, got, c.Storage.PartitionCount, c.PartitionLog.PartitionCount, tt.want, tt.queues, tt.logs)
		}
	}
}

// If a worker starts during a copy to a storage account, a retry would only find that the target is not
// empty. An incomplete file is deleted, so that its copy can be retried.
func TestHubCopy_IsRetriedUnlessAnIncompleteHubRemains(t *testing.T) {
	t.Parallel()
	busy := fmt.Errorf("read the source: %w", provider.ErrHubBusy)
	some := provider.Totals{Instances: 1}
	for _, tt := range []struct {
		name, to string
		err      error
		copied   provider.Totals
		retry    bool
		advice   string
	}{
		{"before the copy", "azurestorage", busy, provider.Totals{}, true, ""},
		{"during the copy", "azurestorage", busy, some, false, "hub delete"},
		{"during the copy to logs", "partitionlog", busy, some, false, "hub delete"},
		{"during the copy to a file", "embedded:copy.db", busy, some, true, ""},
		{"another error", "azurestorage", errors.New("no"), some, false, "hub delete"},
		{"another error before the copy", "azurestorage", errors.New("no"), provider.Totals{}, false, ""},
		{"a target with data", "azurestorage", provider.ErrHubNotEmpty, provider.Totals{}, false, "another name"},
	} {
		c := hubCopy{Config{}.WithDefaults()}
		err := c.withAdvice(tt.err, tt.copied, tt.to)
		if !errors.Is(err, tt.err) || isBusy(err) != tt.retry || !strings.Contains(err.Error(), tt.advice) {
			t.Errorf("%s: %q, retried %v; want %v, retried %v, with the advice %q", tt.name, err, isBusy(err), tt.err, tt.retry, tt.advice)
		}
	}
	if err := (hubCopy{}).withAdvice(nil, some, "azurestorage"); err != nil {
		t.Errorf("the error of a complete copy is %v", err)
	}
}

func TestHubCopy_StopsWhileItCountsTheTarget(t *testing.T) {
	t.Parallel()
	cfg := embeddedHub(t)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := (hubCopy{cfg}).target(ctx, "embedded"); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want %v", err, context.Canceled)
	}
}
