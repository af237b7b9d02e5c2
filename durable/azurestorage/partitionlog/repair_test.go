package partitionlog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// repair runs a repair, or a dry run if apply is false. It reports requests that delete or
// overwrite a blob, and all writes of a dry run.
func (s *simulated) repair(apply bool) (*partitionlog.Report, error) {
	s.Helper()
	return s.repairOf(partitionlog.DefaultPartitionCount, apply)
}

// repairOf is repair of a hub with the given number of partitions.
func (s *simulated) repairOf(partitions int, apply bool) (*partitionlog.Report, error) {
	s.Helper()
	c, err := azurestorage.ParseConnectionString(s.account.ConnectionString())
	if err != nil {
		s.Fatal(err)
	}
	before := len(s.account.Log())
	r, err := partitionlog.Repair(s.Context(), c, partitionlog.Config{TaskHub: "Sim", PartitionCount: partitions, Transport: s.account.Worker("operator"), Logger: slog.New(slog.DiscardHandler)}, apply)
	for _, e := range s.account.Log()[before:] {
		reads := e.Operation == "GetBlob" || e.Operation == "ListBlobs"
		if e.Worker == "operator" && e.Status < 300 && (e.Operation == "DeleteBlob" || !apply && !reads) {
			s.Errorf("the repair makes the request %v", e)
		}
	}
	return r, err
}

// problems returns the unrepaired problems of a report.
func problems(r *partitionlog.Report) (all []string) {
	for _, p := range r.Problems {
		text := p.What + " | " + p.Lost
		if p.Repair != "" {
			text += " | " + p.Repair
		}
		if !p.Repaired {
			all = append(all, text)
		}
	}
	return all
}

// filled runs a worker that completes instances and leaves several blobs in each log. It returns
// the instances by partition.
func (s *simulated) filled() (byPartition map[int][]string) {
	s.Helper()
	h, _ := s.open("w")
	stop := s.work(h)
	s.greet(durable.NewClient(h, greetings), 40)
	client, _ := s.open("client")
	s.greet(durable.NewClient(client, greetings), 8) // by mail
	for n := range partitionlog.DefaultPartitionCount {
		if err := errors.Join(h.Flush(s.Context(), n, 2), h.Roll(s.Context(), n)); err != nil {
			s.Fatal(err)
		}
	}
	byPartition = make(map[int][]string)
	for _, id := range s.ids(h) {
		place, err := h.QueuePosition(s.Context(), id)
		if err != nil {
			s.Fatal(err)
		}
		byPartition[place.Partition] = append(byPartition[place.Partition], id)
	}
	if err := client.Close(); err != nil {
		s.Error(err)
	}
	stop()
	return byPartition
}

// vanish deletes blobs behind the hub's back.
func (s *simulated) vanish(is func(name string) bool) {
	s.Helper()
	if n := s.account.Vanish(containerName, is); n == 0 {
		s.Fatal("no blob was deleted")
	}
}

// wantUsable runs a worker and a client in another process. Both must see all instances of the
// partition, and new instances in it must complete.
func (s *simulated) wantUsable(partition int, ids []string) {
	s.Helper()
	h, _ := s.open("next")
	stop := s.work(h)
	defer stop()
	client, _ := s.open("caller")
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	for _, id := range ids {
		if _, err := client.Instance(ctx, id, provider.Fetch{}); err != nil {
			s.Errorf("partition %d: instance %s: %v", partition, id, err)
		}
	}
	id := ""
	for n := 0; id == ""; n++ {
		if place, _ := client.QueuePosition(ctx, fmt.Sprint("new", n)); place.Partition == partition { // another partition may be damaged
			id = fmt.Sprint("new", n)
		}
	}
	err := startHello(ctx, client, id)
	if err == nil {
		err = client.AwaitEnd(ctx, id)
	}
	if err != nil {
		s.Errorf("partition %d: a new instance: %v", partition, err)
	}
	if err := client.Close(); err != nil {
		s.Error(err)
	}
}

