package handler

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// hubCommand runs a command of the hub tool.
func hubCommand(app App, args []string, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	terminal := isTerminal(out)
	tool := &hubTool{app: App{Functions: app.Functions}, logger: slog.New(slog.DiscardHandler)}
	if len(args) > 0 && args[0] == "console" { // others return their errors
		tool.logger = NewLogger(errs, slog.LevelError)
	}
	return hubcli.Program{
		Name: filepath.Base(os.Args[0]) + " hub", Version: programVersion(debug.ReadBuildInfo()), Stdin: os.Stdin, Stdout: out, Stderr: errs,
		Terminal: terminal, Colors: terminal && os.Getenv("NO_COLOR") == "",
		Open: tool.open, Delete: tool.delete, Compact: tool.compact, Repair: tool.repair, Copy: tool.copy, Backup: tool.backup, Crashes: tool.crashes,
		Verify: tool.verifier(), Console: tool.console,
	}.Run(ctx, args)
}

// isTerminal reports whether a person reads what is written.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// A hubTool works on the hub that the configuration names, without serving it.
type hubTool struct {
	app    App
	logger *slog.Logger
}

// config returns the app's configuration.
func (t *hubTool) config() (Config, error) {
	cfg, err := Load()
	if err == nil {
		err = cfg.Problem
	}
	if err != nil {
		return cfg, fmt.Errorf("the app's configuration is wrong: %w", err)
	}
	cfg.Logger, cfg.Storage.Logger, cfg.Worker.Logger = t.logger, t.logger, t.logger
	return cfg, nil
}

// open returns the management API of the hub: that of the app which has the
// hub's file, or one in this process.
func (t *hubTool) open(context.Context) (*hubcli.Target, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	s, err := t.server(cfg, "") // only this command calls it
	if held, ok := errors.AsType[*embedded.HeldError](err); ok {
		return askHolder(held, cfg.Key)
	}
	if err != nil {
		return nil, err
	}
	return &hubcli.Target{
		Client: &http.Client{Transport: inProcess{s}}, Base: "http://localhost" + web.WebhookPath, Close: s.hub.Close,
	}, nil
}

// server returns a server of the hub, with a key, that does not work on it. If an app has the
// hub's file, the error is an [*embedded.HeldError].
func (t *hubTool) server(cfg Config, key string) (*Server, error) {
	cfg.Address, cfg.Key, cfg.ReadKey = "", key, ""
	s := New(t.app, cfg)
	if s.cfg.Problem != nil {
		return nil, s.cfg.Problem
	}
	if s.hub.File != nil {
		if err := s.hub.File.Open(); err != nil {
			return nil, &hubcli.UnavailableError{Err: err}
		}
	}
	s.state.Ready()
	return s, nil
}

// console serves the hub's console on this machine until ctx ends. It shows the address,
// which has the key: others on the machine do not know it. The app that has the hub's file
// serves one itself.
func (t *hubTool) console(ctx context.Context, show func(address string) error) error {
	cfg, err := t.config()
	if err != nil {
		return err
	}
	key := rand.Text()
	s, err := t.server(cfg, key)
	if held, ok := errors.AsType[*embedded.HeldError](err); ok && held.Contact != "" {
		return show(held.Contact + web.ConsolePath)
	}
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, s.hub.Close())
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: web.MaxHeader}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // requests in flight end with it
	if err = show("http://" + listener.Addr().String() + s.console.Path() + "/login?code=" + key); err == nil {
		err = server.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, server.Close(), s.hub.Close())
}

// askHolder returns the management API of the app that has the hub's file.
func askHolder(held *embedded.HeldError, key string) (*hubcli.Target, error) {
	if held.Contact == "" {
		return nil, &hubcli.UnavailableError{Err: fmt.Errorf("%w, and that does not say where its management API is", held)}
	}
	return &hubcli.Target{Client: &http.Client{Transport: &viaHolder{held}}, Base: held.Contact, Key: key}, nil
}

// viaHolder makes requests to the app that has a file.
type viaHolder struct{ held *embedded.HeldError }

// RoundTrip implements [http.RoundTripper].
func (v *viaHolder) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("%w; its management API at %s does not answer: %w", v.held, v.held.Contact, err)
	}
	return resp, nil
}

// inProcess makes requests to a server without a network.
type inProcess struct{ s *Server }

// RoundTrip implements [http.RoundTripper].
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	p.s.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// delete deletes the hub.
func (t *hubTool) delete(ctx context.Context, r hubcli.DeleteRequest) (string, error) {
	cfg, err := t.config()
	if err != nil {
		return "", err
	}
	if cfg.StorageType == Embedded {
		path := cfg.hubFile()
		return path, fileError(embedded.Delete(path))
	}
	hub, err := openDeleter(cfg)
	if err != nil {
		return "", err
	}
	workers := "running workers create it again, empty"
	if cfg.StorageType == PartitionLog {
		workers = "running workers stop with an error until the app is restarted"
	}
	return cfg.hubInAccount(), deleteHub(ctx, hub, workers, r)
}

// compact compacts the hub.
func (t *hubTool) compact(ctx context.Context) (hubcli.Compacted, error) {
	cfg, err := t.config()
	if err != nil {
		return hubcli.Compacted{}, err
	}
	return compactHub(ctx, cfg)
}

