package azurestorage

import (
	"cmp"
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

var errLost = errors.New("the test lost the response")

// faulty returns a transport that injects the fault that decide returns for each call.
func faulty(t testing.TB, decide func(call azuritetest.Call) fault) *azuritetest.Counter {
	c := newCounter(t)
	c.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		switch decide(call) {
		case refuse:
			return azuritetest.ErrorResponse(req, http.StatusServiceUnavailable, "ServerBusy"), nil
		case failBefore:
			return nil, errors.New("the test cut the connection")
		case loseResponse:
			resp, err := next()
			if err == nil {
				resp.Body.Close()
				err = errLost
			}
			return nil, err
		case rejectAfter:
			resp, err := next()
			if err != nil {
				return nil, err
			}
			resp.Body.Close()
			return azuritetest.ErrorResponse(req, http.StatusInternalServerError, "InternalError"), nil
		case pass:
		}
		return next()
	}
	return c
}

type fault int

const (
	pass         fault = iota
	refuse             // 503, not applied
	failBefore         // no response, not applied
	loseResponse       // no response, but applied
	rejectAfter        // 500, but applied
)

// onNth injects f into the n-th call whose text starts with name. n starts at 1.
func onNth(f fault, name string, n int32) func(azuritetest.Call) fault {
	var count atomic.Int32
	return func(call azuritetest.Call) fault {
		if strings.HasPrefix(call.String(), name) && count.Add(1) == n {
			return f
		}
		return pass
	}
}

// historyWrite returns the prefix of calls that write histories.
func historyWrite(cfg Config) string {
	return "table EntityGroupTransaction " + cfg.TaskHub + "History"
}

