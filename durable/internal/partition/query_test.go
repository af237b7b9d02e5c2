package partition

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

func TestInstances_ReportsUnreadableInstances(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{"a", "b", "c", "d"} {
		r.Start(id)
	}
	r.Must(r.writer.Do(t.Context(), func(t *txn) error {
		t.Put(instancesTable, []byte("b"), []byte{255})
		c, err := t.row("c")
		if err != nil {
			return err
		}
		c.Input = unread // its record does not exist
		return t.putRow(c)
	}))
	var got, unreadable string
	q := provider.Query{PageSize: 1, Fetch: provider.Fetch{Input: true}}
	for {
		page, err := r.Instances(t.Context(), q)
		r.Must(err)
		for _, s := range page.Instances {
			got += s.Instance.InstanceID
		}
		for _, u := range page.Unreadable {
			unreadable += u.InstanceID
		}
		if q.Continuation = page.Continuation; q.Continuation == "" {
			break
		}
	}
	if got != "ad" || unreadable != "bc" {
		t.Errorf("the pages contain %q, and report %q as unreadable; want ad and bc", got, unreadable)
	}
}

func TestInstances_ReadsOnlyTheRequestedPayloads(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Start("a")
	r.Must(r.writer.Do(t.Context(), func(t *txn) error {
		a, err := t.row("a")
		if err != nil {
			return err
		}
		a.Input, a.Output = unread, unread // their records do not exist
		return t.putRow(a)
	}))
	for fetch, readable := range map[provider.Fetch]bool{{}: true, {Input: true}: false, {Output: true}: false} {
		page, err := r.Instances(t.Context(), provider.Query{Fetch: fetch})
		r.Must(err)
		if got := len(page.Instances) == 1; got != readable {
			t.Errorf("%+v: readable: %t, want %t", fetch, got, readable)
		}
	}
}

func TestInstances_ReadNoHistoryOfAnEndedInstance(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, id := range []string{"ended", "running"} {
		r.Start(id)
	}
	for range 2 {
		item := r.Next()
		if item.Instance.InstanceID == "ended" {
			r.Finish(item, partitiontest.Ended())
		} else {
			r.Finish(item)
		}
	}
	before, err := r.Instance(t.Context(), "ended", provider.Fetch{})
	r.Must(err)
	r.Must(r.writer.Do(t.Context(), func(t *txn) error { // no history is readable
		for _, id := range []string{"ended", "running"} {
			state, err := t.row(id)
			if err != nil {
				return err
			}
			key, err := t.Last(historyTable, state.number)
			if err != nil {
				return err
			}
			t.Put(historyTable, key, []byte{255})
		}
		return nil
	}))
	page, err := r.Instances(t.Context(), provider.Query{})
	r.Must(err)
	if len(page.Instances) != 1 || len(page.Unreadable) != 1 || page.Unreadable[0].InstanceID != "running" {
		t.Fatalf("got %+v, want the ended instance; the running one is unreadable", page)
	}
	if diff := cmp.Diff(before, page.Instances[0]); diff != "" {
		t.Errorf("ended instance (-with its history +without):\n%s", diff)
	}
}
