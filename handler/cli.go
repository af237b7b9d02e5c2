package handler

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
	"github.com/durablefunctions-go/durablefunctions/handler/internal/web"
)

// hubCommand runs `app hub` with args and returns the exit code. The first signal cancels the context of the command. A
// second one ends the process at once.
func hubCommand(app App, args []string, out, errs io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	terminal := isTerminal(out)
	tool := &hubTool{app: App{Registrations: app.Registrations}, logger: slog.New(slog.DiscardHandler)}
	if len(args) > 0 && args[0] == "console" { // the other verbs return their errors
		tool.logger = NewLogger(errs, slog.LevelError)
	}
	return hubcli.Program{
		Name: filepath.Base(os.Args[0]) + " hub", Version: programVersion(debug.ReadBuildInfo()), Stdin: os.Stdin, Stdout: out, Stderr: errs,
		Terminal: terminal, Colors: terminal && os.Getenv("NO_COLOR") == "",
		Open: tool.open, Delete: tool.delete, Compact: tool.compact, Repair: tool.repair, Copy: tool.copy, Backup: tool.backup, Crashes: tool.crashes,
		Verify: tool.verifier(), Console: tool.console,
	}.Run(ctx, args)
}

// isTerminal reports whether out is a terminal.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// A hubTool implements the operations of `app hub` on the task hub in the app's configuration. It runs
// no functions.
type hubTool struct {
	app    App
	logger *slog.Logger
}

// config loads the app's configuration.
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

// open returns the management API of the hub: a server in this process or, if a running app holds the
// hub's local file, that app's API.
func (t *hubTool) open(context.Context) (*hubcli.Target, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	s, err := t.server(cfg, "") // only this process can call it, so it needs no key
	if held, ok := errors.AsType[*embedded.HeldError](err); ok {
		return targetOfHolder(held, cfg.Key)
	}
	if err != nil {
		return nil, err
	}
	return &hubcli.Target{
		Client: &http.Client{Transport: inProcess{s}}, Base: "http://localhost" + web.WebhookPath, Close: s.hub.Close,
	}, nil
}

// server returns a server for the hub that runs no functions. Key is its key; empty means that it needs
// none. If another process holds the hub's file, the error is an [*embedded.HeldError].
func (t *hubTool) server(cfg Config, key string) (*Server, error) {
	cfg.Address, cfg.Key, cfg.ReadKey = "", key, ""
	s := New(t.app, cfg)
	if s.cfg.Problem != nil {
		return nil, s.cfg.Problem
	}
	if s.hub.File != nil {
		err := s.hub.File.OpenNow()
		if held, ok := errors.AsType[*embedded.HeldError](err); ok && !isReachable(held.Contact) {
			err = s.hub.File.Open() // the holder is another command or an app that starts or stops
		}
		if err != nil {
			return nil, &hubcli.UnavailableError{Err: err}
		}
	}
	s.state.SetReady()
	return s, nil
}

// isReachable reports whether a process listens at the address of a URL. It is false for an empty URL.
func isReachable(contact string) bool {
	u, err := url.Parse(contact)
	if err != nil || u.Host == "" {
		return false
	}
	conn, err := net.DialTimeout("tcp", u.Host, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// console serves the web console on a loopback port until ctx ends. It passes the address to show. The
// address contains a random key, so that other users of the machine cannot use the console. If a
// running app holds the hub's file, console shows the address of that app's console and returns.
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
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // closes running requests, too
	if err = show("http://" + listener.Addr().String() + s.console.Path() + "/login?code=" + key); err == nil {
		err = server.Serve(listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return errors.Join(err, server.Close(), s.hub.Close())
}

// targetOfHolder returns the management API of the app that holds the hub's file.
func targetOfHolder(held *embedded.HeldError, key string) (*hubcli.Target, error) {
	if held.Contact == "" {
		return nil, &hubcli.UnavailableError{Err: fmt.Errorf("%w; it has not published a management URL", held)}
	}
	return &hubcli.Target{Client: &http.Client{Transport: &viaHolder{held: held}}, Base: held.Contact, Key: key}, nil
}

// viaHolder sends requests to the app that holds the hub's file. It uses no proxy, because the app runs on
// this machine and the requests contain the key.
type viaHolder struct {
	held   *embedded.HeldError
	direct http.Transport // the zero value has no proxy
}

// RoundTrip implements [http.RoundTripper].
func (v *viaHolder) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := v.direct.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("%w; its management API at %s does not answer: %w", v.held, v.held.Contact, err)
	}
	return resp, nil
}

// inProcess passes requests to a server without a network connection.
type inProcess struct{ s *Server }

// RoundTrip implements [http.RoundTripper].
func (p inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := &answer{header: http.Header{}, status: http.StatusOK}
	p.s.ServeHTTP(w, r)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// An answer is the [http.ResponseWriter] of an inProcess request. It keeps the answer in memory.
type answer struct {
	header http.Header
	status int
	sent   bool // the status was set
	body   bytes.Buffer
}

var _ http.Flusher = (*answer)(nil)

// Header implements [http.ResponseWriter].
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements [http.ResponseWriter].
func (a *answer) WriteHeader(status int) {
	if !a.sent {
		a.status, a.sent = status, true
	}
}

// Write implements [http.ResponseWriter].
func (a *answer) Write(b []byte) (int, error) {
	a.sent = true
	return a.body.Write(b)
}

// Flush implements [http.Flusher]. The caller reads the answer when it is complete.
func (*answer) Flush() {}

// delete deletes the hub and returns its name.
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

// compact compacts the hub, in a local file or in partition logs.
func (t *hubTool) compact(ctx context.Context) (hubcli.CompactResult, error) {
	cfg, err := t.config()
	if err != nil {
		return hubcli.CompactResult{}, err
	}
	return compactHub(ctx, cfg)
}

func compactHub(ctx context.Context, cfg Config) (hubcli.CompactResult, error) {
	switch cfg.StorageType {
	case PartitionLog:
		return compactLogs(ctx, cfg)
	case AzureStorage:
		return hubcli.CompactResult{}, errors.New("the task hub is in queues and tables; only a hub in a local file or in partition logs can be compacted")
	case Embedded:
	}
	path := cfg.hubFile()
	before, after, err := embedded.Compact(path, embedded.Config{Logger: cfg.Logger})
	return hubcli.CompactResult{Path: path, Before: before, After: after}, fileError(err)
}

// compactLogs compacts a hub in partition logs.
func compactLogs(ctx context.Context, cfg Config) (done hubcli.CompactResult, err error) {
	hub, err := partitionlog.Open(cfg.Connection, cfg.partitionLogConfig())
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, hub.Close()) }()
	done.Path = cfg.hubInAccount()
	done.Before, done.After, err = hub.Compact(ctx)
	return done, busyError(err)
}

