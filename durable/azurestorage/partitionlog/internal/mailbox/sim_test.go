package mailbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain/chaintest"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/testshare"
)

var seeds = chaintest.NewSeeds("mail")

// world is a mailbox in a simulated account and the state of its partition: the position, and for
// each sender the number of its last received mail.
type world struct {
	t       *testing.T
	account *azsim.Account
	brief   bool // each mail comes from another process

	mu       sync.Mutex
	position Position       // durable position
	owner    int            // the only owner that may change the position
	taken    map[string]int // by sender: number of the last received mail
	sent     map[string]int // by sender: number of the last mail that Send confirmed
}

func newWorld(t *testing.T, cfg azsim.Config) *world {
	return &world{t: t, account: chaintest.NewAccount(t, cfg), taken: map[string]int{}, sent: map[string]int{}}
}

func (w *world) config(p *chaintest.Process) Config {
	cfg := Config{Blobs: chaintest.Simulated(w.t, w.account, p), Hub: "hub", Prefix: "p00/", MaxBlocks: 7, MaxBlock: 100}
	if w.brief {
		cfg.MaxBlocks = 30
	}
	return cfg
}

// send sends numbered mail, each until Send confirms it.
func (w *world) send(who string, cfg Config, random *rand.Rand, stop func() bool) {
	s := NewSender(cfg)
	for n := 1; !stop(); n++ {
		mail := fmt.Sprintf("%s:%d:", who, n)
		if random.IntN(6) == 0 {
			mail += strings.Repeat("long", 50)
		}
		for {
			err := s.Send(w.t.Context(), []byte(mail), Label{})
			if err == nil {
				break
			}
			if bloberror.HasCode(err, bloberror.BlockCountExceedsLimit) {
				w.t.Errorf("%s: %v", who, err)
			}
			if stop() {
				return
			}
			if random.IntN(4) == 0 { // another process continues
				s = NewSender(cfg)
			}
			time.Sleep(time.Second)
		}
		w.mu.Lock()
		w.sent[who] = n
		w.mu.Unlock()
		if w.brief {
			s = NewSender(cfg)
		}
		if random.IntN(10) == 0 {
			time.Sleep(time.Duration(random.IntN(100)) * time.Second)
		}
		time.Sleep(time.Duration(random.IntN(2000)) * time.Millisecond)
	}
}

// consume applies items on behalf of an owner. It returns false if another owner has taken over.
func (w *world) consume(owner int, items []Item) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if owner != w.owner {
		return false
	}
	for _, item := range items {
		fields := strings.Split(string(item.Payload), ":")
		n, err := strconv.Atoi(fields[1])
		if err != nil || fields[2] != "" && fields[2] != strings.Repeat("long", 50) {
			w.t.Errorf("received invalid mail %q", item.Payload)
		}
		switch last := w.taken[fields[0]]; {
		case n == last+1:
			w.taken[fields[0]] = n
		case n > last:
			w.t.Errorf("received mail %d of %s after mail %d", n, fields[0], last)
		}
		w.position = item.End
	}
	return true
}

// receive acts as the next owner for a while, from the durable position on.
func (w *world) receive(cfg Config, random *rand.Rand, stop func() bool) {
	w.mu.Lock()
	w.owner++
	owner, from := w.owner, w.position
	w.mu.Unlock()
	r := NewReceiver(cfg, from)
	for rounds := random.IntN(100); rounds > 0 && !stop(); rounds-- {
		ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second) // as the owner in production does
		batch, err := r.Next(ctx, 1)
		cancel()
		items := batch.Items
		if err == nil && len(items) > 0 {
			if !w.consume(owner, items) {
				return
			}
			if random.IntN(3) > 0 {
				_ = r.DeleteUpTo(w.t.Context(), items[len(items)-1].End)
			}
		}
		w.mu.Lock()
		owns := owner == w.owner
		w.mu.Unlock()
		if !owns {
			return
		}
		if errors.As(err, new(*chain.DamageError)) {
			w.t.Errorf("owner %d: %v", owner, err)
			return
		}
		time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
}

// loseEnds removes the last end frame of each mailbox blob, as a failover of the account can.
func (w *world) loseEnds() {
	end := chain.New(nil, "hub", "p00/mail-", nil).AppendFrame(nil, chain.Frame{Kind: kindEnd})
	for _, b := range w.account.Blobs() {
		if before, ends := bytes.CutSuffix(b.Content, end); ends {
			w.account.Shorten(b.Container, b.Name, len(before))
		}
	}
}

