package handler

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"

	"github.com/durablefunctions-go/durablefunctions/durable/embedded"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// A fileHub is a hub in a local file that is opened later: another process may
// have it, or there may be something wrong with it, and the server lives in
// either case. Until it is open, all calls fail like those to a storage account
// that is out of reach.
type fileHub struct {
	path string
	cfg  embedded.Config

	opening sync.Mutex // held by whoever opens or closes it

	mu     sync.Mutex // protects the following
	hub    *embedded.Hub
	closed bool
}

var (
	_ provider.Provider = (*fileHub)(nil)
	_ provider.Purger   = (*fileHub)(nil)
	_ provider.Rewinder = (*fileHub)(nil)
	_ provider.Awaiter  = (*fileHub)(nil)
	_ provider.Checker  = (*fileHub)(nil)
)

// newFileHub returns the hub in the file at path, which is not open yet.
func newFileHub(path string, cfg embedded.Config) *fileHub { return &fileHub{path: path, cfg: cfg} }

// open opens the file if that has not been done. It waits a second for another
// process to let go of it.
func (f *fileHub) open() error {
	f.opening.Lock()
	defer f.opening.Unlock()
	f.mu.Lock()
	done, closed := f.hub != nil, f.closed
	f.mu.Unlock()
	if done || closed {
		return nil
	}
	hub, err := embedded.Open(f.path, f.cfg)
	if err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return fmt.Errorf("%w; the setting storageProvider.path names another file", err)
		}
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hub = hub
	return nil
}

// isLasting reports whether an error of opening stays until a person has done
// something about the file.
func isLasting(err error) bool {
	if _, newer := errors.AsType[*embedded.FormatError](err); newer {
		return true
	}
	_, corrupt := errors.AsType[*embedded.CorruptError](err)
	return corrupt
}

// close closes the file if it is open, for good.
func (f *fileHub) close() error {
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

// errNotOpen says that the file could not be opened yet.
var errNotOpen = errors.New("the task hub's file is not open")

// use calls call with the open hub.
func (f *fileHub) use(call func(*embedded.Hub) error) error {
	f.mu.Lock()
	hub := f.hub
	f.mu.Unlock()
	if hub == nil {
		return &outageError{fmt.Errorf("%s: %w", f.path, errNotOpen)}
	}
	err := call(hub)
	if isFileOutage(err) {
		return &outageError{err}
	}
	return err
}

// isFileOutage reports whether err is the fault of the file or the disk, rather
// than of the call.
func isFileOutage(err error) bool {
	if err == nil {
		return false
	}
	_, errno := errors.AsType[syscall.Errno](err)
	_, path := errors.AsType[*fs.PathError](err)
	return errors.Is(err, embedded.ErrClosed) || isLasting(err) || errno || path
}

// ask is use for a call that returns something.
func ask[T any](f *fileHub, call func(*embedded.Hub) (T, error)) (answer T, err error) {
	err = f.use(func(hub *embedded.Hub) (err error) {
		answer, err = call(hub)
		return err
	})
	return answer, err
}

// StartInstance implements [provider.Client].
func (f *fileHub) StartInstance(ctx context.Context, start provider.TaskMessage, refuse []history.RuntimeStatus) error {
	return f.use(func(hub *embedded.Hub) error { return hub.StartInstance(ctx, start, refuse) })
}

// Send implements [provider.Client].
func (f *fileHub) Send(ctx context.Context, msg provider.TaskMessage) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Send(ctx, msg) })
}

// Instance implements [provider.Client].
func (f *fileHub) Instance(ctx context.Context, id string, fetch provider.Fetch) (*provider.InstanceState, error) {
	return ask(f, func(hub *embedded.Hub) (*provider.InstanceState, error) { return hub.Instance(ctx, id, fetch) })
}

// Instances implements [provider.Client].
func (f *fileHub) Instances(ctx context.Context, q provider.Query) (*provider.Page, error) {
	return ask(f, func(hub *embedded.Hub) (*provider.Page, error) { return hub.Instances(ctx, q) })
}

// History implements [provider.Client].
func (f *fileHub) History(ctx context.Context, id string) ([]history.Event, error) {
	return ask(f, func(hub *embedded.Hub) ([]history.Event, error) { return hub.History(ctx, id) })
}

// Purge implements [provider.Purger].
func (f *fileHub) Purge(ctx context.Context, id string, seen *provider.InstanceState) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Purge(ctx, id, seen) })
}

// Rewind implements [provider.Rewinder].
func (f *fileHub) Rewind(ctx context.Context, id, reason string) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Rewind(ctx, id, reason) })
}

// Check implements [provider.Checker].
func (f *fileHub) Check(ctx context.Context) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Check(ctx) })
}

// IsBusy implements [provider.Checker].
func (f *fileHub) IsBusy() bool { return false }

// AwaitEnd implements [provider.Awaiter].
func (f *fileHub) AwaitEnd(ctx context.Context, id string) error {
	return f.use(func(hub *embedded.Hub) error { return hub.AwaitEnd(ctx, id) })
}

// Run implements [provider.Worker].
func (f *fileHub) Run(ctx context.Context) error {
	return f.use(func(hub *embedded.Hub) error { return hub.Run(ctx) })
}

// NextOrchestration implements [provider.Worker].
func (f *fileHub) NextOrchestration(ctx context.Context) (*provider.OrchestrationWorkItem, error) {
	return ask(f, func(hub *embedded.Hub) (*provider.OrchestrationWorkItem, error) { return hub.NextOrchestration(ctx) })
}

// NextActivity implements [provider.Worker].
func (f *fileHub) NextActivity(ctx context.Context) (*provider.ActivityWorkItem, error) {
	return ask(f, func(hub *embedded.Hub) (*provider.ActivityWorkItem, error) { return hub.NextActivity(ctx) })
}

// IsSole implements [provider.Sole].
func (f *fileHub) IsSole() bool { return true }
