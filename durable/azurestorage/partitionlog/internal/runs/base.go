package runs

import (
	"context"
	"hash/crc32"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/reclaim"
	"golang.org/x/sync/singleflight"
)

// Files stores the files of a base.
type Files interface {
	// Create creates a file with the content. It must not keep content. Names are random, so a file
	// that exists already is this one. After an error the file may exist.
	Create(ctx context.Context, name string, content []byte) error
	// ReadAt fills p with the content of a file from offset on. The error wraps [ErrGone] if the
	// file does not exist, and [io.ErrUnexpectedEOF] if it is too short.
	ReadAt(ctx context.Context, name string, offset int64, p []byte) error
	// Remove deletes a file. It returns nil if the file does not exist.
	Remove(ctx context.Context, name string) error
}

// Config configures a [Base].
type Config struct {
	// Tables are the tables of the store above the base.
	Tables logstore.Tables
	// Files stores the files.
	Files Files
	// Commit makes a manifest durable. The manifest contains all groups up to last and takes effect
	// when Commit returns nil. After a *[logstore.UncertainError] it may take effect; after any
	// other error it does not. A base that is only read needs no Commit.
	Commit func(last uint64, manifest []byte) error
	// Logger receives errors of background work.
	Logger *slog.Logger
	// Cache may be shared with other bases. Default: a cache of 32 MiB for records and 32 MiB for
	// indexes.
	Cache *Cache
	// Seed identifies the partition, for example by the hub's ID and the partition's number. All
	// checksums include it.
	Seed []byte
	// BlockSize is the number of bytes that are read and checked together. Default 32 KiB. A larger
	// record has a block of its own.
	BlockSize int
	// FileSize is the size at which a file is complete, in bytes. Default 32 MiB. A larger record
	// makes a larger file.
	FileSize int
	// RemoveAfter is the time between the last manifest that names a file and the file's deletion.
	// Readers in other processes may still use the file meanwhile. Default 2 minutes.
	RemoveAfter time.Duration
}

// maxRuns is the number of runs at which a write waits for merges.
const maxRuns = 64

// Base stores the records of a partition in immutable sorted files. It implements [logstore.Base].
type Base struct {
	cfg     Config
	seed    uint32
	ctx     context.Context
	working context.Context // canceled by CancelWork
	stop    context.CancelFunc
	work    sync.WaitGroup // background goroutines
	loading singleflight.Group
	pacer   reclaim.Pacer

	installing chan struct{} // held while a manifest is committed

	mu          sync.Mutex // protects the fields below, and run.merging
	now         *version
	views       map[*version]int // number of open views by version
	merges      int              // number of running merges
	merged      *sync.Cond       // signaled when a merge ends
	mergeFailed bool             // the last merge failed
	writeErr    error            // if not nil, the base accepts no more writes
	known       map[string]bool  // files that the manifest named or the base created, and that are not deleted
	closed      bool
}

// Open returns the base described by manifest. A nil manifest is an empty base. Open makes no
// request. Requests carry the values of ctx but ignore its end; Close ends the base. The error is a
// *[ManifestError] if the manifest is not valid or its format is unknown.
func Open(ctx context.Context, cfg Config, manifest []byte) (*Base, error) {
	v, err := decodeManifest(manifest)
	if err != nil {
		return nil, err
	}
	if cfg.Cache == nil {
		cfg.Cache = NewCache(32<<20, 32<<20)
	}
	if cfg.BlockSize == 0 {
		cfg.BlockSize = 32 << 10
	}
	if cfg.FileSize == 0 {
		cfg.FileSize = 32 << 20
	}
	if cfg.RemoveAfter == 0 {
		cfg.RemoveAfter = 2 * time.Minute
	}
	b := &Base{cfg: cfg, seed: crc32.Checksum(cfg.Seed, castagnoli), ctx: context.WithoutCancel(ctx), now: v, views: map[*version]int{}, known: map[string]bool{}, installing: make(chan struct{}, 1)}
	b.working, b.stop = context.WithCancel(b.ctx)
	b.merged = sync.NewCond(&b.mu)
	for _, name := range b.Names() {
		b.known[name] = true
	}
	return b, nil
}

// checksum returns the checksum of a part of the named file.
func (b *Base) checksum(name string, content []byte) uint32 {
	return crc32.Update(crc32.Update(b.seed, castagnoli, []byte(name)), castagnoli, content)
}

