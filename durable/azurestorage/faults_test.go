package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

var errLost = errors.New("the test lost the answer")

// faulty returns a transport that asks decide what to do with each call.
func faulty(t testing.TB, decide func(call azuritetest.Call) fault) *azuritetest.Counter {
	c := newCounter(t)
	c.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		switch decide(call) {
		case refuse:
			return azuritetest.Refusal(req, http.StatusServiceUnavailable, "ServerBusy"), nil
		case failBefore:
			return nil, errors.New("the test cut the connection")
		case loseAnswer:
			resp, err := next()
			if err == nil {
				resp.Body.Close()
				err = errLost
			}
			return nil, err
		case refuseAfter:
			resp, err := next()
			if err != nil {
				return nil, err
			}
			resp.Body.Close()
			return azuritetest.Refusal(req, http.StatusInternalServerError, "InternalError"), nil
		case pass:
		}
		return next()
	}
	return c
}

type fault int

const (
	pass        fault = iota
	refuse            // 503, nothing done
	failBefore        // no answer, nothing done
	loseAnswer        // no answer, but done
	refuseAfter       // 500, but done
)

// onNth makes one fault, at the n-th call of a kind from 1.
func onNth(f fault, name string, n int32) func(azuritetest.Call) fault {
	var count atomic.Int32
	return func(call azuritetest.Call) fault {
		if strings.HasPrefix(call.String(), name) && count.Add(1) == n {
			return f
		}
		return pass
	}
}

// historyWrite is how calls begin that write histories.
func historyWrite(cfg Config) string {
	return "table EntityGroupTransaction " + cfg.TaskHub + "History"
}

// One fault in any place of a sequence changes nothing that can be seen.
func TestTaskHub_SurvivesOneFaultAnywhere(t *testing.T) {
	t.Parallel()
	for _, call := range []string{
		"queue PutMessage", "queue GetMessages", "queue DeleteMessage",
		"table EntityGroupTransaction", "table MergeEntity", "table QueryEntities", "table InsertEntity",
	} {
		for f, name := range map[fault]string{refuse: "refused", failBefore: "not sent", loseAnswer: "answer lost", refuseAfter: "refused but done"} {
			t.Run(call+" "+name, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					cfg := testConfig(t)
					var faults [3]func(azuritetest.Call) fault
					for i := range faults {
						faults[i] = onNth(f, call, int32(2+4*i))
					}
					cfg.Transport = faulty(t, func(c azuritetest.Call) fault {
						for _, decide := range faults {
							if f := decide(c); f != pass {
								return f
							}
						}
						return pass
					})
					h := openHub(t, cfg)
					ctx, cancel := context.WithCancel(t.Context())
					if err := h.resources.awaitCreated(ctx); err != nil {
						t.Fatal(err)
					}
					runHub(t, h)
					defer runEngine(ctx, h)()
					defer cancel()
					mustStart(t, h, "seq", "e1", `1`)
					awaitAll(t, h, []string{"seq"})
				})
			})
		}
	}
}

// Random faults, in all places, of all kinds, with two workers.
func TestTaskHub_SurvivesRandomFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				var mu sync.Mutex
				random := rand.New(rand.NewPCG(seed, 1))
				var quiet atomic.Bool
				decide := func(azuritetest.Call) fault {
					mu.Lock()
					defer mu.Unlock()
					if quiet.Load() || random.IntN(8) != 0 {
						return pass
					}
					return fault(1 + random.IntN(4))
				}
				cfg := testConfig(t)
				cfg.PartitionCount = 2
				clients := openHub(t, cfg)
				if err := clients.resources.ensureCreated(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				for i := range 2 {
					cfg.WorkerID, cfg.Transport = fmt.Sprint("worker", i), faulty(t, decide)
					h := openHub(t, cfg)
					runHub(t, h)
					defer runEngine(ctx, h)()
				}
				defer cancel()
				var ids []string
				for i := range 12 {
					id := fmt.Sprint("seq", i)
					mustStart(t, clients, id, "e"+id, `1`)
					ids = append(ids, id)
				}
				time.AfterFunc(8*time.Second, func() { quiet.Store(true) })
				awaitAll(t, clients, ids)
				quiet.Store(true)
			})
		})
	}
}

// A checkpoint whose answer was lost counts, and the session goes on with it.
func TestCheckpoint_FindsOutThatItsHistoryWasWritten(t *testing.T) {
	t.Parallel()
	for f, name := range map[fault]string{loseAnswer: "answer lost", refuseAfter: "refused but done", failBefore: "not sent", refuse: "refused"} {
		for _, events := range []int{1, 150} {
			t.Run(fmt.Sprint(name, " ", events), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(t *testing.T) {
					cfg := testConfig(t)
					cfg.Transport = faulty(t, onNth(f, historyWrite(cfg), 1))
					h := openHub(t, cfg)
					runHub(t, h)
					mustStart(t, h, "one", "e1", `1`)
					item := mustNext(t, h)
					var decided []history.Event
					for i := range events {
						ev, _ := schedule(item, i, `["x"]`)
						decided = append(decided, ev)
					}
					if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(item.Messages, decided...)}); err != nil {
						t.Fatal(err)
					}
					if err := item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(nil)}); err != nil {
						t.Fatalf("the next checkpoint: %v", err)
					}
					if err := item.Session.Release(t.Context()); err != nil {
						t.Fatal(err)
					}
					stored, err := h.History(t.Context(), "one")
					if err != nil || len(stored) != 3+events+2 {
						t.Errorf("%d events, %v; want %d", len(stored), err, 3+events+2)
					}
				})
			})
		}
	}
}

