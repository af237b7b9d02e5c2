package partitionlog_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// containerName is the container of the simulated hubs.
const containerName = "sim-log"

// put creates a block blob in the container.
func (s *simulated) put(name, content string) {
	s.Helper()
	s.create(name, http.Header{"X-Ms-Blob-Type": {"BlockBlob"}}, content)
}

// create creates a blob in the container through the account's HTTP interface.
func (s *simulated) create(name string, header http.Header, content string) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPut, "https://sim.blob.core.windows.net/"+containerName+"/"+name, strings.NewReader(content))
	if err != nil {
		s.Fatal(err)
	}
	r.Header = header
	r.Header.Set("x-ms-version", "2025-01-05")
	answer, err := s.account.Worker("operator").Do(r)
	if err != nil || answer.StatusCode != http.StatusCreated {
		s.Fatal(answer, err)
	}
	_ = answer.Body.Close() // it is in memory
}

// content returns the content of a blob.
func (s *simulated) content(name string) string {
	for _, b := range s.account.Blobs() {
		if b.Name == name {
			return string(b.Content)
		}
	}
	return ""
}

// names returns the names of the blobs of partition n.
func (s *simulated) names(n int) string {
	var all []string
	for _, b := range s.account.Blobs() {
		if strings.HasPrefix(b.Name, fmt.Sprintf("p%02d/", n)) {
			all = append(all, b.Name)
		}
	}
	return fmt.Sprint(all)
}

// startHello starts an instance through the provider interface.
func startHello(ctx context.Context, h *partitionlog.Hub, id string) error {
	instance := history.OrchestrationInstance{InstanceID: id, ExecutionID: "e"}
	start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "Hello", Instance: instance}
	return h.StartInstance(ctx, provider.TaskMessage{Event: start, Target: instance}, nil)
}

// wantDamage fails unless err is a DamageError.
func (s *simulated) wantDamage(what string, err error) {
	s.Helper()
	if !errors.As(err, new(*partitionlog.DamageError)) {
		s.Errorf("%s: %v; want a DamageError", what, err)
	}
}

// olderHub changes hub.json to the content of an older version, which did not create logs and
// mailboxes with the hub.
func (s *simulated) olderHub() {
	s.Helper()
	info := s.content("hub.json")
	older := strings.Replace(info, `,"chains":"created"`, "", 1)
	if older == info {
		s.Fatal("hub.json does not record the creation of the chains:  ", info)
	}
	s.put("hub.json", older)
}

// Blobs of a partition vanish while no worker is running. The partition is not served as empty, its
// missing blobs are not created again, and the other partitions work.
func TestHub_APartitionWithoutItsBlobsIsNotServedEmpty(t *testing.T) {
	const lost = 1
	all := func(string) bool { return true }
	log := func(name string) bool { return strings.Contains(name, "/log-") }
	mail := func(name string) bool { return strings.Contains(name, "/mail-") }
	newest := func(name string) bool { return strings.HasSuffix(name, "/log-0000000003") }
	for name, tt := range map[string]struct {
		older  bool
		is     func(name string) bool
		served bool
	}{
		"all":                         {is: all},
		"the log":                     {is: log},
		"the newest blob of the log":  {is: newest},
		"the mailbox":                 {is: mail, served: true},
		"the log of an older hub":     {is: log, older: true},
		"the mailbox of an older hub": {is: mail, older: true, served: true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *simulated) {
				h, _ := s.open("w")
				stop := s.work(h)
				s.greet(durable.NewClient(h, greetings), 40)
				if err := h.Roll(s.Context(), lost); err != nil {
					s.Fatal(err)
				}
				var id, other string
				for n := 0; id == "" || other == ""; n++ {
					place, err := h.QueuePosition(s.Context(), fmt.Sprint("i", n))
					if err != nil {
						s.Fatal(err)
					}
					if place.Partition == lost {
						id = fmt.Sprint("i", n)
					} else {
						other = fmt.Sprint("i", n)
					}
				}
				for _, id := range []string{id, other} {
					if err := startHello(s.Context(), h, id); err != nil {
						s.Fatal(err)
					}
				}
				stop()
				if tt.older {
					s.olderHub()
					s.put("p01/base-0000000001-a", "records")
				}
				if n := s.account.Vanish(containerName, func(name string) bool { return strings.HasPrefix(name, "p01/") && tt.is(name) }); n == 0 {
					s.Fatalf("no blob was deleted; the partition has %s", s.names(lost))
				}
				left := s.names(lost)

				h, _ = s.open("next")
				stop = s.work(h)
				defer stop()
				client, _ := s.open("client")
				for who, h := range map[string]*partitionlog.Hub{"worker": h, "client": client} {
					ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
					_, err := h.Instance(ctx, id, provider.Fetch{})
					if tt.served && err != nil {
						s.Errorf("%s: %v; want the instance", who, err)
					} else if !tt.served {
						s.wantDamage("read by a "+who, err)
						_, err = h.Instances(ctx, provider.Query{})
						s.wantDamage("list by a "+who, err)
						s.wantDamage("start by a "+who, startHello(ctx, h, id))
					}
					if _, err := h.Instance(ctx, other, provider.Fetch{}); err != nil {
						s.Errorf("%s: the instance of another partition: %v", who, err)
					}
					cancel()
				}
				time.Sleep(6 * time.Minute) // a sweep would delete files after five minutes
				if now := s.names(lost); !tt.served && now != left {
					s.Errorf("the partition has %s, want %s", now, left)
				}
				if tt.served && !tt.older {
					s.wantDamage("send by a client", client.Send(s.Context(), event(id)))
					if now := s.names(lost); strings.Contains(now, "/mail-") {
						s.Errorf("the mailbox was created again: %s", now)
					}
				}
				if err := client.Close(); err != nil {
					s.Error(err)
				}
			})
		})
	}
}

