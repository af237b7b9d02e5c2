package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf16"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/google/go-cmp/cmp"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, AbandonMessageAsync.
func TestAbandonDelay_DoublesUpToTenMinutes(t *testing.T) {
	for count, want := range map[int]time.Duration{
		0: time.Second, 1: 2 * time.Second, 2: 4 * time.Second, 9: 512 * time.Second,
		10: 10 * time.Minute, 1 << 40: 10 * time.Minute,
	} {
		if got := abandonDelay(count); got != want {
			t.Errorf("abandonDelay(%d) = %v, want %v", count, got, want)
		}
	}
}

// DurableTask.AzureStorage/Messaging/TaskHubQueue.cs, GetVisibilityDelay; but
// nothing is hidden for longer than the service allows.
func TestVisibilityDelay(t *testing.T) {
	now := judgeTime
	for name, tt := range map[string]struct {
		event history.Event
		want  time.Duration
		to    string
	}{
		"a timer":             {&history.TimerFired{FireAt: now.Add(90*time.Second + 999*time.Millisecond)}, 90 * time.Second, ""},
		"a timer of the past": {&history.TimerFired{FireAt: now.Add(-time.Second)}, 0, ""},
		"a timer of ten days": {&history.TimerFired{FireAt: now.Add(240 * time.Hour)}, 168 * time.Hour, ""},
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

func TestSplitHistory_KeepsTransactionsWithinTheServicesBounds(t *testing.T) {
	rows := func(n, input int) []wire.Row {
		rows := make([]wire.Row, n)
		for i := range rows {
			rows[i] = wire.EncodeHistoryRow(&history.EventRaised{Header: at(0), Name: "n", Input: new(strings.Repeat("\x01", input))}, "i", i, "x")
		}
		return rows
	}
	for name, tt := range map[string]struct {
		rows []wire.Row
		want []int
	}{
		"none":                      {nil, nil},
		"a few":                     {rows(4, 1), []int{4}},
		"as many as fit":            {rows(99, 1), []int{99}},
		"one more":                  {rows(100, 1), []int{99, 1}},
		"many":                      {rows(250, 1), []int{99, 99, 52}},
		"large ones, as JSON grows": {rows(40, 30_000), nil},
	} {
		t.Run(name, func(t *testing.T) {
			batches := splitHistory(tt.rows)
			var got []int
			total := 0
			for i, b := range batches {
				got = append(got, len(b.rows))
				total += len(b.rows)
				if b.complete != (i == len(batches)-1) {
					t.Errorf("batch %d of %d: complete is %v", i, len(batches), b.complete)
				}
				var ops []store.Operation
				for _, r := range b.rows {
					ops = append(ops, store.Operation{Method: http.MethodPut, Entity: r})
				}
				body, _ := store.TransactionBody("http://host", "T", ops)
				if size := len(body); size > store.MaxTransactionBytes-64<<10 || len(ops) >= store.MaxTransactionOperations {
					t.Errorf("batch %d has %d operations in %d bytes", i, len(ops), size)
				}
			}
			if total != len(tt.rows) || tt.want != nil && !cmp.Equal(got, tt.want) {
				t.Errorf("batches of %v, want %v", got, tt.want)
			}
		})
	}
}

// DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// GetHistoryEventsAsync.
func TestCurrentExecution(t *testing.T) {
	row := func(key, execution string) *wire.HistoryRow {
		raw := fmt.Sprintf(`{"odata.etag":"e-%s","RowKey":%q,"ExecutionId":%q,"EventType":"OrchestratorStarted"}`, key, key, execution)
		r, err := wire.DecodeHistoryRow([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, tt := range map[string]struct {
		rows      []*wire.HistoryRow
		wanted    string
		execution string
		etag      string
		keys      []string
	}{
		"nothing is stored":                      {nil, "x", "x", "", nil},
		"any execution":                          {[]*wire.HistoryRow{row("0", "x"), row("1", "x"), row("sentinel", "x")}, "", "x", "e-sentinel", []string{"0", "1"}},
		"the wanted one":                         {[]*wire.HistoryRow{row("0", "x"), row("sentinel", "x")}, "x", "x", "e-sentinel", []string{"0"}},
		"another, whose sentinel is to be met":   {[]*wire.HistoryRow{row("sentinel", "x")}, "y", "y", "e-sentinel", nil},
		"rows of an older and longer one follow": {[]*wire.HistoryRow{row("0", "y"), row("1", "x"), row("sentinel", "y")}, "", "y", "e-sentinel", []string{"0"}},
		"no sentinel, one wanted":                {[]*wire.HistoryRow{row("0", "x")}, "x", "x", "", nil},
		"no sentinel, any":                       {[]*wire.HistoryRow{row("0", "x")}, "", "x", "", []string{"0"}},
	} {
		t.Run(name, func(t *testing.T) {
			current, stored := currentExecution(tt.rows, tt.wanted)
			var keys []string
			for _, r := range current {
				keys = append(keys, r.RowKey)
			}
			if stored.executionID != tt.execution || stored.etag != tt.etag || !cmp.Equal(keys, tt.keys) {
				t.Errorf("execution %q, ETag %q, rows %v; want %q, %q, %v", stored.executionID, stored.etag, keys, tt.execution, tt.etag, tt.keys)
			}
		})
	}
}

func TestStorageErrors_TellWhatMayBeRepeated(t *testing.T) {
	answer := func(status int, code string) error {
		return fmt.Errorf("send: %w", &azcore.ResponseError{StatusCode: status, ErrorCode: code})
	}
	for name, tt := range map[string]struct {
		err                   error
		transient, notApplied bool
	}{
		"refused for good":      {answer(400, "InvalidInput"), false, true},
		"a conflict":            {answer(409, "EntityAlreadyExists"), false, true},
		"a queue being deleted": {answer(409, "QueueBeingDeleted"), true, false},
		"busy":                  {answer(503, "ServerBusy"), true, false},
		"an internal error":     {answer(500, "InternalError"), true, false},
		"too many requests":     {answer(429, ""), true, false},
		"nobody listens":        {&net.OpError{Op: "dial", Err: errors.New("refused")}, true, true},
		"a broken connection":   {&net.OpError{Op: "read", Err: errors.New("reset")}, true, false},
		"out of time":           {context.DeadlineExceeded, true, false},
		"the caller gave up":    {context.Canceled, false, false},
		"it was never sent":     {fmt.Errorf("%w: too large", store.ErrNeverSent), false, true},
		"a refused transaction": {&store.TransactionError{Status: 412}, false, true},
		"an unavailable one":    {&store.TransactionError{Status: 503}, true, false},
	} {
		if store.IsTransient(tt.err) != tt.transient || store.WasNotApplied(tt.err) != tt.notApplied {
			t.Errorf("%s: transient %v, not applied %v; want %v, %v", name, store.IsTransient(tt.err), store.WasNotApplied(tt.err), tt.transient, tt.notApplied)
		}
	}
	if !store.IsGone(answer(404, store.CodeMessageNotFound)) || !store.IsGone(answer(400, store.CodePopReceiptMismatch)) || store.IsGone(answer(503, "ServerBusy")) {
		t.Error("isGone is wrong")
	}
}

func TestRetry_MakesAFewAttemptsAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		err := store.Retry(t.Context(), "read row", func(context.Context) error {
			attempts++
			return &azcore.ResponseError{StatusCode: 503}
		})
		if attempts != store.MaxAttempts || err == nil || !strings.HasPrefix(err.Error(), "read row: 4 attempts: ") {
			t.Errorf("%d attempts, error %v", attempts, err)
		}
		attempts = 0
		err = store.Retry(t.Context(), "read row", func(ctx context.Context) error {
			if attempts++; attempts == 1 {
				<-ctx.Done() // an answer that never comes
				return ctx.Err()
			}
			return nil
		})
		if attempts != 2 || err != nil {
			t.Errorf("%d attempts, error %v; want a second after the first took too long", attempts, err)
		}
		attempts = 0
		ctx, cancel := context.WithCancelCause(t.Context())
		err = store.Retry(ctx, "read row", func(context.Context) error {
			attempts++
			cancel(errStopped)
			return &azcore.ResponseError{StatusCode: 503}
		})
		if attempts != 1 || !errors.Is(err, errStopped) {
			t.Errorf("%d attempts, error %v; want none after the caller stopped", attempts, err)
		}
	})
}

func TestBuffer_GivesRoomToWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := buffer{free: 5}
		if got := b.take(t.Context(), 32, nil); got != 5 {
			t.Fatalf("took %d, want 5", got)
		}
		full := 0
		got := make(chan int)
		go func() { got <- b.take(t.Context(), 2, func() { full++ }) }()
		synctest.Wait()
		b.give(3)
		if n := <-got; n != 2 || full != 1 {
			t.Errorf("took %d, told %d times that it was full; want 2 and 1", n, full)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n := b.take(ctx, 1, nil); n != 0 {
			t.Errorf("took %d after the end", n)
		}
	})
}