// commitFollowed commits the first checkpoint of an instance, which schedules an
// activity. Its answer is lost, and somebody else writes the history before anybody
// looks at it.
func commitFollowed(t *testing.T, write func(h *TaskHub, etag string)) (h *TaskHub, item *provider.OrchestrationWorkItem, err error) {
	t.Helper()
	c, cfg := newCounter(t), testConfig(t)
	nth := onNth(loseAnswer, historyWrite(cfg), 1)
	c.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		resp, err := next()
		if nth(call) != loseAnswer || err != nil {
			return resp, err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return nil, err
		}
		etags, err := store.ParseTransaction(text, 5)
		if err != nil {
			return nil, err
		}
		write(h, etags[4])
		return nil, errLost
	}
	cfg.Transport = c
	h = openHub(t, cfg)
	runHub(t, h)
	mustStart(t, h, "one", "e1", `1`)
	item = mustNext(t, h)
	ev, msg := schedule(item, 0, `["x"]`)
	err = item.Session.Commit(t.Context(), &provider.Checkpoint{
		Instance: item.Instance, NewEvents: episode(item.Messages, ev), Activities: []provider.TaskMessage{msg},
	})
	if n := messageCount(t, h.workItems); n != 1 {
		t.Errorf("%d messages for activities, want that of the checkpoint", n)
	}
	return h, item, err
}

// A checkpoint whose answer was lost counts although somebody else has gone on since.
// What is on top of it is not written over by who made it.
func TestCheckpoint_ThatSomebodyElseFollowedIsTheLastOfItsSession(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h, item, err := commitFollowed(t, func(h *TaskHub, etag string) {
			theirs := &history.EventRaised{Header: header(-1), Name: "theirs"}
			mustAppend(t, h, history.OrchestrationInstance{InstanceID: "one", ExecutionID: "e1"}, 4, episode(nil, theirs), etag)
		})
		if err != nil {
			t.Fatal(err)
		}
		mine := &history.EventRaised{Header: header(-1), Name: "mine"}
		err = item.Session.Commit(t.Context(), &provider.Checkpoint{Instance: item.Instance, NewEvents: episode(nil, mine)})
		if !errors.Is(err, provider.ErrSessionLost) {
			t.Errorf("the next checkpoint: %v, want ErrSessionLost", err)
		}
		if err := item.Session.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		stored, err := h.History(t.Context(), "one")
		if err != nil || len(stored) != 7 {
			t.Fatalf("%d events, %v; want 7", len(stored), err)
		}
		if raised, ok := stored[5].(*history.EventRaised); !ok || raised.Name != "theirs" {
			t.Errorf("the history has %+v, want what the other wrote", stored[5])
		}
	})
}

// If somebody else has continued the instance as new, it cannot be told whether the
// checkpoint before counted. What it sent is left to who receives it.
func TestCheckpoint_ThatMayHaveBeenFollowedTakesNothingBack(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		_, item, err := commitFollowed(t, func(h *TaskHub, etag string) {
			next := startMessage("one", "e2", `1`)
			mustAppend(t, h, next.Target, 0, episode([]provider.TaskMessage{next}), etag)
		})
		if !errors.Is(err, provider.ErrSessionLost) || !strings.Contains(err.Error(), `the history is of execution "e2"`) {
			t.Errorf("error %v, want ErrSessionLost that names the other execution", err)
		}
		if err := item.Session.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSend_DoesNotRepeatAnEventWhoseFateIsUnknown(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Transport = faulty(t, onNth(loseAnswer, "queue PutMessage", 1))
	h := openHub(t, cfg)
	event := provider.TaskMessage{
		Target: history.OrchestrationInstance{InstanceID: "i"},
		Event:  &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "go"},
	}
	err := h.Send(t.Context(), event)
	if err == nil || !strings.Contains(err.Error(), `send EventRaised to "i": the message may have been sent: send to queue`) {
		t.Errorf("error %v; want one that says what was tried and that its fate is unknown", err)
	}
	if n := messageCount(t, h.controlQueues[0]); n != 1 {
		t.Errorf("%d messages in the queue, want the one whose answer was lost", n)
	}
}

func TestTaskHub_WaitsForAStorageAccountThatIsDown(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		cfg := testConfig(t)
		var down atomic.Bool
		down.Store(true)
		cfg.Transport = cutOff(t, &down)
		h := openHub(t, cfg)
		runHub(t, h)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := h.StartInstance(ctx, startMessage("i", "e1", "1"), nil); err == nil || !strings.Contains(err.Error(), "create task hub") {
			t.Errorf("error %v; want one that says what was tried", err)
		}
		patience.Until(t, "the outage is logged", func() bool { return logged(h, "storage is unreachable") })
		down.Store(false)
		mustStart(t, h, "i", "e1", `1`)
		commitEnd(t, mustNext(t, h), 0, `1`)

		down.Store(true)
		time.Sleep(4 * time.Second) // longer than the lease
		down.Store(false)
		mustStart(t, h, "j", "e1", `1`)
		commitEnd(t, mustNext(t, h), 0, `1`)

		c := h.cfg.Logger.Handler().(*logCapture)
		c.mu.Lock()
		defer c.mu.Unlock()
		reported := strings.Count(strings.Join(*c.lines, ""), "storage is unreachable")
		if reported < 2 || reported > 6 {
			t.Errorf("two outages were reported %d times; want once for each part that was down", reported)
		}
	})
}
