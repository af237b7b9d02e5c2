package azsim

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestStandard_HasTheDocumentedDurations(t *testing.T) {
	var s Standard
	for operation, want := range map[string][2]time.Duration{
		"AppendBlock": {12 * time.Millisecond, 60 * time.Millisecond},
		"PutMessage":  {6 * time.Millisecond, 30 * time.Millisecond},
		"GetBlob":     {6 * time.Millisecond, 30 * time.Millisecond},
	} {
		var all []time.Duration
		for n := range uint64(20_000) {
			all = append(all, s.Delay(Request{Operation: operation, Roll: mix(n)}, 1))
		}
		slices.Sort(all)
		for i, place := range []int{len(all) / 2, len(all) * 99 / 100} {
			if got := all[place]; got < want[i]*95/100 || got > want[i]*105/100 {
				t.Errorf("%s: the duration at place %d of %d is %v; want %v", operation, place, len(all), got, want[i])
			}
		}
		if all[0] <= 0 || all[len(all)-1] > time.Second {
			t.Errorf("%s: durations range from %v to %v", operation, all[0], all[len(all)-1])
		}
	}
}

func TestStandard_RefusesRequestsOverALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			name  string
			r     func(n int) Request
			limit int
		}{
			{"one blob", func(int) Request { return Request{Service: BlobService, Target: "c", Path: "/c/b"} }, 500},
			{"one queue", func(int) Request { return Request{Service: QueueService, Target: "q", Path: "/q/messages"} }, 2_000},
			{"one partition of a table", func(int) Request {
				return Request{Service: TableService, Target: "T", Path: "/T(PartitionKey='a',RowKey='b')"}
			}, 2_000},
			{"the list of a container", func(int) Request { return Request{Service: BlobService, Target: "c", Path: "/c"} }, 20_000},
			{"many blobs", func(n int) Request {
				return Request{Service: BlobService, Target: "c", Path: "/c/" + string(rune('a'+n%100))}
			}, 20_000},
		} {
			var s Standard
			refused := func(requests int) (n int) {
				before := s.Refused()
				for i := range requests {
					if s.Decide(tt.r(i)) == Throttle {
						n++
					}
				}
				if counted := s.Refused() - before; counted != n {
					t.Errorf("%s: %d requests were refused, but Refused returned %d", tt.name, n, counted)
				}
				return n
			}
			if n := refused(tt.limit + 7); n != 7 {
				t.Errorf("%s: %d of %d simultaneous requests were refused; want 7", tt.name, n, tt.limit+7)
			}
			time.Sleep(time.Second / 2)
			if n := refused(tt.limit); n != tt.limit/2 {
				t.Errorf("%s: half a second later, %d of %d requests were refused; want half of them", tt.name, n, tt.limit)
			}
		}
	})
}
