package taskhub

import (
	"context"
	"errors"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// busyHub is a hub with overloaded storage.
type busyHub struct{ provider.Provider }

func (busyHub) IsBusy() bool                { return true }
func (busyHub) Check(context.Context) error { return nil }
func (busyHub) Instances(context.Context, provider.Query) (*provider.Page, error) {
	return &provider.Page{}, nil
}

// A busy hub refuses only the first page of a list.
func TestClient_RefusesNoListAfterItsFirstPage(t *testing.T) {
	c := Client{Hub: busyHub{}}
	_, err := c.Instances(t.Context(), provider.Query{})
	if _, refused := errors.AsType[*OutageError](err); !refused {
		t.Errorf("the first page ended with %v", err)
	}
	if _, err := c.Instances(t.Context(), provider.Query{Continuation: "next"}); err != nil {
		t.Errorf("the second page ended with %v", err)
	}
}
