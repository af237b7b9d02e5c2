package runs

import (
	"context"
	"hash/crc32"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"golang.org/x/sync/singleflight"
)

// Files is where a base has its files.
type Files interface {
	// Create makes a file with the content, which it does not keep. Names are random, so
	// a file that is there already is this one. After an error it may be there.
	Create(ctx context.Context, name string, content []byte) error
	// ReadAt fills p with what a file has from an offset on. The error wraps [ErrGone] if
	// the file does not exist, and [io.ErrUnexpectedEOF] if it is shorter.
	ReadAt(ctx context.Context, name string, offset int64, p []byte) error
	// Remove deletes a file if it is there.
	Remove(ctx context.Context, name string) error
}

// Config configures a [Base].
type Config struct {
	// Tables are the tables of the store that the base is below.
	Tables logstore.Tables
	// Files has the files.
	Files Files
	// Commit makes a manifest durable that has all groups up to last. When it has returned,
	// the manifest counts. After a *[logstore.UncertainError] it may count; after another
	// error it does not. A base that is not written needs none.
	Commit func(last uint64, manifest []byte) error
	// Logger gets what goes wrong in the background.
	Logger *slog.Logger
	// Cache is shared with other bases. Default a cache of 32 MiB of records and 32 MiB of
	// indexes.
	Cache *Cache
	// Seed is what checksums begin with, such as the hub's ID and the partition's number.
	Seed []byte
	// BlockSize is how many bytes of records are read and checked together. Default 32 KiB.
	// A larger record has a block of its own.
	BlockSize int
	// FileSize is how large a file becomes, in bytes. Default 32 MiB. One with a larger
	// record is larger.
	FileSize int
	// RemoveAfter is how long a file stays after the last manifest that names it, for
	// readers in other processes. Default 2 minutes.
	RemoveAfter time.Duration
}

// maxRuns is how many runs there are at most: a write waits for merges then.
const maxRuns = 64

// Base is the records of a partition in immutable sorted files. It is a
// [logstore.Base].
type Base struct {
	cfg     Config
	seed    uint32
	ctx     context.Context
	working context.Context // ends when nothing goes on any more
	stop    context.CancelFunc
	work    sync.WaitGroup // goroutines
	loading singleflight.Group

	installing chan struct{} // held while a manifest is committed

	mu     sync.Mutex // protects the following, and run.merging
	now    *version
	views  map[*version]int // how many views read it
	merges int              // under way
	merged *sync.Cond       // one has ended
	stuck  bool             // the last one failed
	doomed error            // why nothing can be written any more
	known  map[string]bool  // files that were named or created and are not deleted yet
	closed bool
}

// Open returns the base that a manifest describes; nil is an empty one. It makes no
// request. Requests are made with the values of ctx, whose end does not matter: Close ends
// the base. The error is a *[ManifestError] if the
// manifest is not one of a known format.
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

// checksum returns the checksum of a part of a file.
func (b *Base) checksum(name string, content []byte) uint32 {
	return crc32.Update(crc32.Update(b.seed, castagnoli, []byte(name)), castagnoli, content)
}

func (b *Base) version() *version {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now
}

// Manifest returns the manifest that counts.
func (b *Base) Manifest() []byte { return b.version().encode() }

// Last returns the number of the last group that the base has.
func (b *Base) Last() uint64 { return b.version().last }

// Names returns the names of the files that the manifest names.
func (b *Base) Names() (names []string) { return b.version().names() }

// Names returns the names of the files that a manifest names. The error is a *[ManifestError].
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

// Unneeded returns those of some files that neither the manifest with which the base was
// opened names nor the base created: crashes left them, or former owners, which were to
// delete them later. Only readers with an older manifest may still need them.
func (b *Base) Unneeded(there []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(there), func(name string) bool { return b.known[name] })
}

func (b *Base) note(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.known[name] = true
}

// Rebase goes on with a newer manifest, for a base that is only read. Views that are open
// stay as they are.
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

// View implements [logstore.Base]. An error that wraps [ErrGone] says that the manifest is
// too old.
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

// Write implements [logstore.Base]. With closing it ends merges first: nothing is
// committed after it. Without, it fails with [logstore.ErrClosed] after [Base.EndWork].
func (b *Base) Write(l *logstore.Layer, closing bool) error {
	ctx := b.working
	if closing {
		b.EndWork()
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
		b.giveUp(w, err)
	}
	return err
}

// layer adds what a layer changes. If nothing is below it, deletions have nothing to hide.
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

// run returns the run that was written, none if it has no records.
func (w *fileWriter) run() []*run {
	if len(w.files) == 0 {
		return nil
	}
	return []*run{{files: w.files}}
}

// awaitMerges waits while there are too many runs and merges go on, and returns what there
// is then. The error is why nothing can be written any more.
func (b *Base) awaitMerges() (*version, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.now.runs) >= maxRuns && b.merges > 0 && !b.stuck {
		b.merged.Wait()
	}
	return b.now, b.doomed
}

// install commits the version that follows the one of now.
func (b *Base) install(next func(now *version) *version) error {
	b.installing <- struct{}{}
	defer func() { <-b.installing }()
	b.mu.Lock()
	now, doomed := b.now, b.doomed
	b.mu.Unlock()
	if doomed != nil {
		return doomed
	}
	v := next(now)
	err := b.cfg.Commit(v.last, v.encode())
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.now = v
	} else if isUncertain(err) {
		b.doomed = err
	}
	return err
}

// background runs f in a goroutine, unless such work has ended. f is to end with
// b.working.
func (b *Base) background(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.working.Err() == nil {
		b.work.Go(f)
	}
}

// EndWork ends merges and writes that are under way, and waits for the merges. What they
// have stored is left for whoever opens the partition next.
func (b *Base) EndWork() {
	b.mu.Lock()
	b.stop()
	b.mu.Unlock()
	b.work.Wait()
}

// Close implements [logstore.Base]. Files that wait for their deletion stay, for whoever
// opens the partition next.
func (b *Base) Close() error {
	b.EndWork()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return nil
}