// Blobs vanish. A dry run reports each loss and writes nothing. The repair does what the report
// says, and a second repair finds nothing to do.
func TestRepair_ReportsAndRepairsMissingBlobs(t *testing.T) {
	of := func(parts ...string) func(string) bool {
		return func(name string) bool {
			return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(name, part) })
		}
	}
	const untaken = "mail that partition 1 had not received: requests of clients and messages of other partitions. Instances that wait for it keep waiting"
	for name, tt := range map[string]struct {
		vanish func(string) bool
		want   []string // one per problem
		left   int      // number of unrepaired problems
		usable bool     // partition 1 is usable after the repair
		newest bool     // only the newest of the blobs vanishes
	}{
		"nothing":                  {nil, nil, 0, true, false},
		"hub.json":                 {of("hub.json"), []string{"hub.json is missing | nothing | creates hub.json with the ID "}, 0, true, false},
		"a mailbox":                {of("p01/mail-"), []string{"p01/mail-0000000001: the mailbox blob that the partition reads next is missing | " + untaken + " | creates the mailbox blob p01/mail-0000000002,"}, 0, true, false},
		"hub.json and a mailbox":   {of("hub.json", "p01/mail-"), []string{"hub.json is missing | nothing | ", "p01/mail-0000000001: the mailbox blob that the partition reads next is missing | "}, 0, true, false},
		"a log":                    {of("p01/log-"), []string{"p01/log-: all blobs of the log are missing | the instances of partition 1, until the blobs are restored; its "}, 1, false, false},
		"a log and a mailbox":      {of("p01/log-", "p01/mail-"), []string{"p01/log-: all blobs of the log are missing | ", "p01/mail-0000000001: all blobs of the mailbox are missing | " + untaken}, 2, false, false},
		"all blobs":                {of("p01/"), []string{"p01/log-: all blobs of the log are missing | ", "p01/mail-0000000001: all blobs of the mailbox are missing | "}, 2, false, false},
		"the newest blob of a log": {of("p01/log-"), []string{" is damaged at offset 0: it is missing, but the next blob "}, 1, false, true},
		"files of a base":          {of("p01/base-"), []string{" files of the base | the records of partition 1 in these files, until they are restored"}, 1, false, false},
		"the log and hub.json":     {of("hub.json", "p01/log-"), []string{"hub.json is missing | nothing | ", "p01/log-: all blobs of the log are missing | "}, 1, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(s *simulated) {
				ids := s.filled()
				vanish := tt.vanish
				if tt.newest {
					var newest string
					for _, b := range s.account.Blobs() {
						if tt.vanish(b.Name) {
							newest = max(newest, b.Name)
						}
					}
					vanish = func(name string) bool { return name == newest }
				}
				if len(tt.want) > 0 {
					s.vanish(vanish)
				}
				found, err := s.repair(false)
				if err != nil {
					s.Fatal(err)
				}
				all := problems(found)
				if len(all) != len(tt.want) || found.Remaining() != len(all) {
					s.Fatalf("found %q; want %q", all, tt.want)
				}
				for i, want := range tt.want {
					if !strings.Contains(all[i], want) {
						s.Errorf("problem %d is %q; want %q", i, all[i], want)
					}
				}
				if n := len(found.Partitions); n != partitionlog.DefaultPartitionCount || found.Partitions[0].Log.Blobs == 0 || found.Partitions[0].Log.Bytes == 0 || found.Partitions[0].Base.Blobs == 0 || found.Partitions[0].Mailbox.Blobs != 1 {
					s.Errorf("got %d partitions, the first with %+v", n, found.Partitions[0])
				}
				done, err := s.repair(true)
				if err != nil || len(done.Problems) != len(tt.want) || done.Remaining() != tt.left {
					s.Errorf("first repair: %+v, %v; want %d remaining problems", done, err, tt.left)
				}
				again, err := s.repair(true)
				if err != nil || len(again.Problems) != tt.left || again.Remaining() != tt.left {
					s.Errorf("second repair: %+v, %v; want %d problems", again, err, tt.left)
				}
				if tt.usable {
					s.wantUsable(1, ids[1])
				}
				s.wantUsable(0, ids[0])
			})
		})
	}
}

