package taskhub

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A File is a hub in a local file that is opened after the server has started. Another process may hold
// the file, or it may be damaged. Until it is open, all calls fail with an [OutageError].
type File struct {
	path string
	cfg  embedded.Config

	opening sync.Mutex // held while the file is being opened or closed

	mu     sync.Mutex // guards the fields below
	hub    *embedded.Hub
	closed bool
}

var (
	_ provider.Provider        = (*File)(nil)
	_ provider.Purger          = (*File)(nil)
	_ provider.Rewinder        = (*File)(nil)
	_ provider.QueuePositioner = (*File)(nil)
	_ provider.ExactlyOnce     = (*File)(nil)
	_ provider.Awaiter         = (*File)(nil)
	_ provider.Checker         = (*File)(nil)

	_ provider.UsageReporter = (*File)(nil)
)

// NewFile returns a hub in the file at path. It does not open the file.
func NewFile(path string, cfg embedded.Config) *File { return &File{path: path, cfg: cfg} }

// Open opens the file unless it is open or closed already. It waits one second for another process to
// close it.
func (f *File) Open() error { return f.open(f.cfg) }

// OpenNow opens the file like Open, but does not wait for another process.
func (f *File) OpenNow() error {
	cfg := f.cfg
	cfg.LockTimeout = time.Millisecond
	return f.open(cfg)
}

func (f *File) open(cfg embedded.Config) error {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.Lock()
	done, closed := f.hub != nil, f.closed
	f.mu.Unlock()
	if done || closed {
		return nil
	}
	hub, err := embedded.Open(f.path, cfg)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("%w; set storageProvider.path to another file", err)
		}
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hub = hub
	return nil
}

// isLasting reports whether an error of Open persists until an operator repairs or replaces the file.
func isLasting(err error) bool {
	if _, newer := errors.AsType[*embedded.FormatError](err); newer {
		return true
	}
	_, corrupt := errors.AsType[*embedded.CorruptError](err)
	return corrupt
}

// Backup writes the hub into a new file at path; see [embedded.Hub.Backup]. An error of the new file is
// not an outage of the hub.
func (f *File) Backup(ctx context.Context, path string) (size int64, err error) {
	outage := f.use(func(hub *embedded.Hub) error {
		size, err = hub.Backup(ctx, path)
		return nil
	})
	return size, errors.Join(outage, err)
}

// Close closes the file. It cannot be opened again.
func (f *File) Close() error {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.Lock()
	hub := f.hub
	f.closed = true
	f.mu.Unlock()
	if hub == nil {
		return nil
	}
	return hub.Close()
}

// ErrNotOpen is the cause of the [OutageError] of a file that is not open.
var ErrNotOpen = errors.New("the task hub's file is not open")

// use calls call with the open hub and marks outages in its error.
func (f *File) use(call func(*embedded.Hub) error) error {
	f.mu.Lock()
	hub := f.hub
	f.mu.Unlock()
	if hub == nil {
		return &OutageError{fmt.Errorf("%s: %w", f.path, ErrNotOpen)}
	}
	err := call(hub)
	if isFileOutage(err) {
		return &OutageError{err}
	}
	return err
}

// isFileOutage reports whether err comes from the file or the disk rather than from the call.
func isFileOutage(err error) bool {
	if err == nil {
		return false
	}
	_, errno := errors.AsType[syscall.Errno](err)
	_, path := errors.AsType[*fs.PathError](err)
	return errors.Is(err, embedded.ErrClosed) || isLasting(err) || errno || path
}

// ask is like [File.use], for a call that returns a result.
func ask[T any](f *File, call func(*embedded.Hub) (T, error)) (answer T, err error) {
	err = f.use(func(hub *embedded.Hub) (err error) {
		answer, err = call(hub)
		return err
	})
	return answer, err
}

// StartInstance implements [provider.Client].
func (f *File) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	return f.use(func(hub *embedded.Hub) error { return hub.StartInstance(ctx, start, refuse) })
}

// Send implements [provider.Client].
func (f *File) Send(ctx context.Context, msg provider.TaskMessage) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Send(ctx, msg) })
}

// Instance implements [provider.Client].
func (f *File) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	return ask(f, func(hub *embedded.Hub) (*provider.InstanceState, error) { return hub.Instance(ctx, id, fetch) })
}

// Instances implements [provider.Client].
func (f *File) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	return ask(f, func(hub *embedded.Hub) (*provider.Page, error) { return hub.Instances(ctx, q) })
}

// History implements [provider.Client].
func (f *File) History(ctx context.Context, id string) ([]history.Event, error) {
	return ask(f, func(hub *embedded.Hub) ([]history.Event, error) { return hub.History(ctx, id) })
}

// Purge implements [provider.Purger].
func (f *File) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Purge(ctx, id, seen) })
}

// Rewind implements [provider.Rewinder].
func (f *File) Rewind(ctx context.Context, id, reason string) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Rewind(ctx, id, reason) })
}

// QueuePosition implements [provider.QueuePositioner].
func (f *File) QueuePosition(ctx context.Context, id string) (provider.QueuePosition, error) {
	return ask(f, func(hub *embedded.Hub) (provider.QueuePosition, error) { return hub.QueuePosition(ctx, id) })
}

// Usage implements [provider.UsageReporter].
func (f *File) Usage() []provider.Usage {
	usage, _ := ask(f, func(hub *embedded.Hub) ([]provider.Usage, error) { return hub.Usage(), nil }) // none until the file is open
	return usage
}

// Check implements [provider.Checker].
func (f *File) Check(ctx context.Context) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Check(ctx) })
}

// IsBusy implements [provider.Checker].
func (f *File) IsBusy() bool { return false }

// AwaitEnd implements [provider.Awaiter].
func (f *File) AwaitEnd(ctx context.Context, id string) error {
	return f.use(func(hub *embedded.Hub) error { return hub.AwaitEnd(ctx, id) })
}

// Run implements [provider.Worker].
func (f *File) Run(ctx context.Context) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Run(ctx) })
}

// NextOrchestration implements [provider.Worker].
func (f *File) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	return ask(f, func(hub *embedded.Hub) (*provider.OrchestrationWorkItem, error) { return hub.NextOrchestration(ctx) })
}

// NextActivity implements [provider.Worker].
func (f *File) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	return ask(f, func(hub *embedded.Hub) (*provider.ActivityWorkItem, error) { return hub.NextActivity(ctx) })
}

// IsSingleWorker implements [provider.SingleWorker].
func (f *File) IsSingleWorker() bool { return true }

// IsExactlyOnce implements [provider.ExactlyOnce].
func (f *File) IsExactlyOnce() bool {
	exact, _ := ask(f, func(hub *embedded.Hub) (bool, error) { return hub.IsExactlyOnce(), nil }) // false until the file is open
	return exact
}
