package bloblog

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
)

// The test freezes an owner at each of its requests while its hub is deleted and created again.
// When the owner wakes, it appends nothing, and the log of the new hub stays readable.
func TestLog_AnOwnerOfADeletedHubWritesNothingIntoTheNewOne(t *testing.T) {
	config := func(c *store.Container, hub string) Config {
		return Config{Blobs: c, Hub: hub, Confirm: chaintest.Confirm(c, hub), Prefix: "p00/", MaxBlock: 300, MaxSize: 4000}
	}
	last := func(r *chaintest.Replacement, who string, l *Log, last, most uint64) uint64 {
		for last < most {
			late := r.IsDone()
			if err := l.Append(last+1, parts(fmt.Appendf(nil, "%s %d", who, last+1))); err != nil {
				return last
			}
			if late && who == "old" {
				r.Errorf("group %d was acknowledged to an owner of the deleted hub", last+1)
			}
			if last++; last%3 == 0 {
				l.Rotate()
			}
		}
		return last
	}
	end := func(l *Log) {
		_ = l.Close(false)
		l.Abandon()
		l.renewal.Wait()
		l.tasks.Wait()
	}
	var acknowledged uint64
	old := func(r *chaintest.Replacement) {
		acknowledged = 0
		for range 2 {
			late := r.IsDone()
			l, left, err := Open(r.Context(), config(r.Old, "old"))
			if late && !errors.Is(err, chaintest.ErrReplaced) {
				r.Errorf("an owner of the deleted hub opens the log: %v; want %v", err, chaintest.ErrReplaced)
			}
			if err != nil {
				continue
			}
			last(r, "old", l, left.Last, left.Last+5)
			end(l)
		}
	}
	replacing := func(r *chaintest.Replacement) {
		began := time.Now()
		defer func() {
			if took := time.Since(began); took > 5*time.Second {
				r.Errorf("blobs of the deleted hub delayed the new one by %v", took)
			}
		}()
		for range 2 {
			l, left, err := Open(r.Context(), config(r.New, "new"))
			if err != nil {
				r.Errorf("the new hub: %v", err)
				return
			}
			if left.Last != acknowledged {
				r.Errorf("the new hub has %d groups, want %d", left.Last, acknowledged)
			}
			acknowledged = last(r, "new", l, left.Last, left.Last+5)
			if acknowledged != left.Last+5 {
				r.Errorf("%d groups were acknowledged, want %d: %v", acknowledged, left.Last+5, l.Err())
			}
			end(l)
		}
	}
	chaintest.EachReplacement(t, 25, old, replacing)
}
