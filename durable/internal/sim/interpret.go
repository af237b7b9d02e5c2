package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

// Input is the input of the app's orchestrator.
type Input struct {
	Path    string // position of the instance: its ancestors, their rounds and steps
	Program int
	Round   int
	Sum     uint64 // of the previous rounds
	// Named gives explicit IDs to the children. Otherwise the engine derives a child's ID from the execution
	// ID of the parent, which is random from the second round on.
	Named bool
	// Pad makes the input large.
	Pad string `json:",omitempty"`
}

// The app's functions with their registered names.
const (
	work  = durable.ActivityName[Task, string]("Work")
	once  = durable.ActivityName[Task, string]("Once")
	child = durable.OrchestratorName[Input, Output]("Run")
)

// Output is the output of the app's orchestrator. It is encoded as a JSON number unless it is padded.
type Output struct {
	Sum uint64
	Pad string
}

// MarshalJSON implements [json.Marshaler].
func (o Output) MarshalJSON() ([]byte, error) {
	type large Output
	if o.Pad != "" {
		return json.Marshal(large(o))
	}
	return json.Marshal(o.Sum)
}

// UnmarshalJSON implements [json.Unmarshaler].
func (o *Output) UnmarshalJSON(text []byte) error {
	type large Output
	if bytes.HasPrefix(text, []byte("{")) {
		return json.Unmarshal(text, (*large)(o))
	}
	return json.Unmarshal(text, &o.Sum)
}

// Task is the input of the app's activity.
type Task struct {
	// Key identifies the caller and the call: path, round, step and number.
	Key   string
	Fails bool
	Big   string `json:",omitempty"`
	Poll  int    `json:"-"` // number of the call of a poll
}

// big is the size in bytes of a payload that does not fit into a message.
const big = 50_000

// largestStatus is the maximum length of a custom status in characters, including its quotes.
const largestStatus = 8_000

// Result returns the result of the activity for t.
func (t Task) Result() string {
	if t.Big != "" {
		return t.Key + strings.Repeat("r", big)
	}
	return "done " + t.Key
}

// unmarked replaces the result of a task with a marked key by the result of the original task.
func (t Task) unmarked(result string, err error) (string, error) {
	return strings.Replace(result, t.Key, strings.TrimSuffix(t.Key, "'"), 1), err
}

// fold adds a result to a sum.
func fold(sum uint64, result string) uint64 {
	for _, b := range []byte(result) {
		sum = (sum ^ uint64(b)) * 0x100000001b3
	}
	return sum ^ 0xff
}

type execution struct {
	app *App
	ctx *durable.Context
	in  Input
}

func (x *execution) task(step, n int) Task {
	t := Task{Key: fmt.Sprintf("%s/%d/%d/%d", x.in.Path, x.in.Round, step, n)}
	if x.app.Large || x.app.Programs[x.in.Program].Steps[step].Kind == BigStep {
		t.Big = strings.Repeat("i", big)
	}
	return t
}

// step executes a step and returns its result as text. An error ends the orchestrator.
func (x *execution) step(i int, s Step) (string, error) {
	ctx := x.ctx
	switch s.Kind {
	case CallStep, BigStep:
		return x.work(x.task(i, 0)).Await()
	case FailStep, RetryStep:
		return x.fail(i, s.Kind == RetryStep)
	case FanOutStep:
		tasks := make([]*durable.Task[string], s.Count)
		for n := range tasks {
			tasks[n] = x.work(x.task(i, n))
		}
		results, err := durable.AwaitAll(ctx, tasks...)
		return strings.Join(results, ","), err
	case SleepStep:
		ctx.Sleep(s.Wait)
		return "slept", x.patched()
	case EventStep, ReceiveStep:
		return durable.Event[string](s.Event).Wait(ctx).Await()
	case TimeoutStep, DeadlineStep:
		return x.eventInTime(s)
	case ChildStep, ChildrenStep:
		return x.children(i, s)
	case BranchStep:
		return x.branches(i)
	case SendStep:
		return "sent", durable.Event[string](s.Event).RaiseFrom(ctx, durable.InstanceID(s.Peer), x.app.padded(s.Event+" sent"))
	case StatusStep:
		ctx.SetCustomStatus(i)
		if x.app.Large {
			ctx.SetCustomStatus(strings.Repeat("s", largestStatus))
		}
		return "status", nil
	case LedgerStep:
		return x.acts(i, s)
	case stepKinds:
	}
	return "", fmt.Errorf("%d is not a valid kind of step", s.Kind)
}

// work runs a task as an activity or a durable step.
func (x *execution) work(t Task) *durable.Task[string] { return x.retried(t, nil) }

