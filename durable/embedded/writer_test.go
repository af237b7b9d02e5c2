package embedded

import (
	"context"
	"errors"
	"testing"
)

func TestWriter_AnOperationThatFailsDoesNotFailOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	broken, refused := errors.New("broken"), errors.New("refused")
	begun, busy := make(chan struct{}), make(chan struct{})
	put := func(key string) func(*txn) error {
		return func(t *txn) error {
			t.put(instancesTable, []byte(key), []byte("value"))
			return nil
		}
	}
	ops := []*op{
		{apply: func(*txn) error { close(begun); <-busy; return nil }}, // until the others wait
		{apply: put("one")},
		{apply: func(t *txn) error { return errors.Join(put("two")(t), broken) }},
		{apply: func(*txn) error { return &refusal{refused} }},
		{apply: func(*txn) error { panic("a bug") }},
		{apply: put("three")},
	}
	called, cancel := context.WithCancel(t.Context())
	for _, o := range ops {
		o.result = make(chan error, 1)
		r.must(r.writer.submit(o))
		<-begun
	}
	calledOff := &op{result: make(chan error, 1), apply: put("called off")}
	r.must(r.writer.submit(calledOff))
	cancel()
	if err := r.writer.await(called, calledOff); !errors.Is(err, context.Canceled) {
		t.Errorf("an operation that was called off: %v", err)
	}
	close(busy)
	for i, want := range []error{nil, nil, broken, refused, errors.New("panicked"), nil} {
		got := <-ops[i].result
		if (got == nil) != (want == nil) || (i == 2 || i == 3) && !errors.Is(got, want) {
			t.Errorf("operation %d: got %v, want %v", i, got, want)
		}
	}
	r.must(r.read("look", func(tables *tables) error {
		for key, want := range map[string]bool{"one": true, "two": false, "three": true, "called off": false} {
			if b, err := tables.get(instancesTable, []byte(key)); err != nil || (b != nil) != want {
				t.Errorf("record %s is there: %v, %v, want %v", key, b != nil, err, want)
			}
		}
		return nil
	}))
}
