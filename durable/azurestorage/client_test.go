package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

var liveStatuses = []history.RuntimeStatus{history.Running, history.ContinuedAsNew, history.Pending, history.Suspended}

func TestStartInstance_RejectsAnIDInARefusedStatus(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "one", "e1", `1`)
	for range 3 {
		err := h.StartInstance(t.Context(), startMessage("one", "e2", `2`), liveStatuses)
		exists, ok := errors.AsType[*provider.InstanceExistsError](err)
		if !ok || exists.InstanceID != "one" || exists.Status != history.Pending {
			t.Fatalf("error %v, want an InstanceExistsError in status Pending", err)
		}
	}
	var executions []string
	for _, text := range queueTexts(t, h.controlQueues[0]) {
		envelope, err := wire.DecodeEnvelope(text)
		if err != nil {
			t.Fatal(err)
		}
		executions = append(executions, envelope.Message.Target.ExecutionID)
	}
	if want := []string{"e1", "e1"}; !slices.Equal(executions, want) { // the client sends the start of a pending instance again, once
		t.Errorf("the queue has starts of %q, want %q", executions, want)
	}
}

func TestStartInstance_SucceedsForOneOfSeveralCallers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		var mu sync.Mutex
		var won []string
		var group sync.WaitGroup
		for i := range 8 {
			group.Go(func() {
				execution := fmt.Sprintf("e%d", i)
				err := h.StartInstance(t.Context(), startMessage("contended", execution, `1`), liveStatuses)
				_, exists := errors.AsType[*provider.InstanceExistsError](err)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won = append(won, execution)
				case !exists:
					t.Errorf("%s: %v", execution, err)
				}
			})
		}
		group.Wait()
		if len(won) != 1 {
			t.Fatalf("starts %v succeeded, want one", won)
		}
		item := mustNext(t, h)
		if item.Instance.ExecutionID != won[0] {
			t.Errorf("execution %s runs, want %s", item.Instance.ExecutionID, won[0])
		}
		commitEnd(t, item, 0, `"done"`)
	})
}

func TestStartInstance_ReplacesAnEndedInstance(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		h := openHub(t, testConfig(t))
		runHub(t, h)
		mustStart(t, h, "again", "e1", `1`)
		runHello(t, h, "Tokyo", "Seattle")
		if err := h.StartInstance(t.Context(), startMessage("again", "e2", `2`), liveStatuses); err != nil {
			t.Fatal(err)
		}
		state, err := h.Instance(t.Context(), "again", provider.Fetch{Output: true})
		if err != nil {
			t.Fatal(err)
		}
		if state.Generation != 1 || state.Status != history.Pending || state.Output != nil || !state.CompletedAt.IsZero() {
			t.Errorf("after the second start: %+v", state)
		}
		item := mustNext(t, h)
		if item.Instance.ExecutionID != "e2" || len(item.History) != 0 {
			t.Fatalf("execution %s with %d events, want e2 without history", item.Instance.ExecutionID, len(item.History))
		}
		commitEnd(t, item, 0, `"second"`)
		events, err := h.History(t.Context(), "again")
		if err != nil {
			t.Fatal(err)
		}
		if len(events) != 4 {
			t.Errorf("%d events, want the 4 of the second execution and none of the first", len(events))
		}
	})
}

func TestClient_DoesNotFindAnUnknownInstance(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	if _, err := h.Instance(t.Context(), "nobody", provider.Fetch{}); !errors.Is(err, provider.ErrInstanceNotFound) {
		t.Errorf("error %v, want ErrInstanceNotFound", err)
	}
	events, err := h.History(t.Context(), "nobody")
	if err != nil || len(events) != 0 {
		t.Errorf("history %v, error %v; want neither", events, err)
	}
}

