package partitionlog_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition"
)

// A client's request fails when the account refuses access. If an earlier attempt may have arrived,
// the client retries until the result is known.
func TestMail_FailsOnRefusedAccessUnlessAnAttemptIsUncertain(t *testing.T) {
	inBubble(t, func(s *simulated) {
		var refuses, loses atomic.Bool
		isMail := func(r azsim.Request) bool {
			return r.Operation == "AppendBlock" && strings.Contains(r.Path, "/mail-") && r.Worker == "client"
		}
		s.account = azsim.New(azsim.Config{
			Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
			Forbid: func(r azsim.Request) string {
				if refuses.Load() && isMail(r) {
					return "AuthorizationFailure"
				}
				return ""
			},
			Decide: func(r azsim.Request) azsim.Fault {
				if isMail(r) && loses.CompareAndSwap(true, false) {
					return azsim.FailBefore
				}
				return azsim.None
			},
		})
		h, _ := s.open("w")
		stop := s.work(h)
		defer stop()
		time.Sleep(time.Second)
		client, _ := s.open("client")
		refuses.Store(true)
		began := time.Now()
		err := client.Send(s.Context(), event("a"))
		if took := time.Since(began); store.StatusOf(err) != http.StatusForbidden || took > time.Second {
			s.Errorf("after %v: %v; want the refusal immediately", took, err)
		}
		loses.Store(true)
		began = time.Now()
		time.AfterFunc(time.Minute, func() { refuses.Store(false) })
		err = client.Send(s.Context(), event("a"))
		if took := time.Since(began); err != nil || took < time.Minute {
			s.Errorf("after %v: %v; want success once the account grants access again", took, err)
		}
		if err := client.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A client's message that its receiver cannot store is refused, because a message in the mailbox has no
// answer.
func TestMail_RefusesAMessageThatIsTooLarge(t *testing.T) {
	inBubble(t, func(s *simulated) {
		h, _ := s.open("w")
		stop := s.work(h)
		defer stop()
		time.Sleep(time.Second)
		client, _ := s.open("client")
		msg := event("a")
		record, err := partition.EncodeMessage(msg)
		if err != nil {
			s.Fatal(err)
		}
		boundary.Check(s, "a message is too large", func(offset int) bool {
			client.LimitMessages(len(record) - offset)
			err := client.Send(s.Context(), msg)
			if err != nil && !errors.Is(err, logstore.ErrTooLarge) {
				s.Error(err)
			}
			return err != nil
		}, false, false, true)
		if err := client.Close(); err != nil {
			s.Error(err)
		}
	})
}

// A client's request fails when the blobs of the mailbox are missing. If an earlier attempt may have
// arrived, the error also says that the result is unknown.
func TestMail_FailsWithoutAMailboxAndSaysIfAnAttemptIsUncertain(t *testing.T) {
	for _, doubt := range []bool{false, true} {
		inOrder(t, func(s *simulated) {
			var loses atomic.Bool
			s.account = azsim.New(azsim.Config{
				Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
				Decide: func(r azsim.Request) azsim.Fault {
					if loses.Load() && r.Operation == "AppendBlock" && strings.Contains(r.Path, "/mail-") {
						return azsim.FailAfter
					}
					return azsim.None
				},
			})
			client, _ := s.openWith("client", partitionlog.Config{PartitionCount: 1})
			s.send(client, 10)
			loses.Store(doubt)
			sent := make(chan error, 1)
			send := func() { sent <- client.Send(s.Context(), event("a")) }
			if doubt {
				go send()
				time.Sleep(time.Second) // until attempts have arrived
			}
			if n := s.account.Vanish(containerName, func(name string) bool { return strings.Contains(name, "/mail-") }); n != 1 {
				s.Fatalf("deleted %d blobs of the mailbox, want one", n)
			}
			loses.Store(false)
			if !doubt {
				send()
			}
			err := <-sent
			s.wantDamage("send", err)
			if uncertain := errors.As(err, new(*partitionlog.UncertainError)); uncertain != doubt {
				s.Errorf("an attempt may have arrived: %v; the error is uncertain: %v (%v)", doubt, uncertain, err)
			}
			if err := client.Close(); err != nil {
				s.Error(err)
			}
		})
	}
}

// A missing letter is logged as lost, with its sender. The mail after it is received.
func TestHub_ReportsAMissingLetter(t *testing.T) {
	for _, lost := range []bool{false, true} {
		inOrder(t, func(s *simulated) {
			s.account = azsim.New(azsim.Config{Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond})
			client, _ := s.openWith("client", partitionlog.Config{PartitionCount: 1})
			if err := startHello(s.Context(), client, "a"); err != nil {
				s.Fatal(err)
			}
			time.Sleep(10 * time.Second) // until the client has released the partition
			s.send(client, 9<<20)
			if lost {
				if n := s.account.Vanish(containerName, func(name string) bool { return strings.Contains(name, "/letter-") }); n != 1 {
					s.Fatalf("deleted %d letters, want one", n)
				}
			}
			s.send(client, 10)
			text := new(bytes.Buffer)
			h, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1, Logger: slog.New(slog.NewTextHandler(text, nil))})
			ctx, cancel := context.WithCancel(s.Context())
			ended := make(chan error)
			go func() { ended <- h.Run(ctx) }()
			item, err := h.NextOrchestration(ctx)
			if err != nil {
				s.Fatal(err)
			}
			want := map[bool]int{false: 3, true: 2}[lost]
			if len(item.Messages) != want {
				s.Errorf("lost %v: got %d messages, want the start and the stored events", lost, len(item.Messages))
			}
			if got := strings.Contains(text.String(), "the blob with its requests is missing"); got != lost {
				s.Errorf("lost %v: the log is %q", lost, text)
			}
			if err := item.Session.Release(ctx); err != nil {
				s.Error(err)
			}
			cancel()
			if err := errors.Join(<-ended, h.Close(), client.Close()); err != nil {
				s.Error(err)
			}
		})
	}
}

// After a failover of the account, a mailbox blob has lost its end. The blob is shorter than the
// owner's position, or new mail has made it longer again. The owner receives the new mail and
// nothing twice. It skips mail that it may have received from a client that it has forgotten.
func TestHub_ReceivesNewMailAfterAMailboxLostItsEnd(t *testing.T) {
	t.Run("the blob is shorter", func(t *testing.T) {
		afterFailover(t, 1, func(s *simulated, client *partitionlog.Hub) { s.send(client, 5) })
	})
	t.Run("the blob is longer again", func(t *testing.T) {
		afterFailover(t, 2, func(s *simulated, client *partitionlog.Hub) {
			s.send(client, 50)
			other, _ := s.openWith("other client", partitionlog.Config{PartitionCount: 1})
			s.send(other, 50)
			if err := other.Close(); err != nil {
				s.Error(err)
			}
		})
	})
	for sender, received := range map[string]int{"p03": 1, partition.ClientSender("x"): 0} {
		t.Run("the new mail is the first mail of "+sender, func(t *testing.T) {
			afterFailover(t, received, func(s *simulated, client *partitionlog.Hub) {
				if err := client.Mail(s.Context(), "a", sender, 1); err != nil {
					s.Error(err)
				}
			})
		})
	}
}

// afterFailover sends an event of 20 bytes that the mailbox loses. It then calls send and repairs the hub.
// The partition must receive the given number of events from send.
func afterFailover(t *testing.T, events int, send func(*simulated, *partitionlog.Hub)) {
	inBubble(t, func(s *simulated) {
		client, _ := s.openWith("client", partitionlog.Config{PartitionCount: 1})
		for _, id := range []string{"a", "b"} {
			if err := startHello(s.Context(), client, id); err != nil {
				s.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second) // until the client has released the partition
		const mailbox = "p00/mail-0000000001"
		s.send(client, 10)
		kept := len(s.content(mailbox))
		s.send(client, 20)
		messages := func(name string) int {
			h, _ := s.openWith(name, partitionlog.Config{PartitionCount: 1})
			ctx, cancel := context.WithCancel(s.Context())
			ended := make(chan error)
			go func() { ended <- h.Run(ctx) }()
			time.Sleep(30 * time.Second) // until the owner has received the mail
			all := 0
			for range 2 {
				item, err := h.NextOrchestration(ctx)
				if err != nil {
					s.Fatal(err)
				}
				all += len(item.Messages)
				defer func() { _ = item.Session.Release(ctx) }() // it cannot fail: it only changes memory
			}
			s.wantBlocked(h, "[]", false)
			cancel()
			if err := errors.Join(<-ended, h.Close()); err != nil {
				s.Error(err)
			}
			return all
		}
		if n := messages("before"); n != 4 {
			s.Errorf("got %d messages before the failover, want two starts and two events", n)
		}
		if !s.account.Shorten(containerName, mailbox, kept) {
			s.Fatal("the mailbox was not shortened")
		}
		send(s, client)
		if r, err := s.repairOf(1, true); err != nil || r.Remaining() > 0 {
			s.Errorf("repair: %+v, %v; want no remaining problems", r, err)
		}
		want := 4 + events
		if n := messages("after"); n != want {
			s.Errorf("got %d messages after the failover, want two starts and %d events", n, want-2)
		}
		if err := client.Close(); err != nil {
			s.Error(err)
		}
	})
}

// If the time for a client's request ends before the request is in a mail, it is never sent. Otherwise the
// error says that the result is unknown.
func TestMail_ARequestWithoutTimeIsDroppedOrUncertain(t *testing.T) {
	inBubble(t, func(s *simulated) {
		var fails, failsAnswers atomic.Bool
		s.account = azsim.New(azsim.Config{
			Seed: 1, MinLatency: time.Millisecond, MaxLatency: 5 * time.Millisecond,
			Decide: func(r azsim.Request) azsim.Fault {
				isMail := r.Operation == "AppendBlock" && strings.Contains(r.Path, "/mail-")
				if r.Worker == "client" && (fails.Load() && isMail || failsAnswers.Load() && !isMail) {
					return azsim.FailBefore
				}
				return azsim.None
			},
		})
		client, _ := s.openWith("client", partitionlog.Config{PartitionCount: 1})
		if err := startHello(s.Context(), client, "a"); err != nil {
			s.Fatal(err)
		}
		time.Sleep(10 * time.Second) // until the client has released the partition
		within := func(request func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(s.Context(), time.Second)
			defer cancel()
			return request(ctx)
		}
		fails.Store(true)
		for i := range 5 {
			err := within(func(ctx context.Context) error { return client.Send(ctx, event("a")) })
			uncertain := errors.As(err, new(*partitionlog.UncertainError))
			if !errors.Is(err, context.DeadlineExceeded) || uncertain != (i == 0) {
				s.Errorf("request %d: %v; want the end of the time, uncertain only for the first request", i, err)
			}
		}
		fails.Store(false)
		s.send(client, 10)
		failsAnswers.Store(true)
		err := within(func(ctx context.Context) error { return startHello(ctx, client, "b") })
		if !errors.As(err, new(*partitionlog.UncertainError)) {
			s.Errorf("start without an answer: %v; want an UncertainError", err)
		}
		failsAnswers.Store(false)

		h, _ := s.openWith("w", partitionlog.Config{PartitionCount: 1})
		ctx, cancel := context.WithCancel(s.Context())
		ended := make(chan error)
		go func() { ended <- h.Run(ctx) }()
		for _, want := range []struct {
			id       string
			messages int
		}{{"a", 3}, {"b", 1}} { // a: the start, the uncertain event and the one of s.send
			item, err := h.NextOrchestration(ctx)
			if err != nil {
				s.Fatal(err)
			}
			if id := item.Messages[0].Target.InstanceID; id != want.id || len(item.Messages) != want.messages {
				s.Errorf("dispatched %d messages to %s; want %d to %s", len(item.Messages), id, want.messages, want.id)
			}
			if err := item.Session.Release(ctx); err != nil {
				s.Error(err)
			}
		}
		cancel()
		if err := errors.Join(<-ended, h.Close(), client.Close()); err != nil {
			s.Error(err)
		}
	})
}
