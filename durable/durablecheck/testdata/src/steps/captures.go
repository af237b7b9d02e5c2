package steps

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type total struct {
	sum   int
	parts map[string]int
	inner *total
}

func (t *total) add(n int) { t.sum += n }

func (t *total) refresh(c context.Context) (int, error) { t.sum++; return t.sum, nil }

func (t *total) orchestrate(ctx *durable.Context, id string) (int, error) {
	durable.Step(ctx, "shared", func(c context.Context) (int, error) {
		t.add(1) // a receiver is not local to the instance
		return 0, nil
	}).Await()
	return durable.Step(ctx, "field", func(c context.Context) (int, error) {
		t.sum = 3 // want `^t.sum is changed inside a step, which a replay does not run, so the change is lost; return the value from the step$`
		return 0, nil
	}).Await()
}

var calls int

func assigned(ctx *durable.Context, in total) (n int, err error) {
	var names []string
	var list [3]int
	pointer, m, copied := &in, map[string]int{}, total{}
	out, text, failure := struct{ ID string }{}, strings.Builder{}, (*json.SyntaxError)(nil)
	_, err = durable.Step(ctx, "assigned", func(c context.Context) (int, error) {
		n = 1                         // want `n is changed inside a step`
		n++                           // want `n is changed inside a step`
		n, local := 2, 3              // a new variable
		n += local                    // the new variable
		names = append(names, "a")    // want `names is changed inside a step`
		names[0] = "b"                // want `names\[0\] is changed inside a step`
		list[1]++                     // want `list\[1\] is changed`
		in.sum = 4                    // want `in.sum is changed`
		in.inner.parts["a"] = 1       // want `in.inner.parts\["a"\] is changed`
		*pointer = total{}            // want `\*pointer is changed`
		pointer.sum = 1               // want `pointer.sum is changed`
		m["a"] = 1                    // want `m\["a"\] is changed`
		delete(m, "a")                // want `m is changed`
		clear(m)                      // want `m is changed`
		copy(names, []string{"c"})    // want `names is changed`
		slices.Sort(names)            // want `names is changed`
		copied.add(1)                 // want `copied is changed`
		text.WriteString("a")         // want `text is changed`
		json.Unmarshal(nil, &out)     // want `out is changed`
		if errors.As(err, &failure) { // want `failure is changed`
			n = 3
		}
		alias := &copied // want `copied is changed`
		for n = range 3 {
			_ = n + alias.sum
		}
		func() { err = nil }() // want `err is changed inside a step`
		go func() {
			for err = range errs { // want `err is changed inside a step`
				return
			}
		}()
		calls++ // a package-level variable is not lost
		return n, nil
	}).Await()
	return n, err
}

func errs(yield func(error) bool) {}

func throughLocalFunctions(ctx *durable.Context, in int) (int, error) {
	sum := 0
	add := func(n int) { sum += n } // want `sum is changed inside a step`
	add(1)
	step := func(c context.Context) (int, error) {
		add(2)
		in-- // want `in is changed inside a step`
		return 0, nil
	}
	durable.Step(ctx, "step", step).Await()
	t := &total{}
	durable.Step(ctx, "refresh", t.refresh).Await() // want `t is changed inside a step`
	return sum, nil
}

func unchanged(ctx *durable.Context, in total) (string, error) {
	reserve := func(c context.Context, t *total) (string, error) { return "", nil }
	return durable.Step(ctx, "unchanged", func(c context.Context) (string, error) {
		var b bytes.Buffer
		sum := in.sum
		sum++
		for k, v := range in.parts {
			b.WriteString(k)
			sum += v
		}
		var decoded total
		if err := json.NewDecoder(&b).Decode(&decoded); err != nil {
			return "", err
		}
		json.NewEncoder(&b).Encode(&in)
		return reserve(c, &in)
	}).Await()
}
