//go:build unix

package soak_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/uuid"
)

// store is a hub of one kind, with everything that a soak needs to know about it.
type store struct {
	kind       string
	promise    promise
	lease      time.Duration // the work of a dead process waits this long
	hub        string
	connection string             // of the account, empty for a file
	proxy      *azuritetest.Proxy // nil for a file
	dir        string             // of the app
	env        []string           // of workers
	outside    *direct            // nil if only workers reach the hub
	close      func()             // closes the hub of outside
}

var quiet = slog.New(slog.DiscardHandler)

// kinds are the stores.
var kinds = []string{"file", "azure", "log"}

// newStore makes a hub and the settings of the app, in a new folder. The folder stays if the test
// fails.
func newStore(t *testing.T, kind string) *store {
	t.Helper()
	dir, err := os.MkdirTemp("", "soak-"+kind+"-") //nolint:usetesting // the folder stays if the test fails
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() {
			os.RemoveAll(dir)
		}
	})
	s := &store{kind: kind, dir: dir, hub: "Soak" + strings.ReplaceAll(uuid.NewString(), "-", "")[:12], close: func() {}}
	storage := map[string]any{}
	switch kind {
	case "file":
		s.promise, s.lease = promise{exact: true, ordered: true}, time.Second
		storage["type"], storage["path"] = "embedded", s.file()
	case "azure":
		s.lease = azureLease
		storage["type"], storage["maxQueuePollingInterval"] = "AzureStorage", "00:00:01"
	case "log":
		s.promise, s.lease = promise{exact: true}, logLease
		storage["type"] = "partitionLog"
	}
	if kind != "file" {
		s.reach(t)
	}
	host := map[string]any{"version": "2.0", "extensions": map[string]any{"durableTask": map[string]any{"hubName": s.hub, "storageProvider": storage}}}
	text, err := json.Marshal(host)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "host.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *store) file() string { return filepath.Join(s.dir, "hub.db") }

// reach puts a proxy between the account and all processes, and opens the hub of outside clients.
func (s *store) reach(t *testing.T) {
	t.Helper()
	s.connection, s.proxy = azuritetest.Start(t), azuritetest.NewProxy()
	t.Cleanup(s.proxy.Stop)
	through, err := s.proxy.Storage(s.connection)
	if err != nil {
		t.Fatal(err)
	}
	s.env = []string{"AzureWebJobsStorage=" + through}
	hub, closeHub, err := s.open(through)
	if err != nil {
		t.Fatal(err)
	}
	s.outside = &direct{durable.NewClient(hub, durable.NewRegistry(functions...))}
	s.close = func() { _ = closeHub() } // the hub may be deleted
}

// open opens the hub.
func (s *store) open(connection string) (hub provider.Provider, closeHub func() error, err error) {
	if s.kind == "file" {
		h, err := embedded.Open(s.file(), embedded.Config{Logger: quiet})
		if err != nil {
			return nil, nil, err
		}
		return h, h.Close, nil
	}
	c, err := azurestorage.ParseConnectionString(connection)
	if err != nil {
		return nil, nil, err
	}
	if s.kind == "log" {
		h, err := partitionlog.Open(c, s.logConfig())
		if err != nil {
			return nil, nil, err
		}
		return h, h.Close, nil
	}
	h, err := azurestorage.Open(c, azurestorage.Config{TaskHub: s.hub, Logger: quiet})
	return h, func() error { return nil }, err
}

func (s *store) logConfig() partitionlog.Config {
	return partitionlog.Config{TaskHub: s.hub, LeaseInterval: logLease, Logger: quiet}
}

