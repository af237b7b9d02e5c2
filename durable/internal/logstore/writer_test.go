package logstore

import (
	"context"
	"errors"
	"testing"
)

func TestWriter_AnOperationThatFailsDoesNotFailOthers(t *testing.T) {
	t.Parallel()
	s := emptyStage(t)
	broken, refused := errors.New("broken"), errors.New("refused")
	begun, busy := make(chan struct{}), make(chan struct{})
	put := func(key string) func(*Txn) error {
		return func(t *Txn) error {
			t.Put(plain, []byte(key), []byte("value"))
			return nil
		}
	}
	ops := []*Op[*Txn]{
		NewOp(func(*Txn) error { close(begun); <-busy; return nil }), // until the others wait
		NewOp(put("one")),
		NewOp(func(t *Txn) error { return errors.Join(put("two")(t), broken) }),
		NewOp(func(*Txn) error { return Refuse(refused) }),
		NewOp(put("three")),
	}
	called, cancel := context.WithCancel(t.Context())
	for _, o := range ops {
		if err := s.w.Submit(o); err != nil {
			t.Fatal(err)
		}
		<-begun
	}
	calledOff := NewOp(put("called off"))
	if err := s.w.Submit(calledOff); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.w.Await(called, calledOff); !errors.Is(err, context.Canceled) {
		t.Errorf("an operation that was called off: %v", err)
	}
	close(busy)
	for i, want := range []error{nil, nil, broken, refused, nil} {
		got := s.w.Await(t.Context(), ops[i])
		if (got == nil) != (want == nil) || (i == 2 || i == 3) && !errors.Is(got, want) {
			t.Errorf("operation %d: got %v, want %v", i, got, want)
		}
	}
	err := s.View(func(v *View) error {
		for key, want := range map[string]bool{"one": true, "two": false, "three": true, "called off": false} {
			if b, err := v.Get(plain, []byte(key)); err != nil || (b != nil) != want {
				t.Errorf("record %s is there: %v, %v, want %v", key, b != nil, err, want)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	s.close()
}