func TestInstances_ReturnsMatchesInPages(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	var want []string
	for i := range 5 {
		id := fmt.Sprintf("it's-%d", i)
		mustStart(t, h, id, "e", fmt.Sprint(i))
		want = append(want, id)
	}
	mustStart(t, h, "other/1", "e", `1`)
	var got []string
	q := provider.Query{IDPrefix: "it's-", PageSize: 2, Fetch: provider.Fetch{Input: true}, Statuses: []history.RuntimeStatus{history.Pending, history.Running}}
	for pages := 0; ; pages++ {
		page, err := h.Instances(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range page.Instances {
			got = append(got, state.Instance.InstanceID)
			if state.Input == nil {
				t.Errorf("%s has no input", state.Instance.InstanceID)
			}
		}
		if len(page.Instances) > 2 || pages > 5 {
			t.Fatalf("page %d has %d instances", pages, len(page.Instances))
		}
		if page.Continuation == "" {
			break
		}
		q.Continuation = page.Continuation
	}
	if !slices.Equal(got, want) {
		t.Errorf("instances %q, want %q", got, want)
	}
	page, err := h.Instances(t.Context(), provider.Query{CreatedFrom: time.Now().Add(time.Hour)})
	if err != nil || len(page.Instances) != 0 {
		t.Errorf("instances created in the future: %v, %v; want none", page, err)
	}
	if page, err = h.Instances(t.Context(), provider.Query{}); err != nil || len(page.Instances) != 6 {
		t.Errorf("all: %v, %v; want 6", page, err)
	}
	if _, err := h.Instances(t.Context(), provider.Query{Continuation: "oneword"}); err == nil {
		t.Error("an invalid continuation was accepted")
	}
}

func TestInstances_SeparatesUnreadableInstances(t *testing.T) {
	t.Parallel()
	var refused atomic.Bool
	counter := newCounter(t)
	counter.Intercept = func(call azuritetest.Call, req *http.Request, next func() (*http.Response, error)) (*http.Response, error) {
		if refused.Load() && call.Name == "GetBlob" {
			return azuritetest.ErrorResponse(req, http.StatusForbidden, "AuthorizationFailure"), nil
		}
		return next()
	}
	cfg := testConfig(t)
	cfg.Transport = counter
	h := openHub(t, cfg)
	for _, id := range []string{"a", "bad row", "gone", "no gzip", "z"} {
		mustStart(t, h, id, "e", large)
	}
	row := wire.Row{PartitionKey: "bad row"}
	row.SetString("Tags", "{")
	if _, err := h.instances.RowTable.Merge(t.Context(), row, "*"); err != nil {
		t.Fatal(err)
	}
	for _, name := range blobNames(t, h) {
		var err error
		switch {
		case strings.HasPrefix(name, "gone/"):
			err = h.largeMessages.Remove(t.Context(), name)
		case strings.HasPrefix(name, "no gzip/"):
			if err = h.largeMessages.Remove(t.Context(), name); err == nil {
				err = h.largeMessages.CreateBlob(t.Context(), name, []byte("{}"))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	page, err := h.Instances(t.Context(), provider.Query{Fetch: provider.Fetch{Input: true}})
	if err != nil {
		t.Fatal(err)
	}
	var got, unreadable []string
	for _, s := range page.Instances {
		got = append(got, s.Instance.InstanceID)
	}
	for _, u := range page.Unreadable {
		unreadable = append(unreadable, u.InstanceID)
	}
	if !slices.Equal(got, []string{"a", "z"}) || !slices.Equal(unreadable, []string{"bad row", "gone", "no gzip"}) {
		t.Errorf("instances %q, unreadable %q", got, unreadable)
	}
	if page, err = h.Instances(t.Context(), provider.Query{}); err != nil || len(page.Instances) != 4 {
		t.Errorf("without payloads: %v, %v; want all but the bad row", page, err)
	}
	refused.Store(true)
	if page, err = h.Instances(t.Context(), provider.Query{Fetch: provider.Fetch{Input: true}}); store.StatusOf(err) != http.StatusForbidden {
		t.Errorf("%v, %v; want the error of the rejected blob request instead of a page without instances", page, err)
	}
}

// An instance that is purged between the reads of its row and its blobs is neither on the page nor
// unreadable.
func TestInstances_ReadsTheRowAgainIfItsBlobsAreMissing(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "i", "e", large)
	row, err := h.instances.Rows.Fetch(t.Context(), "i", provider.Fetch{Input: true})
	if err != nil || row == nil {
		t.Fatal(row, err)
	}
	for _, name := range blobNames(t, h) {
		if err := h.largeMessages.Remove(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.instances.RowTable.Remove(t.Context(), wire.Row{PartitionKey: "i"}); err != nil {
		t.Fatal(err)
	}
	if state, err := h.instances.Rows.ResolveOrReadAgain(t.Context(), row, provider.Query{Fetch: provider.Fetch{Input: true}}); state != nil || err != nil {
		t.Errorf("%v, %v; want nothing", state, err)
	}
}

// Workers that use different host names for the same account share its blobs.
func TestInstance_ReadsALargeOutputWithAnotherEndpoint(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	mustStart(t, h, "i", "e", "1")
	const blob = "i/output.json.gz"
	if err := h.largeMessages.Write(t.Context(), blob, []byte(large)); err != nil {
		t.Fatal(err)
	}
	own := h.instances.Rows.BlobURL(blob)
	for _, address := range []string{own, "https://account.z01.blob.storage.azure.net/" + h.largeMessages.Name + "/" + blob} {
		row := wire.Row{PartitionKey: "i"}
		row.SetString("Output", address)
		if _, err := h.instances.RowTable.Merge(t.Context(), row, "*"); err != nil {
			t.Fatal(err)
		}
		state, err := h.Instance(t.Context(), "i", provider.Fetch{Output: true})
		if err != nil || state.Output == nil || *state.Output != large {
			t.Errorf("the output at %s is not read: %v", address, err)
		}
	}
}

func TestTaskHub_StoresLargePayloadsInBlobs(t *testing.T) {
	t.Parallel()
	h := openHub(t, testConfig(t))
	runHub(t, h)
	const id = "large/one's"
	large := func(what string) string { return `"` + strings.Repeat(what+" ", 100_000/len(what)) + `"` }
	mustStart(t, h, id, "e1", large("input"))

	fetchAll := provider.Fetch{Input: true, Output: true}
	state, err := h.Instance(t.Context(), id, fetchAll)
	if err != nil || store.Value(state.Input) != large("input") {
		t.Fatalf("input of %d bytes, %v", len(store.Value(state.Input)), err)
	}
	item := mustNext(t, h)
	if got := item.Messages[0].Event.(*history.ExecutionStarted).Input; store.Value(got) != large("input") {
		t.Fatalf("the start message has an input of %d bytes", len(store.Value(got)))
	}
	commitActivity(t, item, 0, large("task"))
	work := mustActivity(t, h)
	if store.Value(work.Task.Input) != large("task") {
		t.Fatalf("the activity has an input of %d bytes", len(store.Value(work.Task.Input)))
	}
	if err := work.Lock.Complete(t.Context(), &history.TaskCompleted{Header: header(-1), TaskScheduledID: 0, Result: new(large("result"))}); err != nil {
		t.Fatal(err)
	}
	item = mustNext(t, h)
	if start := item.History[1].(*history.ExecutionStarted); store.Value(start.Input) != large("input") {
		t.Errorf("the history has an input of %d bytes", len(store.Value(start.Input)))
	}
	commitEnd(t, item, 1, large("output"))

	if state, err = h.Instance(t.Context(), id, fetchAll); err != nil {
		t.Fatal(err)
	}
	if store.Value(state.Input) != large("input") || store.Value(state.Output) != large("output") {
		t.Errorf("input of %d and output of %d bytes", len(store.Value(state.Input)), len(store.Value(state.Output)))
	}
	events, err := h.History(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if done := events[5].(*history.TaskCompleted); store.Value(done.Result) != large("result") {
		t.Errorf("the history has a result of %d bytes", len(store.Value(done.Result)))
	}
	var kinds []string
	for _, name := range blobNames(t, h) {
		switch {
		case strings.HasPrefix(name, "large/one's/message-"):
			kinds = append(kinds, name[strings.LastIndex(name, "-")+1:])
		case strings.HasPrefix(name, "large^0one's/history-"):
			parts := strings.Split(strings.TrimPrefix(name, "large^0one's/history-"), "-")
			kinds = append(kinds, parts[0]+"-"+parts[1]+"-"+parts[3])
		default:
			t.Errorf("blob %s", name)
		}
	}
	slices.Sort(kinds)
	want := []string{
		"0000000000000001-ExecutionStarted-Input.json.gz", "0000000000000005-TaskCompleted-Result.json.gz",
		"0000000000000006-ExecutionCompleted-Result.json.gz",
		"ExecutionStarted.json.gz", "TaskScheduled.json.gz", // the result needs no message
	}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Errorf("blobs (-want +got):\n%s", diff)
	}
}

func TestTaskHub_WritesQueueTextAsConfiguredAndReadsBoth(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	raw := openHub(t, cfg)
	cfg.QueueEncoding = Base64
	base64 := openHub(t, cfg)
	mustStart(t, raw, "raw", "e", `1`)
	mustStart(t, base64, "base64", "e", `1`)
	texts := queueTexts(t, raw.controlQueues[0])
	slices.Sort(texts) // queues do not guarantee an order
	if len(texts) != 2 || !strings.HasPrefix(texts[0], "eyIk") || !strings.HasPrefix(texts[1], `{"$type"`) {
		t.Fatalf("queue texts %.60q", texts)
	}
	runHub(t, raw)
	for range 2 {
		commitEnd(t, mustNext(t, raw), 0, `1`)
	}
}

func TestTaskHub_RejectsAnotherPartitionCount(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.PartitionCount = 2
	if err := openHub(t, cfg).resources.ensureCreated(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, count := range []int{1, 3} {
		cfg.PartitionCount = count
		h := openHub(t, cfg)
		for what, err := range map[string]error{
			"Run":           h.Run(t.Context()),
			"StartInstance": h.StartInstance(t.Context(), startMessage("i", "e", "1"), nil),
		} {
			mismatch, ok := errors.AsType[*PartitionCountError](err)
			if !ok || mismatch.Configured != count || mismatch.Existing != 2 ||
				!strings.Contains(err.Error(), fmt.Sprintf("has 2 partitions, but PartitionCount is %d", count)) {
				t.Errorf("%s with %d partitions: %v", what, count, err)
			}
		}
	}
}

func TestTaskHub_CanBeCreatedConcurrently(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.PartitionCount = 16
	var group sync.WaitGroup
	for range 6 {
		h := openHub(t, cfg)
		for range 3 {
			group.Go(func() {
				if err := h.resources.ensureCreated(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
}

// queueTexts receives all messages of a queue and makes them visible again.
func queueTexts(t testing.TB, q *store.Queue) []string {
	t.Helper()
	messages, err := q.Receive(t.Context(), 32, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range messages {
		texts = append(texts, m.Text)
		if _, err := q.Update(t.Context(), m, 0); err != nil {
			t.Fatal(err)
		}
	}
	return texts
}

func blobNames(t testing.TB, h *TaskHub) []string {
	t.Helper()
	var names []string
	for pager := h.largeMessages.Client.NewListBlobsFlatPager(nil); pager.More(); {
		page, err := pager.NextPage(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range page.Segment.BlobItems {
			names = append(names, *b.Name)
		}
	}
	return names
}