func compactHub(ctx context.Context, cfg Config) (hubcli.Compacted, error) {
	switch cfg.StorageType {
	case PartitionLog:
		return compactLogs(ctx, cfg)
	case AzureStorage:
		return hubcli.Compacted{}, errors.New("the task hub is in queues and tables; only a hub in a local file or in partition logs is compacted")
	case Embedded:
	}
	path := cfg.hubFile()
	before, after, err := embedded.Compact(path, embedded.Config{Logger: cfg.Logger})
	return hubcli.Compacted{Path: path, Before: before, After: after}, fileError(err)
}

// compactLogs compacts a hub in partition logs.
func compactLogs(ctx context.Context, cfg Config) (done hubcli.Compacted, err error) {
	hub, err := partitionlog.Open(cfg.Connection, cfg.partitionLogConfig())
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, hub.Close()) }()
	done.Path = cfg.hubInAccount()
	done.Before, done.After, err = hub.Compact(ctx)
	return done, busyError(err)
}

// repair looks for damage of the hub, and with apply repairs what it can.
func (t *hubTool) repair(ctx context.Context, apply bool) (hubcli.Repaired, error) {
	cfg, err := t.config()
	if err != nil {
		return hubcli.Repaired{}, err
	}
	return repairHub(ctx, cfg, apply)
}

func repairHub(ctx context.Context, cfg Config, apply bool) (done hubcli.Repaired, err error) {
	if cfg.StorageType != PartitionLog {
		return done, errors.New("only a task hub in partition logs is repaired")
	}
	report, err := partitionlog.Repair(ctx, cfg.Connection, cfg.partitionLogConfig(), apply)
	if report == nil {
		return done, busyError(err)
	}
	done = hubcli.Repaired{Hub: cfg.hubInAccount(), Report: report, Blobs: [][]string{{"PARTITION", "LOG", "MAILBOX", "BASE"}}}
	for _, p := range report.Partitions {
		row := []string{strconv.Itoa(p.Partition)}
		for _, c := range []partitionlog.BlobCount{p.Log, p.Mailbox, p.Base} {
			row = append(row, fmt.Sprintf("%d blobs, %.1f MB", c.Blobs, float64(c.Bytes)/1e6))
		}
		done.Blobs = append(done.Blobs, row)
	}
	for _, p := range report.Problems {
		done.Problems = append(done.Problems, hubcli.RepairProblem{What: p.What, Lost: p.Lost, Repair: p.Repair, Repaired: p.Repaired})
	}
	return done, busyError(err)
}

// busyError adds what to do to the error of a hub that a worker has.
func busyError(err error) error {
	if errors.Is(err, provider.ErrHubBusy) {
		return &hubcli.UnavailableError{Err: fmt.Errorf("%w; stop the workers first", err)}
	}
	return err
}

// fileError returns the error for what was to be done with the file of a hub and ended with err.
func fileError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no task hub: %w", err)
	}
	if held, ok := errors.AsType[*embedded.HeldError](err); ok {
		return &hubcli.UnavailableError{Err: fmt.Errorf("%w; stop that process first", held)}
	}
	return err
}

// A deleter is a hub that can be deleted.
type deleter interface {
	Delete(ctx context.Context, force bool) error
}

// openDeleter returns the hub in the storage account.
func openDeleter(cfg Config) (deleter, error) {
	if cfg.StorageType == PartitionLog {
		return partitionlog.Open(cfg.Connection, cfg.partitionLogConfig())
	}
	return azurestorage.Open(cfg.Connection, cfg.Storage)
}

// deleteHub deletes a hub, or with force one that a worker has. workers says what running
// workers do then.
func deleteHub(ctx context.Context, hub deleter, workers string, r hubcli.DeleteRequest) error {
	err := hub.Delete(ctx, false)
	switch {
	case !errors.Is(err, provider.ErrHubBusy):
		return err
	case !r.Force:
		err = fmt.Errorf("%w; stop the workers first. With --force it is deleted all the same, and %s", err, workers)
		return &hubcli.UnavailableError{Err: err}
	}
	r.Warn(err.Error() + "; " + workers + ". If the hub exists again later, stop the workers, and delete it once more.")
	return hub.Delete(ctx, true)
}

// crashes returns the functions that crashed the app on this machine. With forget it
// removes the record.
func (t *hubTool) crashes(forget bool) ([]durable.Crash, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	all, err := durable.Crashes(cfg.crashFile())
	if err == nil && forget && len(all) > 0 {
		err = os.Remove(cfg.crashFile())
	}
	return all, err
}

// verifier returns what replays a history with the app's orchestrators.
func (t *hubTool) verifier() func(text []byte) error {
	registry := sync.OnceValue(func() *durable.Registry { return durable.NewRegistry(t.app.Functions...) })
	return func(text []byte) error {
		events, err := durable.UnmarshalHistory(text)
		if err != nil {
			return err
		}
		return registry().Verify(events)
	}
}

// copy copies a hub.
func (t *hubTool) copy(ctx context.Context, r hubcli.CopyRequest) (fmt.Stringer, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	return hubCopy{cfg}.run(ctx, r)
}

// backup writes a backup of a hub that is not in a local file.
func (t *hubTool) backup(ctx context.Context, r hubcli.CopyRequest) (hubcli.BackedUp, error) {
	cfg, err := t.config()
	if err != nil {
		return hubcli.BackedUp{}, err
	}
	return hubCopy{cfg}.backup(ctx, r)
}