// repair finds damage of a hub in partition logs and, with apply, repairs what it can.
func (t *hubTool) repair(ctx context.Context, apply bool) (hubcli.RepairResult, error) {
	cfg, err := t.config()
	if err != nil {
		return hubcli.RepairResult{}, err
	}
	return repairHub(ctx, cfg, apply)
}

func repairHub(ctx context.Context, cfg Config, apply bool) (done hubcli.RepairResult, err error) {
	if cfg.StorageType != PartitionLog {
		return done, errors.New("only a task hub in partition logs can be repaired")
	}
	report, err := partitionlog.Repair(ctx, cfg.Connection, cfg.partitionLogConfig(), apply)
	if report == nil {
		return done, busyError(err)
	}
	done = hubcli.RepairResult{Hub: cfg.hubInAccount(), Report: report, Blobs: [][]string{{"PARTITION", "LOG", "MAILBOX", "BASE"}}}
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

// busyError adds advice to an error that wraps [provider.ErrHubBusy].
func busyError(err error) error {
	if errors.Is(err, provider.ErrHubBusy) {
		return &hubcli.UnavailableError{Err: fmt.Errorf("%w; stop the workers first", err)}
	}
	return err
}

// fileError adds advice to err, an error of an operation on a hub's local file.
func fileError(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no task hub: %w", err)
	}
	if held, ok := errors.AsType[*embedded.HeldError](err); ok {
		return &hubcli.UnavailableError{Err: fmt.Errorf("%w; stop that process first", held)}
	}
	return err
}

// A deleter is a task hub that can be deleted.
type deleter interface {
	Delete(ctx context.Context, force bool) error
}

// openDeleter opens the hub in the storage account.
func openDeleter(cfg Config) (deleter, error) {
	if cfg.StorageType == PartitionLog {
		return partitionlog.Open(cfg.Connection, cfg.partitionLogConfig())
	}
	return azurestorage.Open(cfg.Connection, cfg.Storage)
}

// deleteHub deletes a hub. If a worker uses the hub, it requires r.Force. The text workers tells the
// operator what running workers do after the deletion.
func deleteHub(ctx context.Context, hub deleter, workers string, r hubcli.DeleteRequest) error {
	err := hub.Delete(ctx, false)
	switch {
	case !errors.Is(err, provider.ErrHubBusy):
		return err
	case !r.Force:
		err = fmt.Errorf("%w; stop the workers first. With --force the hub is deleted anyway; %s", err, workers)
		return &hubcli.UnavailableError{Err: err}
	}
	r.Warn(err.Error() + "; " + workers + ". If the hub exists again later, stop the workers, and delete it once more.")
	return hub.Delete(ctx, true)
}

// crashes returns the functions that have crashed the app on this machine. With forget it also deletes
// the record of them.
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

// verifier returns a function that replays a history with the app's orchestrators and returns an error
// if they do not match. It returns nil if the program has no functions.
func (t *hubTool) verifier() func(text []byte) error {
	if len(t.app.Registrations) == 0 {
		return nil
	}
	registry := sync.OnceValue(func() *durable.Registry { return durable.NewRegistry(t.app.Registrations...) })
	return func(text []byte) error {
		events, err := durable.UnmarshalHistory(text)
		if err != nil {
			return err
		}
		return registry().Verify(events)
	}
}

// copy copies a hub to another store.
func (t *hubTool) copy(ctx context.Context, r hubcli.CopyRequest) (fmt.Stringer, error) {
	cfg, err := t.config()
	if err != nil {
		return nil, err
	}
	return hubCopy{cfg}.run(ctx, r)
}

// backup writes a backup of a hub in a storage account.
func (t *hubTool) backup(ctx context.Context, r hubcli.CopyRequest) (hubcli.BackupResult, error) {
	cfg, err := t.config()
	if err != nil {
		return hubcli.BackupResult{}, err
	}
	return hubCopy{cfg}.backup(ctx, r)
}
