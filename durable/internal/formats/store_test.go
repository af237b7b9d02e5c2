package formats_test

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A hub is an open task hub.
type hub struct {
	provider.Provider
	close func() error
}

// A store keeps one task hub.
type store interface {
	// open opens the hub in the name of a process.
	open(t *testing.T, process string) hub
	// save returns the stored bytes. The hub may be open.
	save(t *testing.T) json.RawMessage
	// load replaces the stored bytes.
	load(t *testing.T, saved json.RawMessage)
	// end waits until the store does no more work.
	end()
}

// stores are constructors of empty stores, by name.
var stores = map[string]func(t *testing.T) store{
	"embedded":     func(t *testing.T) store { return &fileStore{filepath.Join(t.TempDir(), "hub.db")} },
	"azurestorage": func(*testing.T) store { return &accountStore{account: azsim.New(accountConfig), opener: openQueues} },
	"partitionlog": func(*testing.T) store { return &accountStore{account: azsim.New(accountConfig), opener: openLogs} },
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// fileStore is a local file with its journal.
type fileStore struct{ path string }

func (s *fileStore) open(t *testing.T, _ string) hub {
	t.Helper()
	h, err := embedded.Open(s.path, embedded.Config{Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	return hub{h, h.Close}
}

// fileSuffixes are the suffixes of a hub's files.
var fileSuffixes = []string{"", ".journal-0", ".journal-1"}

func (s *fileStore) save(t *testing.T) json.RawMessage {
	t.Helper()
	files := map[string][]byte{}
	for _, suffix := range fileSuffixes {
		content, err := os.ReadFile(s.path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		files[suffix] = content
	}
	saved, err := json.Marshal(files)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func (s *fileStore) load(t *testing.T, saved json.RawMessage) {
	t.Helper()
	files := map[string][]byte{}
	if err := json.Unmarshal(saved, &files); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range fileSuffixes {
		if err := os.WriteFile(s.path+suffix, files[suffix], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (*fileStore) end() {}

// accountStore is a simulated storage account.
type accountStore struct {
	account *azsim.Account
	opener  func(c azurestorage.Connection, w *azsim.Worker) (hub, error)
}

var accountConfig = azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond}

func (s *accountStore) open(t *testing.T, process string) hub {
	t.Helper()
	c, err := azurestorage.ParseConnectionString(s.account.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.opener(c, s.account.Worker(process))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func openQueues(c azurestorage.Connection, w *azsim.Worker) (hub, error) {
	h, err := azurestorage.Open(c, azurestorage.Config{TaskHub: "Shop", PartitionCount: 2, WorkerID: w.Name(), Transport: w, Logger: quiet()})
	return hub{h, func() error { return nil }}, err
}

func openLogs(c azurestorage.Connection, w *azsim.Worker) (hub, error) {
	h, err := partitionlog.Open(c, partitionlog.Config{TaskHub: "Shop", PartitionCount: 2, WorkerID: w.Name(), Transport: w, Logger: quiet()})
	return hub{h, h.Close}, err
}

func (s *accountStore) save(t *testing.T) json.RawMessage {
	t.Helper()
	saved, err := azsim.Save(s.account)
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

func (s *accountStore) load(t *testing.T, saved json.RawMessage) {
	t.Helper()
	account, err := azsim.Load(accountConfig, saved)
	if err != nil {
		t.Fatal(err)
	}
	s.account = account
}

func (s *accountStore) end() { s.account.Wait() }