// end receives the remaining mail in a process without faults.
func (w *world) end() {
	w.owner++
	r := NewReceiver(w.config(chaintest.NewProcess(w.account.Worker(chaintest.Last))), w.position)
	for {
		items, err := look(w.t, r)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(items) == 0 {
			break
		}
		w.consume(w.owner, items)
		if err := r.DeleteUpTo(w.t.Context(), w.position); err != nil {
			w.t.Error(err)
		}
	}
	for who, n := range w.sent {
		if w.taken[who] < n {
			w.t.Errorf("%s: Send confirmed %d mails; %d were received", who, n, w.taken[who])
		}
	}
}

func TestMailbox_KeepsMailAndOrderUnderFaults(t *testing.T) {
	seeds.Each(t, 20*time.Minute, func(t *testing.T, seed uint64, stop func() bool) {
		cfg, brief := chaintest.FaultyConfig(seed, 15+30*(seed%4), stop), seed%5 == 0
		if brief {
			cfg.MaxBlocks = 45 // room for some end frames
		}
		w := newWorld(t, cfg)
		w.brief = brief
		var all sync.WaitGroup
		for i := range uint64(3) {
			name := fmt.Sprintf("sender %d", i)
			p := chaintest.NewProcess(w.account.Worker(name))
			p.Freeze = chaintest.RandomFreezes(seed*10+i, 60, stop)
			all.Go(func() { w.send(name, w.config(p), rand.New(rand.NewPCG(seed, i)), stop) })
		}
		for i := range uint64(2) {
			p := chaintest.NewProcess(w.account.Worker(fmt.Sprintf("owner %d", i)))
			p.Freeze = chaintest.RandomFreezes(seed*10+5+i, 60, stop)
			random := rand.New(rand.NewPCG(seed, 5+i))
			all.Go(func() {
				for !stop() {
					w.receive(w.config(p), random, stop)
					time.Sleep(time.Duration(random.IntN(60)) * time.Second)
				}
			})
		}
		if seed%2 == 0 {
			random := rand.New(rand.NewPCG(seed, 9))
			all.Go(func() {
				for !stop() {
					time.Sleep(time.Duration(random.IntN(120)) * time.Second)
					w.account.Restore("")
				}
			})
		}
		if seed%3 == 1 {
			random := rand.New(rand.NewPCG(seed, 10))
			all.Go(func() {
				for !stop() {
					time.Sleep(time.Duration(random.IntN(120)) * time.Second)
					w.loseEnds()
				}
			})
		}
		all.Wait()
		w.account.Wait()
		w.end()
		w.account.Wait()
		t.Logf("sent %v; the position is in blob %d; %d blobs remain", w.sent, w.position.Blob, len(w.account.Blobs()))
		chaintest.LogEnd(t, w.account, 100)
	})
}

// The test freezes a sender before or after each of its requests. Meanwhile other senders send, and
// the receiver deletes received mail. Then the sender wakes.
func TestMailbox_AFrozenSenderLosesNoMailWhenItWakes(t *testing.T) {
	t.Parallel()
	requests := 0
	for at := 1; at == 1 || at <= requests; at += testshare.Amount(1, 4) {
		for i := range 4 {
			after, long := i%2 == 0, time.Duration(i/2)*4*time.Minute+50*time.Second
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, azsim.Config{MinLatency: time.Millisecond, MaxLatency: 2 * time.Millisecond})
				send := func(who string, p *chaintest.Process, n int) {
					s := NewSender(w.config(p))
					for i := range n {
						for tries := 1; ; tries++ {
							err := s.Send(w.t.Context(), fmt.Appendf(nil, "%s:%d:", who, i+1), Label{})
							if err == nil {
								break
							}
							if tries == 20 {
								t.Errorf("%s: %v", who, err)
								return
							}
							time.Sleep(time.Second)
						}
						w.mu.Lock()
						w.sent[who] = i + 1
						w.mu.Unlock()
						time.Sleep(time.Second)
					}
				}
				p := chaintest.NewProcess(w.account.Worker("first"))
				p.Freeze = func(n int, is bool) time.Duration {
					if n == at && is == after {
						return long
					}
					return 0
				}
				var first sync.WaitGroup
				first.Go(func() { send("first", p, 16) })
				first.Go(func() { send("second", chaintest.NewProcess(w.account.Worker("second")), 25) })
				for owner := range 3 {
					time.Sleep(10 * time.Second)
					w.receive(w.config(chaintest.NewProcess(w.account.Worker("owner"))), rand.New(rand.NewPCG(uint64(owner), 100)), func() bool { return false })
				}
				first.Wait()
				w.end()
				w.account.Wait()
				if t.Failed() {
					t.Logf("frozen at request %d, after its effect: %v, for %v\n%s", at, after, long, w.account.Trace())
				}
				requests = max(requests, min(p.Requests(), 60))
			})
			if t.Failed() {
				return
			}
		}
	}
	if requests < 20 {
		t.Errorf("the sender made %d requests, want more", requests)
	}
}