func (b *Base) version() *version {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// Manifest returns the current manifest.
func (b *Base) Manifest() []byte { return b.version().encode() }

// Last returns the number of the last group in the base.
func (b *Base) Last() uint64 { return b.version().last }

// Names returns the names of the files in the current manifest.
func (b *Base) Names() (names []string) { return b.version().names() }

// Names returns the names of the files in a manifest. The error is a *[ManifestError].
func Names(manifest []byte) ([]string, error) {
	v, err := decodeManifest(manifest)
	if err != nil {
		return nil, err
	}
	return v.names(), nil
}

func (v *version) names() (names []string) {
	for _, r := range v.runs {
		for _, f := range r.files {
			names = append(names, f.name)
		}
	}
	return names
}

// Unneeded returns the given files that the base neither created nor found in its first manifest.
// Crashes or former owners left them. Only readers with an older manifest may still need them.
func (b *Base) Unneeded(there []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(there), func(name string) bool { return b.known[name] })
}

func (b *Base) addKnown(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[name] = true
}

// Rebase switches a base that is only read to a newer manifest. Open views are not affected.
func (b *Base) Rebase(manifest []byte) error {
	v, err := decodeManifest(manifest)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = v
	return nil
}

// View implements [logstore.Base]. If the error wraps [ErrGone], the manifest is too old.
func (b *Base) View(f func(logstore.Reader) error) error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return logstore.ErrClosed
	}
	v := b.now
	b.views[v]++
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.views[v]--; b.views[v] == 0 {
			delete(b.views, v)
		}
	}()
	return f(&reader{b, v})
}

// Write implements [logstore.Base]. If closing is true, it first ends all merges, and nothing is
// committed after it. If closing is false, it fails with [logstore.ErrClosed] after
// [Base.CancelWork].
func (b *Base) Write(l *logstore.Layer, closing bool) error {
	ctx := b.working
	if closing {
		b.CancelWork()
		ctx = b.ctx
	}
	now, err := b.awaitMerges()
	if err != nil {
		return err
	}
	w := b.newWriter(ctx, l.Last, l.Size())
	err = w.layer(l, len(now.runs) == 0)
	if err == nil && len(w.files) == 0 && l.Last == now.last {
		return nil
	}
	if err == nil {
		err = b.install(func(now *version) *version {
			return &version{last: l.Last, runs: slices.Concat(w.run(), now.runs)}
		})
	}
	switch {
	case err == nil:
		b.startMerges()
	case ctx.Err() != nil && !isUncertain(err):
		return logstore.ErrClosed
	default:
		b.discard(w, err)
	}
	return err
}

// layer adds the changes of a layer. It omits deletions if the base has no older runs.
func (w *fileWriter) layer(l *logstore.Layer, oldest bool) (err error) {
	for table := range w.b.cfg.Tables {
		l.Changes(logstore.Table(table), func(key string, value []byte) bool {
			if value != nil || !oldest {
				err = w.add(tableKey(logstore.Table(table), []byte(key)), value)
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return w.endFile()
}

// run returns the written run, or nil if it has no records.
func (w *fileWriter) run() []*run {
	if len(w.files) == 0 {
		return nil
	}
	return []*run{{files: w.files}}
}

// awaitMerges waits until there are fewer than maxRuns runs, no merge is running, or merges fail.
// It returns the current version, or the error that prevents all writes.
func (b *Base) awaitMerges() (*version, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.now.runs) >= maxRuns && b.merges > 0 && !b.mergeFailed {
		b.merged.Wait()
	}
	return b.now, b.writeErr
}

// install commits the version that next derives from the current one.
func (b *Base) install(next func(now *version) *version) error {
	b.installing <- struct{}{}
	defer func() { <-b.installing }()
	b.mu.Lock()
	now, writeErr := b.now, b.writeErr
	b.mu.Unlock()
	if writeErr != nil {
		return writeErr
	}
	v := next(now)
	err := b.cfg.Commit(v.last, v.encode())
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.now = v
	} else if isUncertain(err) {
		b.writeErr = err
	}
	return err
}

// background runs f in a goroutine unless CancelWork was called. f must return when b.working ends.
func (b *Base) background(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.working.Err() == nil {
		b.work.Go(f)
	}
}

// CancelWork cancels merges and writes, and waits for the merges. The next process that opens the
// partition deletes the files they stored.
func (b *Base) CancelWork() {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.work.Wait()
}

// Close implements [logstore.Base]. The next process that opens the partition deletes the files
// that wait for their deletion.
func (b *Base) Close() error {
	b.CancelWork()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}
