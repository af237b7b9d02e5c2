package providertest

import (
	"context"
	"errors"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var sessions = area{"sessions", []test{
	{"messages that arrive in time are returned by Next", running(throughNext)},
	{"messages that arrived before Next are returned immediately", running(beforeNext)},
	{"Next returns no messages when none arrive", running(nothingComes)},
	{"Next returns no messages when other instances receive messages", running(othersGetMessages)},
	{"several episodes of a session build one history", running(severalEpisodes)},
	{"results of activities are returned by Next", running(resultsThroughNext)},
	{"abandoned messages from Next are redelivered", running(abandonedInSession)},
}}

func throughNext(w *world) {
	w.create("a")
	e := w.next("a").commit()
	event := raised("a", "Event", text("1"))
	sent := make(chan error, 1)
	go func() { sent <- w.trySend(event) }() // awaited below
	e.arrive(1)
	w.must("Send", <-sent)
	w.equal("messages", e.fresh, []provider.TaskMessage{event})
	e.commit()
	w.equal("history", w.history("a"), e.past)
	e.release()
	w.quiet("all was committed")
}

func beforeNext(w *world) {
	w.create("a")
	e := w.next("a")
	event := raised("a", "Event", nil)
	w.send(event)
	e.commit()
	e.arrive(1)
	w.equal("messages", e.fresh, []provider.TaskMessage{event})
	e.commit().release()
	w.quiet("all was committed")
}

func nothingComes(w *world) {
	w.create("a")
	e := w.next("a").commit()
	if got := e.more(w.hub.Quiet); len(got) != 0 {
		w.Errorf("Next returned %s, want none", describe(got))
	}
	e.release()
	w.send(raised("a", "Event", nil))
	w.next("a").finish()
}

func othersGetMessages(w *world) {
	w.create("a")
	e := w.next("a").commit()
	w.create("b")
	other := w.next("b").commit()
	over, ended := make(chan struct{}), make(chan error, 1)
	sent := 0
	go func() { // awaited below
		ended <- func() error {
			for ; sent < 200; time.Sleep(w.hub.Quiet / 8) {
				select {
				case <-over:
					return nil
				default:
				}
				if err := w.trySend(raised("b", "Event", nil)); err != nil {
					return err
				}
				sent++
			}
			return errors.New("the session does not end while another instance receives messages")
		}()
	}()
	if got := e.more(w.hub.Quiet); len(got) != 0 {
		w.Errorf("Next returned %s, want none", describe(got))
	}
	close(over)
	w.must("send meanwhile", <-ended)
	e.release()
	other.arrive(sent)
	other.commit().release()
}

func severalEpisodes(w *world) {
	instance := w.create("a")
	e := w.next("a")
	for i := range 4 {
		e.schedule(i, "Activity", nil).commit()
		w.equal("history", w.history("a"), w.histories[instance])
		w.send(raised("a", "Event", nil))
		e.arrive(1)
	}
	e.end(history.Completed, text("done")).commit().release()
	w.equal("history", w.history("a"), w.histories[instance])
	w.equal("status", w.state("a").Status, history.Completed)
}

func resultsThroughNext(w *world) {
	w.create("a")
	e := w.next("a").schedule(0, "First", nil).commit()
	for i := range 3 {
		a := w.nextActivity()
		w.complete(a, completed(i, text("result")))
		e.arrive(1)
		if got, ok := e.fresh[0].Event.(*history.TaskCompleted); !ok || got.TaskScheduledID != i {
			w.Fatalf("Next returned %s, want the completion of %d", fingerprint(e.fresh[0]), i)
		}
		e.schedule(i+1, "Another", nil).commit()
	}
	e.release()
}

func abandonedInSession(w *world) {
	w.create("a")
	e := w.next("a").commit()
	event := raised("a", "Event", nil)
	w.send(event)
	e.arrive(1)
	ctx, cancel := context.WithTimeout(w.Context(), w.hub.Patience)
	defer cancel()
	w.must("Abandon", e.item.Session.Abandon(ctx, errAbandoned))
	e.release()
	e = w.next("a")
	w.equal("messages", e.item.Messages, []provider.TaskMessage{event})
	e.finish()
}
