package partitionlog_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// wantBlocked fails unless the hub reports the wanted blocked partitions, such as "[1 notOpened]".
func (s *simulated) wantBlocked(h *partitionlog.Hub, want string, wantAll bool) {
	s.Helper()
	blocked, all := h.BlockedPartitions()
	got := []string{}
	for _, b := range blocked {
		got = append(got, fmt.Sprint(b.Partition, " ", b.Problem))
		if b.Cause == "" || b.Since.IsZero() {
			s.Errorf("the report has no cause or time: %+v", b)
		}
	}
	if fmt.Sprint(got) != want || all != wantAll {
		s.Errorf("blocked partitions %v, all %v; want %s, %v", blocked, all, want, wantAll)
	}
}

// A worker reports the partitions that it cannot open, and logs each cause once a minute.
func TestHub_ReportsPartitionsThatItCannotOpen(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		stop := s.work(h)
		s.greet(durable.NewClient(h, greetings), 16)
		stop()
		vanish := func(prefix string) {
			s.account.Vanish(containerName, func(name string) bool { return strings.HasPrefix(name, prefix+"/log-") })
		}
		vanish("p01")
		text := new(bytes.Buffer)
		h, _ = s.openWith("next", partitionlog.Config{Logger: slog.New(slog.NewTextHandler(text, nil))})
		stop = s.work(h)
		time.Sleep(3*time.Minute + time.Second)
		s.wantBlocked(h, "[1 notOpened]", false)
		if blocked, _ := h.BlockedPartitions(); len(blocked) != 1 || time.Since(blocked[0].Since) < 3*time.Minute {
			s.Errorf("blocked partitions %+v, want one since the start of the worker", blocked)
		}
		stop()
		s.wantBlocked(h, "[]", false)
		if lines := strings.Count(text.String(), "cannot open a partition;"); lines < 3 || lines > 4 {
			s.Errorf("the log has %d lines in three minutes, want one per minute", lines)
		}
		for _, prefix := range []string{"p00", "p02", "p03"} {
			vanish(prefix)
		}
		h, _ = s.open("last")
		stop = s.work(h)
		time.Sleep(10 * time.Second)
		s.wantBlocked(h, "[0 notOpened 1 notOpened 2 notOpened 3 notOpened]", true)
		stop()
	})
}

// A worker tries to open a damaged partition every ten seconds, because each attempt reads the whole log and
// appends to it. It continues when the blobs are restored.
func TestHub_RetriesADamagedPartitionAtIntervals(t *testing.T) {
	inBubble(t, func(s *simulated) {
		s.filled()
		isBase := func(name string) bool { return strings.HasPrefix(name, "p01/base-") }
		base := slices.DeleteFunc(s.account.Blobs(), func(b azsim.Blob) bool { return !isBase(b.Name) })
		s.vanish(isBase)
		before := len(s.account.Log())
		h, _ := s.open("next")
		stop := s.work(h)
		defer stop()
		time.Sleep(10 * time.Minute)
		s.wantBlocked(h, "[1 notOpened]", false)
		appends := 0
		for _, e := range s.account.Log()[before:] {
			if e.Operation == "AppendBlock" && strings.Contains(e.Path, "/p01/log-") {
				appends++
			}
		}
		if appends < 100 || appends > 122 {
			s.Errorf("the worker appended %d times to the log in ten minutes; want twice per ten seconds", appends)
		}
		for _, b := range base {
			s.put(b.Name, string(b.Content))
		}
		time.Sleep(11 * time.Second)
		s.wantBlocked(h, "[]", false)
	})
}

// A worker reports the partitions whose mail it cannot read until it can read it.
func TestHub_ReportsPartitionsWhoseMailItCannotRead(t *testing.T) {
	inBubble(t, func(s *simulated) {
		var refused atomic.Pointer[string] // substring of the mailbox paths that cannot be read
		refused.Store(new("none"))
		s.account = azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond, Decide: func(r azsim.Request) azsim.Fault {
			if r.Operation == "GetBlob" && strings.Contains(r.Path, *refused.Load()) {
				return azsim.FailBefore
			}
			return azsim.None
		}})
		h, _ := s.open("w")
		stop := s.work(h)
		defer stop()
		s.greet(durable.NewClient(h, greetings), 16)
		s.wantBlocked(h, "[]", false)
		refused.Store(new("p02/mail-"))
		time.Sleep(time.Minute)
		s.wantBlocked(h, "[2 mailUnread]", false)
		refused.Store(new("/mail-"))
		time.Sleep(time.Minute)
		s.wantBlocked(h, "[0 mailUnread 1 mailUnread 2 mailUnread 3 mailUnread]", true)
		refused.Store(new("none"))
		time.Sleep(time.Minute)
		s.wantBlocked(h, "[]", false)
	})
}