// A single fault at any place of a sequence has no visible effect.
func TestTaskHub_SurvivesASingleFaultAnywhere(t *testing.T) {
	t.Parallel()
	for _, call := range []string{
		"queue PutMessage", "queue GetMessages", "queue DeleteMessage",
		"table EntityGroupTransaction", "table MergeEntity", "table QueryEntities", "table InsertEntity",
	} {
		for f, name := range map[fault]string{refuse: "rejected", failBefore: "not sent", loseResponse: "response lost", rejectAfter: "rejected but applied"} {
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

// Two workers survive random faults of all kinds at all places.
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

// A checkpoint whose response was lost is committed, and the session continues.
func TestCheckpoint_DetectsThatItsHistoryWasWritten(t *testing.T) {
	t.Parallel()
	for f, name := range map[fault]string{loseResponse: "response lost", rejectAfter: "rejected but applied", failBefore: "not sent", refuse: "rejected"} {
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

// commitFollowed commits the first checkpoint of an instance, which schedules an activity. The
// response is lost, and write changes the history before the commit checks its own result.
func commitFollowed(t *testing.T, write func(h *TaskHub, etag string)) (h *TaskHub, item *provider.OrchestrationWorkItem, err error) {
	t.Helper()
	c, cfg := newCounter(t), testConfig(t)
	nth := onNth(loseResponse, historyWrite(cfg), 1)
	c.Intercept = func(call azuritetest.Call, _ *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		resp, err := next()
		if nth(call) != loseResponse || err != nil {
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
		t.Errorf("%d messages for activities, want the one of the checkpoint", n)
	}
	return h, item, err
}

// A checkpoint whose response was lost is committed even if another worker has committed one on
// top. The session must not overwrite that one.
func TestCheckpoint_FollowedByAnotherWorkersIsTheLastOfItsSession(t *testing.T) {
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
			t.Errorf("the history has %+v, want the event of the other worker", stored[5])
		}
	})
}

// If another worker has continued the instance as new, the session cannot find out whether its
// checkpoint was committed. It must not retract the messages; their receivers decide.
func TestCheckpoint_ThatMayBeCommittedRetractsNoMessage(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		_, item, err := commitFollowed(t, func(h *TaskHub, etag string) {
			next := startMessage("one", "e2", `1`)
			mustAppend(t, h, next.Target, 0, episode([]provider.TaskMessage{next}), etag)
		})
		if !errors.Is(err, provider.ErrSessionLost) || !strings.Contains(err.Error(), `the history is of execution "e2"`) {
			t.Errorf("error %v, want ErrSessionLost with the other execution", err)
		}
		if err := item.Session.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// The error of a send says whether the message may have been stored. A message that may have been
// stored is not sent again.
func TestSend_ReportsWhetherTheMessageMayHaveBeenSent(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call    string // the call that is intercepted; default PutMessage
		answer  func(n int, req *http.Request, next func() (*http.Response, error), cancel context.CancelFunc) (*http.Response, error)
		fails   bool
		maybe   bool // the error says that the message may have been sent
		arrived int  // number of messages in the queue
	}{
		"the response is lost": {answer: func(_ int, _ *http.Request, next func() (*http.Response, error), _ context.CancelFunc) (*http.Response, error) {
			_, _ = next()
			return nil, errLost
		}, fails: true, maybe: true, arrived: 1},
		"the caller cancels during the request": {answer: func(_ int, req *http.Request, next func() (*http.Response, error), cancel context.CancelFunc) (*http.Response, error) {
			_, _ = next()
			cancel()
			return nil, req.Context().Err()
		}, fails: true, maybe: true, arrived: 1},
		"a gateway is overloaded": {answer: func(_ int, req *http.Request, next func() (*http.Response, error), _ context.CancelFunc) (*http.Response, error) {
			_, _ = next()
			return azuritetest.ErrorResponse(req, http.StatusServiceUnavailable, ""), nil
		}, fails: true, maybe: true, arrived: 1},
		"the service refuses two requests": {answer: func(n int, req *http.Request, next func() (*http.Response, error), _ context.CancelFunc) (*http.Response, error) {
			if n <= 2 {
				return azuritetest.ErrorResponse(req, http.StatusServiceUnavailable, "ServerBusy"), nil
			}
			return next()
		}, arrived: 1},
		"the service refuses all requests": {answer: func(_ int, req *http.Request, _ func() (*http.Response, error), _ context.CancelFunc) (*http.Response, error) {
			return azuritetest.ErrorResponse(req, http.StatusServiceUnavailable, "ServerBusy"), nil
		}, fails: true},
		"the blob of the message may be written": {call: "PutBlob", answer: func(_ int, _ *http.Request, next func() (*http.Response, error), _ context.CancelFunc) (*http.Response, error) {
			_, _ = next()
			return nil, errLost
		}, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var calls atomic.Int32
				counter := newCounter(t)
				counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
					isOfHub := call.Name == "PutBlob" && !strings.HasSuffix(call.Target, "-largemessages")
					if call.Name == cmp.Or(tt.call, "PutMessage") && !isOfHub {
						return tt.answer(int(calls.Add(1)), req, next, cancel)
					}
					return next()
				}
				cfg := testConfig(t)
				cfg.Transport = counter
				h := openHub(t, cfg)
				event := &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "go"}
				if tt.call == "PutBlob" {
					event.Input = new(large)
				}
				err := h.Send(ctx, provider.TaskMessage{Target: history.OrchestrationInstance{InstanceID: "i"}, Event: event})
				if (err != nil) != tt.fails || errors.Is(err, ErrMaybeSent) != tt.maybe {
					t.Errorf("error %v; want an error: %v; it may have been sent: %v", err, tt.fails, tt.maybe)
				}
				if text := fmt.Sprint(err); tt.maybe && !strings.Contains(text, `send EventRaised to "i": the message may have been sent: send to queue`) {
					t.Errorf("error %s; want one that names the operation and says that the message may have been sent", text)
				}
				if n := messageCount(t, h.controlQueues[0]); n != tt.arrived {
					t.Errorf("%d messages in the queue, want %d", n, tt.arrived)
				}
			})
		})
	}
}

func TestTaskHub_WaitsForAnUnreachableStorageAccount(t *testing.T) {
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
			t.Errorf("error %v; want one that names the operation", err)
		}
		patience.Until(t, "the outage is logged", func() bool { return logged(h, "storage is unreachable") })
		down.Store(false)
		mustStart(t, h, "i", "e1", `1`)
		commitEnd(t, mustNext(t, h), 0, `1`)

		down.Store(true)
		time.Sleep(4 * time.Second) // longer than the lease interval
		down.Store(false)
		mustStart(t, h, "j", "e1", `1`)
		commitEnd(t, mustNext(t, h), 0, `1`)

		c := h.cfg.Logger.Handler().(*logCapture)
		c.mu.Lock()
		defer c.mu.Unlock()
		reported := strings.Count(strings.Join(*c.lines, ""), "storage is unreachable")
		if reported < 2 || reported > 6 {
			t.Errorf("two outages were reported %d times; want one report per unreachable part and outage", reported)
		}
	})
}