// A repair reads the base files completely and reports each damaged part.
func TestRepair_ReportsDamagedBaseFiles(t *testing.T) {
	inBubble(t, func(s *simulated) {
		ids := s.filled()
		damage := func(prefix string, at func(size int) int) (name string) {
			for _, b := range s.account.Blobs() {
				if strings.HasPrefix(b.Name, prefix) && b.Name > name {
					name = b.Name
				}
			}
			for _, b := range s.account.Blobs() {
				if b.Name == name {
					content := []byte(string(b.Content))
					content[at(len(content))] ^= 1
					s.put(b.Name, string(content))
				}
			}
			return name
		}
		block := damage("p01/base-", func(int) int { return 1 })
		tail := damage("p02/base-", func(size int) int { return size - 1 })
		for _, apply := range []bool{false, true} {
			r, err := s.repair(apply)
			if err != nil {
				s.Fatal(err)
			}
			all := problems(r)
			if len(all) != 2 || !strings.HasPrefix(all[0], block+": damaged at byte 0: ") || !strings.HasPrefix(all[1], tail+": damaged at byte ") {
				s.Errorf("found %q; want damage of %s and of %s", all, block, tail)
			}
		}
		s.wantUsable(0, ids[0])
	})
}

// Repair does not create a missing hub. A container with only the empty blobs of a deleted hub
// counts as missing, too.
func TestRepair_CreatesNoHub(t *testing.T) {
	inBubble(t, func(s *simulated) {
		if _, err := s.repair(true); !errors.Is(err, partitionlog.ErrNoHub) {
			s.Errorf("no container: %v; want ErrNoHub", err)
		}
		h, _ := s.open("w")
		if err := h.Check(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.vanish(func(name string) bool { return name == "hub.json" })
		if _, err := s.repair(true); !errors.Is(err, partitionlog.ErrNoHub) {
			s.Errorf("a hub without records: %v; want ErrNoHub", err)
		}
		_ = h.Close() // its hub was deleted
	})
}

// Repairing a mailbox requires acquiring the partition. If that fails, the report shows the repairs
// made before.
func TestRepair_OfAMailboxNeedsThePartition(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		stop := s.work(h)
		defer stop()
		s.greet(durable.NewClient(h, greetings), 8)
		s.vanish(func(name string) bool { return strings.HasPrefix(name, "p01/mail-") || name == "hub.json" })
		r, err := s.repair(true)
		if !errors.Is(err, provider.ErrHubBusy) || len(r.Problems) != 2 || !r.Problems[0].Repaired || r.Problems[1].Repaired {
			s.Errorf("%+v, %v; want ErrHubBusy after hub.json was created", r, err)
		}
	})
}

// Random blobs vanish. The dry run and the repair report the same problems, and a second repair has
// nothing to do. Partitions without problems are usable.
func TestRepair_RepairsEverythingItCan(t *testing.T) {
	for seed := range uint64(testshare.Amount(40, 8)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			inBubble(t, func(s *simulated) {
				ids := s.filled()
				random := rand.New(rand.NewPCG(seed, 0))
				share := random.IntN(30)
				s.account.Vanish(containerName, func(string) bool { return random.IntN(100) < share })
				found, err := s.repair(false)
				if err != nil {
					s.Fatal(err)
				}
				done, err := s.repair(true)
				if err != nil || len(done.Problems) != len(found.Problems) {
					s.Fatalf("first repair: %+v, %v; want the problems of the dry run: %+v", done, err, found)
				}
				left, err := s.repair(true)
				if err != nil || left.Remaining() != done.Remaining() {
					s.Fatalf("second repair: %+v, %v; want the remaining problems: %+v", left, err, done)
				}
				for _, p := range left.Problems {
					if p.Repair != "" {
						s.Errorf("not repaired: %+v", p)
					}
				}
				for n := range partitionlog.DefaultPartitionCount {
					whole := !slices.ContainsFunc(left.Problems, func(p partitionlog.Problem) bool { return strings.Contains(p.What, fmt.Sprintf("p%02d/", n)) })
					if whole && n < 2 {
						s.wantUsable(n, ids[n])
					}
				}
				if s.Failed() {
					s.Logf("found %+v", found)
				}
			})
		})
	}
}