// A hub is not created in a container with the records of another hub's partitions or with other
// blobs.
func TestHub_IsNotCreatedAmongOtherBlobs(t *testing.T) {
	all := func(string) bool { return true }
	for name, tt := range map[string]struct {
		vanish   func(name string) bool
		put      string // name of a blob to create instead
		contents string
		want     string
	}{
		"partitions":  {func(name string) bool { return name == "hub.json" }, "", "", "hub.json is missing, and p0"},
		"a base":      {all, "p02/base-0000000001-a", "records", "hub.json is missing, and p02/base-0000000001-a has records"},
		"other blobs": {all, "holidays/beach.jpg", "sand", "it holds holidays/beach.jpg, which is not a blob of a task hub"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *simulated) {
				h, _ := s.open("w")
				stop := s.work(h)
				s.greet(durable.NewClient(h, greetings), 16)
				stop()
				s.account.Vanish(containerName, tt.vanish)
				if tt.put != "" {
					s.put(tt.put, tt.contents)
				}
				before := len(s.account.Log())
				h, _ = s.open("next")
				ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
				defer cancel()
				err := h.Run(ctx)
				if !errors.As(err, new(*partitionlog.FormatError)) || !strings.Contains(err.Error(), tt.want) {
					s.Errorf("Run: %v; want a FormatError with %q", err, tt.want)
				}
				for _, e := range s.account.Log()[before:] {
					if e.Status < 300 && e.Operation != "GetBlob" && e.Operation != "ListBlobs" {
						s.Errorf("unexpected write: %v", e)
					}
				}
				if err := h.Close(); err != nil {
					s.Error(err)
				}
			})
		})
	}
}

// A process dies at each request of a hub's creation, or another process creates the hub at the
// same time, or both. All processes see the same hub, and it works.
func TestHub_IsCreatedOnceDespiteCrashesAndRaces(t *testing.T) {
	requests := 0
	for at := 0; at <= requests; at++ {
		for _, together := range []bool{false, true} {
			inOrder(t, func(s *simulated) {
				var asked atomic.Int64
				s.account = azsim.New(azsim.Config{
					Seed: uint64(at), MinLatency: time.Millisecond, MaxLatency: 20 * time.Millisecond,
					Decide: func(r azsim.Request) azsim.Fault {
						if r.Worker != "first" {
							return azsim.None
						}
						if asked.Add(1) == int64(at) {
							return azsim.KillAfter
						}
						return azsim.None
					},
				})
				first, _ := s.openWith("first", partitionlog.Config{PartitionCount: 2})
				done := make(chan error, 1)
				check := func() { done <- first.Check(s.Context()) }
				if together {
					go check()
				} else {
					check()
				}
				second, _ := s.openWith("second", partitionlog.Config{PartitionCount: 2})
				if err := second.Check(s.Context()); err != nil {
					s.Errorf("the second process: %v", err)
				}
				if err := <-done; err != nil && at == 0 {
					s.Errorf("the first process: %v", err)
				}
				requests = max(requests, int(asked.Load()))
				stop := s.work(second)
				s.greet(durable.NewClient(second, greetings), 4)
				stop()
				if at == 0 {
					if _, err := first.Instances(s.Context(), provider.Query{}); err != nil {
						s.Errorf("the first process: %v", err)
					}
				}
				_ = first.Close() // it may be dead
				if s.Failed() {
					s.Logf("killed after request %d, concurrent creation %v:\n%s", at, together, s.account.Trace())
				}
			})
		}
	}
	if requests < 8 {
		t.Errorf("the creation took %d requests, want at least 8", requests)
	}
}
