package outbound

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/inflight"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/monitor"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/boundary"
	_ "github.com/durablefunctions-go/durablefunctions/durable/durabletest/oneprocessor"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/clocks"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Source: DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, GetVisibilityDelay, but limited to
// the maximum of the service.
func TestVisibilityDelay(t *testing.T) {
	now := time.Date(2026, 11, 20, 18, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		event history.Event
		want  time.Duration
		to    string
	}{
		"a timer":             {&history.TimerFired{FireAt: now.Add(90*time.Second + 999*time.Millisecond)}, 90 * time.Second, ""},
		"a timer in the past": {&history.TimerFired{FireAt: now.Add(-time.Second)}, 0, ""},
		"a timer in ten days": {&history.TimerFired{FireAt: now.Add(240 * time.Hour)}, 168 * time.Hour, ""},
		"a start":             {&history.ExecutionStarted{}, 0, ""},
		"a scheduled start":   {&history.ExecutionStarted{ScheduledStart: now.Add(time.Minute)}, time.Minute, ""},
		"anything else":       {event: &history.EventRaised{}},
		"a signal for an entity, with its time": {
			event: &history.EventRaised{Name: "op@2026-11-20T19:00:00.0000000Z"}, to: "@counter@a", want: time.Hour,
		},
		"an event of the same name for an orchestration": {event: &history.EventRaised{Name: "op@2026-11-20T19:00:00.0000000Z"}, to: "a"},
	} {
		if got := visibilityDelay(&provider.TaskMessage{Event: tt.event, Target: history.OrchestrationInstance{InstanceID: tt.to}}, now); got != tt.want {
			t.Errorf("%s: %v, want %v", name, got, tt.want)
		}
	}
}

func TestBoundaries_OfVisibilityDelays(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	due := func(d time.Duration) *provider.TaskMessage {
		return &provider.TaskMessage{Event: &history.TimerFired{FireAt: at.Add(d)}}
	}
	boundary.Check(t, "a message that is due is not hidden", func(offset int) time.Duration {
		return visibilityDelay(due(time.Duration(offset)*time.Second), at)
	}, 0, 0, time.Second)
	boundary.Check(t, "hidden times are whole seconds", func(offset int) time.Duration { return visibilityDelay(due(time.Second+time.Duration(offset)), at) },
		0, time.Second, time.Second)
	boundary.Check(t, "the longest hidden time", func(offset int) time.Duration {
		return visibilityDelay(due(store.MaxVisibilityTimeout+time.Duration(offset)*time.Second), at)
	}, store.MaxVisibilityTimeout-time.Second, store.MaxVisibilityTimeout, store.MaxVisibilityTimeout)
}

// testQueue is a queue that this process does not serve.
type testQueue struct{ queue *store.Queue }

func (q testQueue) Queue() *store.Queue                       { return q.queue }
func (testQueue) VisibilityTimeout() time.Duration            { return time.Minute }
func (testQueue) Announce()                                   {}
func (testQueue) Claim(int) int                               { return 0 }
func (testQueue) Unclaim()                                    {}
func (testQueue) Admit(context.Context, []*inflight.Delivery) {}

// slotQueue counts the slots that are freed.
type slotQueue struct {
	testQueue
	freed int
}

func (q *slotQueue) Unclaim() { q.freed++ }

// noAnswer loses the answers to all requests.
type noAnswer struct{}

func (noAnswer) Do(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

// A claimed message frees its slot once if its blob cannot be written, also if the blob may exist.
func TestPost_FreesTheSlotIfTheBlobCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service, err := azblob.NewClientWithNoCredential("http://blobs", &azblob.ClientOptions{ClientOptions: policy.ClientOptions{
			Transport: noAnswer{}, Retry: policy.RetryOptions{MaxRetries: -1},
		}})
		if err != nil {
			t.Fatal(err)
		}
		s := &Sender{Monitor: monitor.New(slog.New(slog.DiscardHandler), nil, nil), Blobs: store.NewContainer(service, "http://blobs", "large")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		to := &slotQueue{}
		out := &Message{To: to, Claim: true, Env: &wire.Envelope{Message: &provider.TaskMessage{
			Target: history.OrchestrationInstance{InstanceID: "a"}, Event: &history.EventRaised{Input: new(strings.Repeat("x", 100_000))},
		}}}
		if _, err := s.Post(ctx, out); err == nil || out.Blob == "" || to.freed != 1 {
			t.Errorf("Post: %v with blob %q, freed %d slots; want an error, a blob and 1 slot", err, out.Blob, to.freed)
		}
	})
}

// testSafety is the safety of a message that another worker may have received if lost is true.
type testSafety struct {
	inflight.Safety
	lost bool
}

func (s testSafety) IsLost(clocks.Moment) bool { return s.lost }

// The visibility timeout of a claimed message may end while the history is being written. Its
// receiver then finds that the batch is not committed and deletes the message.
func TestPublishBatch_FailsForAMessageThatAnotherWorkerMayHaveDeleted(t *testing.T) {
	t.Parallel()
	held := inflight.New(monitor.New(slog.New(slog.DiscardHandler), nil, nil), store.NewPace(1), inflight.Config{})
	claimed := func(lost bool, finalText string) []Sent {
		queue := &store.Queue{Name: "q"}
		d := held.Direct(queue, store.Message{ID: "m"}, time.Minute, nil, func() {})
		d.Safety = testSafety{lost: lost}
		return []Sent{{To: testQueue{queue}, Sent: store.Sent{ID: "m"}, finalText: finalText, Claimed: d}}
	}
	s := &Sender{}
	for name, c := range map[string]struct {
		sent []Sent
		want string
	}{
		"a hidden message":          {claimed(false, "shown"), ""},
		"a message that was lost":   {claimed(true, "shown"), "message m was visible in queue q before the entity's batch was committed"},
		"a message without a batch": {claimed(true, ""), ""},
	} {
		err := s.PublishBatch(t.Context(), c.sent)
		if got := fmt.Sprint(err); c.want == "" && err != nil || c.want != "" && got != c.want {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if got := c.sent[0].Claimed.Text(); err == nil && got != c.sent[0].finalText {
			t.Errorf("%s: its text is %q", name, got)
		}
	}
}