// retried is work with a retry policy, unless that is nil.
func (x *execution) retried(t Task, policy *durable.RetryPolicy) *durable.Task[string] {
	kind := x.app.inlineKind(t.Key)
	if kind != asOnce {
		return x.call(work, t, kind, policy)
	}
	first := x.call(once, t, asOnce, nil)
	return durable.Go(x.ctx, func() (string, error) {
		result, err := first.Await()
		if errors.Is(err, durable.ErrOutcomeUnknown) {
			t.Key += "'"
			return t.unmarked(x.call(work, t, asStep, nil).Await())
		}
		return result, err
	})
}

// call calls an activity, or runs a step of its name.
func (x *execution) call(name durable.ActivityName[Task, string], t Task, kind inlineKind, policy *durable.RetryPolicy) *durable.Task[string] {
	if kind == asActivity || x.app.foreign {
		var opts []durable.ActivityOption
		if policy != nil {
			opts = append(opts, *policy)
		}
		return name.Call(x.ctx, t, opts...)
	}
	var opts []durable.StepOption
	if policy != nil {
		opts = append(opts, *policy)
	}
	if kind == asOnce {
		opts = append(opts, durable.AtMostOnce)
	}
	if kind == asPoll {
		policy, last := x.app.poll(t.Key)
		return durable.Poll(x.ctx, string(name), policy, func(ctx context.Context, n int) (string, bool, error) {
			call := t
			call.Poll = n
			result, err := x.app.perform(ctx, call, kind)
			return result, n >= last, err
		}, opts...)
	}
	return durable.Step(x.ctx, string(name), func(ctx context.Context) (string, error) { return x.app.perform(ctx, t, kind) }, opts...)
}

func (x *execution) fail(i int, retry bool) (string, error) {
	t := x.task(i, 0)
	t.Fails = true
	var policy *durable.RetryPolicy
	if retry {
		policy = &durable.RetryPolicy{MaxAttempts: 3, FirstInterval: time.Second, Coefficient: 2}
	}
	_, err := x.retried(t, policy).Await()
	if failed, ok := errors.AsType[*durable.TaskFailedError](err); !ok || !strings.Contains(failed.Error(), t.Key) {
		return "", errors.Join(fmt.Errorf("activity %s did not fail with the expected error", t.Key), err)
	}
	return "failed", nil
}

func (x *execution) eventInTime(s Step) (string, error) {
	got, err := durable.Event[string](s.Event).Wait(x.ctx).AwaitTimeout(s.Wait)
	if errors.Is(err, durable.ErrTimeout) {
		return "timeout", nil
	}
	return got, err
}

func (x *execution) children(i int, s Step) (string, error) {
	tasks := make([]*durable.Task[Output], s.Count)
	for n := range tasks {
		in := Input{
			Path: childPath(x.in.Path, x.in.Round, i, n), Program: s.Child, Named: x.in.Named || x.in.Round > 0, Pad: x.app.padded(""),
		}
		var opts []durable.SubOrchestrationOption
		if s.Kind == ChildrenStep || in.Named {
			opts = append(opts, durable.InstanceID(in.Path))
		}
		tasks[n] = child.Call(x.ctx, in, opts...)
	}
	results := make([]string, s.Count)
	for n, t := range tasks {
		out, err := t.Await()
		_, failed := errors.AsType[*durable.TaskFailedError](err)
		switch {
		case failed && x.app.Programs[s.Child].Fails:
			results[n] = "child failed"
		case err != nil:
			return "", err
		default:
			results[n] = fmt.Sprint(out.Sum)
		}
	}
	return strings.Join(results, ","), nil
}

func childPath(parent string, round, step, n int) string {
	return fmt.Sprintf("%s.%d.%d.%d", parent, round, step, n)
}

// branches runs two sequences of activities concurrently.
func (x *execution) branches(i int) (string, error) {
	branch := func(first int) *durable.Task[string] {
		return durable.Go(x.ctx, func() (string, error) {
			if err := x.patched(); err != nil {
				return "", err
			}
			a, err := x.work(x.task(i, first)).Await()
			if err != nil {
				return "", err
			}
			b, err := x.work(x.task(i, first+1)).Await()
			return a + b, err
		})
	}
	results, err := durable.AwaitAll(x.ctx, branch(0), branch(2))
	return strings.Join(results, ","), err
}

// patched returns an error if Patched reports that the app's code, which never changes, was changed while the
// instance was running. A generation that was suspended before its first episode sees its start as a replay.
func (x *execution) patched() error {
	if x.in.Round == 0 && !x.app.BegunByOthers && !x.ctx.Patched("first") {
		return errors.New("a call of Patched returned false although the code has not changed")
	}
	return nil
}

// acts executes the acts of a step. An error ends the orchestrator.
func (x *execution) acts(step int, s Step) (string, error) {
	p := &actor{x: x, step: step, from: x.in.Path}
	return "acted", p.all(s.Acts)
}
