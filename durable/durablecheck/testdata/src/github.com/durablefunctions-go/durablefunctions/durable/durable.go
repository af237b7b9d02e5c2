// Package durable has the signatures of the real one. What they do here is
// what orchestrators must not: the analyzer does not look into it.
package durable

import (
	"context"
	"iter"
	"log/slog"
	"sync"
	"time"
)

type (
	Context     struct{ mu sync.Mutex }
	Task[T any] struct{ done chan T }
	Awaitable   interface{ isDone() bool }
	InstanceID  string
	UUID        [16]byte
	Void        struct{}
	RetryPolicy struct {
		MaxAttempts int
		Handle      func(error) bool
	}
	Client          struct{}
	Instance[O any] struct{ ID InstanceID }
	ActivityOption  interface{ applyActivity() }
)

var started int

func (RetryPolicy) applyActivity() {}

func (c *Context) InstanceID() InstanceID                 { return "" }
func (c *Context) Now() time.Time                         { started++; return time.Now() }
func (c *Context) NewUUID() UUID                          { return UUID{} }
func (c *Context) IsReplaying() bool                      { c.mu.Lock(); return false }
func (c *Context) Logger() *slog.Logger                   { return slog.Default() }
func (c *Context) Sleep(d time.Duration)                  { time.Sleep(d) }
func (c *Context) Timer(d time.Duration) *Task[time.Time] { go func() {}(); return nil }
func (c *Context) SetCustomStatus(v any)                  {}
func (c *Context) Patched(id string) bool                 { return false }
func (c *Context) HistoryLength() int                     { return 0 }

func (t *Task[T]) isDone() bool                                { return false }
func (t *Task[T]) Await() (T, error)                           { return <-t.done, nil }
func (t *Task[T]) AwaitTimeout(time.Duration) (v T, err error) { return v, nil }
func (t *Task[T]) Done() bool                                  { return false }

func CallActivity[I, O any](ctx *Context, activity func(context.Context, I) (O, error), in I, opts ...ActivityOption) *Task[O] {
	return nil
}

func CallSubOrchestrator[I, O any](ctx *Context, orch func(*Context, I) (O, error), in I) *Task[O] {
	return nil
}

func ContinueAsNew[I, O any](ctx *Context, self func(*Context, I) (O, error), in I) (out O, err error) {
	return out, nil
}

func AwaitAll[T any](ctx *Context, tasks ...*Task[T]) ([]T, error)          { return nil, nil }
func AwaitAny(ctx *Context, tasks ...Awaitable) Awaitable                   { return nil }
func AsCompleted[T any](ctx *Context, tasks ...*Task[T]) iter.Seq[*Task[T]] { return nil }
func Go[T any](ctx *Context, f func() (T, error)) *Task[T]                  { return nil }

type (
	StepOption interface{ applyStep() }
	PollPolicy struct{ Interval time.Duration }
)

func Step[T any](ctx *Context, name string, f func(context.Context) (T, error), opts ...StepOption) *Task[T] {
	return nil
}

func Poll[T any](ctx *Context, name string, policy PollPolicy, f func(ctx context.Context, n int) (T, bool, error)) *Task[T] {
	return nil
}

type (
	EntityContext          struct{ context.Context }
	EntityKey[S any]       string
	AnyEntity              interface{ entityID() }
	Signaler               interface{ signal() }
	EntityOperation[I any] string
)

func (EntityKey[S]) entityID()   {}
func (c *Context) signal()       {}
func (c *EntityContext) signal() {}

func CallEntity[S, I, O any](ctx *Context, key EntityKey[S], op func(*S, *EntityContext, I) (O, error), in I) *Task[O] {
	return nil
}

func SignalFrom[S, I, O any](ctx Signaler, key EntityKey[S], op func(*S, *EntityContext, I) (O, error), in I) {
}

func (o EntityOperation[I]) SignalFrom(ctx Signaler, e AnyEntity, in I) {}

func LockEntities(ctx *Context, entities ...AnyEntity) (unlock func()) { return func() {} }

type Event[T any] string

func (e Event[T]) Wait(ctx *Context) *Task[T]                                     { return nil }
func (e Event[T]) Raise(ctx context.Context, c *Client, id InstanceID, v T) error { return nil }

type ActivityName[I, O any] string

func (n ActivityName[I, O]) Call(ctx *Context, in I) *Task[O] { return nil }

func Start[I, O any](ctx context.Context, c *Client, orch func(*Context, I) (O, error), in I) (*Instance[O], error) {
	return nil, nil
}

func (c *Client) Terminate(ctx context.Context, id InstanceID, reason string) error { return nil }