// The end of a prefix comes after all that begin with it, in whichever order keys are.
func TestPrefixEnd_ComesAfterAllThatBeginWithThePrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"inst": "insu", "a^0": "a^1", "\uD7FF": "\uE000", "ü": "ý", "a\uFFFC": "a\uFFFD", "😀": "😁",
		"a\uFFFD": "b", "a\uFFFF": "b", "a\U0010FFFF": "b", "a\U0010FFFF\uFFFD\xff": "b", "\xff": "", "\U0010FFFF": "", "": "",
	} {
		got, ok := prefixEnd(prefix)
		if got != want || ok != (want != "") {
			t.Errorf("prefixEnd(%q) = %q, %v; want %q", prefix, got, ok, want)
		}
		for _, rest := range []string{"", "z", "\uFFFF", "\U0010FFFF"} {
			if id := prefix + rest; ok && (id >= got || slices.Compare(utf16.Encode([]rune(id)), utf16.Encode([]rune(got))) >= 0) {
				t.Errorf("%q, which begins with %q, does not come before %q", id, prefix, got)
			}
		}
	}
}

func TestRowCache_ForgetsWhatHasEnded(t *testing.T) {
	var c rowCache
	goesOn := &wire.InstanceRow{ETag: "1"}
	c.put("i", goesOn)
	if c.get("i") != goesOn {
		t.Error("a row that was put is not there")
	}
	done := &wire.InstanceRow{ETag: "2"}
	done.State.Status = history.Completed
	c.put("i", done)
	if c.get("i") != nil {
		t.Error("the row of an instance that has ended is there")
	}
	for i := range maxCachedRows + 1 {
		c.put(fmt.Sprint(i), goesOn)
	}
	if len(c.rows) > maxCachedRows {
		t.Errorf("%d rows", len(c.rows))
	}
}