// remains returns what the hub still has although all instances and entities are gone. While
// workers run it looks at the storage only. It allows the given number of messages. It also allows blobs
// with the start of an instance that was never seen. Its client got no answer. The process that has sent it
// deletes the blob after an hour, unless it is killed.
func (s *store) remains(ctx context.Context, held int, neverSeen func(id string) bool) (left []string, err error) {
	if s.kind != "azure" {
		return nil, nil
	}
	n, err := s.messages(ctx)
	if err != nil {
		return nil, err
	}
	if n > held {
		left = append(left, fmt.Sprint(n, " messages"))
	}
	tables, err := aztables.NewServiceClientFromConnectionString(s.connection, nil)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"Instances", "History"} {
		for pages := tables.NewClient(s.hub + name).NewListEntitiesPager(nil); pages.More(); {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, row := range page.Entities {
				left = append(left, name+" row "+string(row[:min(300, len(row))]))
			}
		}
	}
	blobs, err := azblob.NewClientFromConnectionString(s.connection, nil)
	if err != nil {
		return nil, err
	}
	for pages := blobs.NewListBlobsFlatPager(strings.ToLower(s.hub)+"-largemessages", nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		if bloberror.HasCode(err, bloberror.ContainerNotFound) {
			break // the first large message creates it
		}
		if err != nil {
			return nil, err
		}
		for _, b := range page.Segment.BlobItems {
			id, file, _ := strings.Cut(*b.Name, "/")
			if isStart := strings.HasPrefix(file, "message-") && strings.Contains(file, "-ExecutionStarted."); !isStart || !neverSeen(id) {
				left = append(left, "blob "+*b.Name)
			}
		}
	}
	return left, nil
}

// messages returns the number of messages in the queues of the hub, hidden ones included.
func (s *store) messages(ctx context.Context) (n int, err error) {
	if s.kind != "azure" {
		return 0, nil
	}
	service, err := azqueue.NewServiceClientFromConnectionString(s.connection, nil)
	if err != nil {
		return 0, err
	}
	prefix := strings.ToLower(s.hub) + "-"
	for pages := service.NewListQueuesPager(&azqueue.ListQueuesOptions{Prefix: &prefix}); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return 0, err
		}
		for _, q := range page.Queues {
			properties, err := service.NewQueueClient(*q.Name).GetProperties(ctx, nil)
			if err != nil {
				return 0, err
			}
			n += int(*properties.ApproximateMessagesCount)
		}
	}
	return n, nil
}

// autopsy returns what a clean hub still has after all workers have stopped.
func (s *store) autopsy(ctx context.Context) (left []string, err error) {
	s.close()
	hub, closeHub, err := s.open(s.connection)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeHub()) }()
	switch h := hub.(type) {
	case *azurestorage.TaskHub:
		return s.owned(ctx)
	case *partitionlog.Hub:
		return s.logAutopsy(ctx, h)
	case *embedded.Hub:
		return empty(h.Totals(ctx))
	}
	return nil, fmt.Errorf("a hub of type %T", hub)
}

// empty returns a hub's totals if they are not zero.
func empty(totals provider.Totals, err error) ([]string, error) {
	if err != nil || totals == (provider.Totals{}) {
		return nil, err
	}
	return []string{totals.String()}, nil
}

// owned returns the partitions that still have an owner.
func (s *store) owned(ctx context.Context) (left []string, err error) {
	tables, err := aztables.NewServiceClientFromConnectionString(s.connection, nil)
	if err != nil {
		return nil, err
	}
	for pages := tables.NewClient(s.hub + "Partitions").NewListEntitiesPager(nil); pages.More(); {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, row := range page.Entities {
			var p struct{ RowKey, CurrentOwner string }
			if err := json.Unmarshal(row, &p); err != nil {
				return nil, err
			}
			if p.CurrentOwner != "" {
				left = append(left, fmt.Sprintf("partition %s is owned by %s", p.RowKey, p.CurrentOwner))
			}
		}
	}
	return left, nil
}

// logAutopsy compacts an empty hub. Each partition may keep a log, a mailbox and a base file.
func (s *store) logAutopsy(ctx context.Context, h *partitionlog.Hub) (left []string, err error) {
	if left, err = empty(h.Totals(ctx)); err != nil {
		return left, err
	}
	if _, _, err := h.Compact(ctx); err != nil { // fails if a lease is left
		return left, err
	}
	c, err := azurestorage.ParseConnectionString(s.connection)
	if err != nil {
		return left, err
	}
	report, err := partitionlog.Repair(ctx, c, s.logConfig(), false)
	if err != nil {
		return left, err
	}
	for _, p := range report.Problems {
		left = append(left, p.What)
	}
	for _, p := range report.Partitions {
		if p.Log.Blobs > 2 || p.Mailbox.Blobs > 2 || p.Base.Blobs > 2 {
			left = append(left, fmt.Sprintf("blobs after a compaction: %+v", p))
		}
	}
	return left, nil
}
