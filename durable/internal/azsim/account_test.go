package azsim_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// tables returns a client for a table that it creates.
func tables(t *testing.T, a *azsim.Account, w *azsim.Worker) *aztables.Client {
	t.Helper()
	options := azcore.ClientOptions{Transport: w, Retry: policy.RetryOptions{MaxRetries: -1}}
	c, err := aztables.NewServiceClientFromConnectionString(a.ConnectionString(), &aztables.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	return c.NewClient("Rows")
}

func queue(t *testing.T, a *azsim.Account, w *azsim.Worker) *azqueue.QueueClient {
	t.Helper()
	options := azcore.ClientOptions{Transport: w, Retry: policy.RetryOptions{MaxRetries: -1}}
	c, err := azqueue.NewServiceClientFromConnectionString(a.ConnectionString(), &azqueue.ClientOptions{ClientOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	return c.NewQueueClient("messages")
}

func insert(ctx context.Context, c *aztables.Client, row string) error {
	_, err := c.AddEntity(ctx, fmt.Appendf(nil, `{"PartitionKey":"p","RowKey":%q}`, row), nil)
	return err
}

func TestWorker_SuffersEachFault(t *testing.T) {
	for _, tt := range []struct {
		fault   azsim.Fault
		applied bool
		status  int // of the response; 0 if it is lost
		dead    bool
	}{
		{azsim.None, true, 201, false},
		{azsim.Throttle, false, 503, false},
		{azsim.FailBefore, false, 0, false},
		{azsim.FailAfter, true, 0, false},
		{azsim.RefuseAfter, true, 500, false},
		{azsim.Slow, true, 201, false},
		{azsim.KillBefore, false, 0, true},
		{azsim.KillAfter, true, 0, true},
		{azsim.FreezeAfter, true, 0, false},
	} {
		t.Run("fault "+tt.fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: time.Second, Decide: func(r azsim.Request) azsim.Fault {
					if r.Operation == "InsertEntity" && r.Number == 2 {
						return tt.fault
					}
					return azsim.None
				}})
				defer a.End()
				w := a.Worker("w")
				c := tables(t, a, w)
				if _, err := c.CreateTable(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				err := insert(t.Context(), c, "r")
				refused, answered := errors.AsType[*azcore.ResponseError](err)
				switch {
				case err == nil && tt.status != 201:
					t.Errorf("no error; want status %d", tt.status)
				case answered && refused.StatusCode != tt.status:
					t.Errorf("status %d; want %d", refused.StatusCode, tt.status)
				case err != nil && !answered && tt.status != 0:
					t.Errorf("error %v; want status %d", err, tt.status)
				}
				if applied := len(a.Rows("Rows")) == 1; applied != tt.applied {
					t.Errorf("the row exists: %t; want %t", applied, tt.applied)
				}
				if err := insert(t.Context(), c, "next"); (err != nil) != tt.dead {
					t.Errorf("the next request: %v; the worker is dead: %t", err, tt.dead)
				}
			})
		})
	}
}

// Requests that a worker sent before it froze take effect later, even if their callers have
// given up.
func TestWorker_IsFrozen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
		defer a.End()
		w := a.Worker("w")
		c := tables(t, a, w)
		if _, err := c.CreateTable(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		w.Freeze(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := insert(ctx, c, "r"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v; want context.DeadlineExceeded", err)
		}
		if len(a.Rows("Rows")) != 0 || a.LateRequests() == 0 {
			t.Errorf("%d rows and %d late requests while the worker is frozen", len(a.Rows("Rows")), a.LateRequests())
		}
		time.Sleep(time.Minute)
		if n := len(a.Rows("Rows")); n != 1 {
			t.Errorf("%d rows after the freeze; want 1", n)
		}
	})
}

// A worker whose clock is ahead sends and receives times of its own clock.
func TestWorker_HasItsOwnClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := azsim.New(azsim.Config{Seed: 1})
		ahead := a.Worker("ahead")
		ahead.Skew(time.Hour)
		mine, others := queue(t, a, ahead), queue(t, a, a.Worker("right"))
		if _, err := mine.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := mine.EnqueueMessage(t.Context(), "it is 2000-01-01T00:00:00Z", nil); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			client *azqueue.QueueClient
			want   string
		}{{mine, "it is 2000-01-01T00:00:00.0000000Z"}, {others, "it is 2000-01-01T01:00:00.0000000Z"}} {
			peeked, err := tt.client.PeekMessages(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := *peeked.Messages[0].MessageText; got != tt.want {
				t.Errorf("text %q; want %q", got, tt.want)
			}
		}
	})
}

// A loose account may end pages anywhere, but a query still returns each row once.
func TestAccount_LooseQueriesFindEveryRowOnce(t *testing.T) {
	a := azsim.New(azsim.Config{Seed: 3, Loose: true})
	c := tables(t, a, a.Worker("w"))
	if _, err := c.CreateTable(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := insert(t.Context(), c, fmt.Sprintf("%02d", i)); err != nil {
			t.Fatal(err)
		}
	}
	short := 0
	for range 50 {
		var rows strings.Builder
		pages := 0
		for pager := c.NewListEntitiesPager(nil); pager.More(); pages++ {
			page, err := pager.NextPage(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Entities {
				_, row, _ := strings.Cut(string(e), `"RowKey":"`)
				rows.WriteString(row[:2] + " ")
			}
		}
		if pages > 1 {
			short++
		}
		if want := "00 01 02 03 04 05 06 07 08 09 10 11 12 13 14 15 16 17 18 19 "; rows.String() != want {
			t.Fatalf("rows %s; want each once", rows.String())
		}
	}
	if short == 0 {
		t.Error("no page was short")
	}
}
