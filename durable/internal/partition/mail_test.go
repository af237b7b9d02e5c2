package partition

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/partition/partitiontest"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

// tray collects the messages that a partition posts.
type tray struct {
	mu   sync.Mutex
	sent []Outgoing
}

func (y *tray) post(m Outgoing) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.sent = append(y.sent, m)
}

// take returns the messages posted since its previous call.
func (y *tray) take() []Outgoing {
	y.mu.Lock()
	defer y.mu.Unlock()
	defer func() { y.sent = nil }()
	return y.sent
}

// openShare opens a partition of a partitioned hub. It owns the instances whose IDs start with
// letter.
func openShare(t *testing.T, d *disk, letter string) (*rig, *tray) {
	t.Helper()
	y := &tray{}
	cfg := rigConfig()
	cfg.Owns, cfg.Post = func(id string) bool { return id[:1] == letter }, y.post
	return openRigWith(t, d, cfg), y
}

func newShare(t *testing.T, letter string) (*rig, *tray) {
	t.Helper()
	return openShare(t, diskOf(MailTables), letter)
}

// mailOf returns the sent messages as mail that was encoded and decoded.
func (r *rig) mailOf(sender string, sent []Outgoing) []*Mail {
	m := &Mail{Sender: sender}
	for _, l := range sent {
		m.Requests = append(m.Requests, Request{Number: l.Number, Kind: RequestMessage, Message: l.Record})
	}
	return []*Mail{r.decoded(m)}
}

func (r *rig) decoded(m *Mail) *Mail {
	r.Helper()
	b, err := m.Encode()
	r.Must(err)
	again, err := DecodeMail(b)
	r.Must(err)
	if diff := cmp.Diff(m, again); diff != "" {
		r.Fatalf("mail (-sent +received):\n%s", diff)
	}
	return again
}

func TestMail_DeliversMessagesToOtherPartitionsOnce(t *testing.T) {
	t.Parallel()
	a, out := newShare(t, "a")
	b, back := newShare(t, "b")
	a.Start("a")
	b.Start("b")
	b.Finish(b.Next())
	item := a.Next()
	cp := partitiontest.CheckpointOf(item)
	event := provider.TaskMessage{Event: &history.EventRaised{Header: history.NewHeader(time.Now()), Name: "E"}, Target: history.OrchestrationInstance{InstanceID: "b"}}
	cp.Messages = []provider.TaskMessage{event}
	a.Must(item.Session.Commit(t.Context(), cp))
	a.Must(item.Session.Release(t.Context()))

	sent := out.take()
	if len(sent) != 1 || sent[0].To != "b" {
		t.Fatalf("the partition sends %+v; want one message to b", sent)
	}
	a, out = openShare(t, a.disk.copy(), "a") // the process crashes before the message is sent
	if again := out.take(); !cmp.Equal(sent, again) {
		t.Fatalf("after a crash the partition sends %+v; want %+v", again, sent)
	}
	for range 3 {
		b.Must(b.Receive(t.Context(), b.mailOf("p0", sent), []byte("there")))
	}
	a.Sent(sent[:1])
	item = b.Next()
	if len(item.Messages) != 1 || item.Messages[0].Event.(*history.EventRaised).Name != "E" {
		t.Errorf("messages %v, want the event", item.Messages)
	}
	b.Finish(item, partitiontest.Ended())
	b, _ = openShare(t, b.disk.copy(), "b")
	b.Must(b.Receive(t.Context(), b.mailOf("p0", sent), nil))
	if string(b.Position()) != "there" || len(back.take()) > 0 {
		t.Errorf("the position in the mailbox is %q; want \"there\"", b.Position())
	}
	b.wantNoWork()
	a.groups()
	a.stop()
	a.close()
	if _, out := openShare(t, a.disk, "a"); len(out.take()) > 0 {
		t.Error("a sent message is sent again")
	}
}

func TestMail_KeepsAnswersUntilTheSenderHasReadThem(t *testing.T) {
	t.Parallel()
	r, _ := newShare(t, "a")
	sender := ClientSender("x")
	startOf := func(id, execution string) []byte {
		start := &history.ExecutionStarted{Header: history.NewHeader(time.Now()), Name: "O", Instance: history.OrchestrationInstance{InstanceID: id, ExecutionID: execution}}
		b, err := EncodeMessage(provider.TaskMessage{Event: start, Target: start.Instance})
		r.Must(err)
		return b
	}
	seen := &provider.InstanceState{Status: history.Failed}
	m := r.decoded(&Mail{Sender: sender, Requests: []Request{
		{Number: 1, Kind: RequestStart, Message: startOf("a1", "e")},
		{Number: 2, Kind: RequestStart, Message: startOf("a1", "another"), Refuse: []history.RuntimeStatus{history.Pending}},
		{Number: 3, Kind: RequestPurge, ID: "a2"},
		{Number: 4, Kind: RequestPurge, ID: "a1", Seen: seen},
		{Number: 5, Kind: RequestRewind, Execution: provider.RewoundExecution{Instance: history.OrchestrationInstance{InstanceID: "a1", ExecutionID: "e"}, Replace: []int{7}}},
		{Number: 6, Kind: RequestStart, Message: []byte("no message")},
		{Number: 7, Kind: RequestPurge, ID: "a1"},
	}})
	wants := []error{
		nil, &provider.InstanceExistsError{InstanceID: "a1", Status: history.Pending}, provider.ErrInstanceNotFound, provider.ErrInstanceChanged,
		provider.ErrInstanceChanged, fmt.Errorf("decode message: the record has version 110, and this program reads versions up to %d: a newer program wrote it; update this one", history.RecordVersion), nil,
	}
	for range 2 {
		r.Must(r.Receive(t.Context(), []*Mail{m}, nil))
	}
	r, _ = openShare(t, r.disk.copy(), "a")
	for i, want := range wants {
		answered, err := r.Answer(sender, uint64(i+1))
		if !answered || (err == nil) != (want == nil) || want != nil && err.Error() != want.Error() {
			t.Errorf("answer %d: %v, %v; want %v", i+1, answered, err, want)
		}
	}
	r.Must(r.Receive(t.Context(), []*Mail{{Sender: sender, Answered: 6}}, nil))
	for n := range uint64(9) {
		if answered, _ := r.Answer(sender, n); answered != (n == 7) {
			t.Errorf("request %d is answered: %v; want an answer only to request 7", n, answered)
		}
	}
}

// An activity can run in another partition than the instance that scheduled it.
func TestMail_DeliversTheResultOfAnActivityToItsPartition(t *testing.T) {
	t.Parallel()
	r, out := newShare(t, "b")
	r.Must(r.writer.Do(t.Context(), func(t *txn) error {
		record, err := encodeMessage(provider.TaskMessage{Event: partitiontest.Scheduled(3), Target: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}})
		t.addTask(record)
		return err
	}))
	a := r.AwaitActivity()
	r.Must(a.Lock.Complete(t.Context(), partitiontest.ResultOf(3)))
	r.Must(a.Lock.Complete(t.Context(), partitiontest.ResultOf(3)))
	sent := out.take()
	if !slices.EqualFunc(sent, []string{"a"}, func(l Outgoing, to string) bool { return l.To == to }) {
		t.Errorf("the partition sends %+v; want one message to a", sent)
	}
	r.wantNoWork()
}

// An activity that is ready for too long can run in another partition.
func TestOffload_MovesWaitingActivitiesAndReturnsTheirResults(t *testing.T) {
	t.Parallel()
	a, out := newShare(t, "a")
	b, back := newShare(t, "b")
	a.Start("a")
	a.Finish(a.Next(), partitiontest.Scheduled(0), partitiontest.Scheduled(1), partitiontest.Scheduled(2))
	if n, err := a.Offload(t.Context(), 2, time.Hour, 7); n != 0 || err != nil {
		t.Errorf("Offload moved %d activities that have not waited, and returned %v", n, err)
	}
	held := a.AwaitActivity()
	if n, err := a.Offload(t.Context(), 9, 0, 7); n != 2 || err != nil {
		t.Fatalf("Offload moved %d activities, and returned %v; want the two that are not running", n, err)
	}
	if got := a.Backlog().Activities.Length; got != 0 {
		t.Errorf("%d activities are ready, want none", got)
	}
	sent := out.take()
	for _, l := range sent {
		if l.Partition != 7 {
			t.Errorf("a message goes to partition %d; want 7", l.Partition)
		}
	}
	b.Must(b.Receive(t.Context(), b.mailOf("p0", sent), nil))
	if got := b.Backlog().Activities.Length; got != 2 {
		t.Errorf("%d activities are ready, want 2", got)
	}
	for range 2 {
		x := b.AwaitActivity()
		b.Must(x.Lock.Complete(t.Context(), partitiontest.ResultOf(x.Task.EventID)))
	}
	a.Must(held.Lock.Complete(t.Context(), partitiontest.ResultOf(held.Task.EventID)))
	a.Must(a.Receive(t.Context(), a.mailOf("p1", back.take()), nil))
	for got := 0; got < 3; {
		item := a.Next()
		got += len(item.Messages)
		if got < 3 {
			a.Finish(item)
		} else {
			a.Finish(item, partitiontest.Ended())
		}
	}
	a.wantNoWork()
	b.wantNoWork()

	// Messages that may have arrived are sent again to the same partition, with the same
	// numbers. In another partition, the activity would run a second time and both results
	// would count.
	_, again := openShare(t, a.disk.copy(), "a")
	if got := again.take(); !cmp.Equal(got, sent) {
		t.Errorf("the next owner sends %+v, want %+v", got, sent)
	}
}

// A message from a newer program stays in the mailbox, together with all later messages.
func TestMail_KeepsMessagesThatItCannotDecode(t *testing.T) {
	t.Parallel()
	r, _ := newShare(t, "a")
	record, err := EncodeMessage(provider.TaskMessage{Event: &history.EventRaised{Name: "E"}, Target: history.OrchestrationInstance{InstanceID: "a"}})
	r.Must(err)
	newer := slices.Clone(record)
	newer[0] = history.RecordVersion + 1
	all := []*Mail{{Sender: "p1", Requests: []Request{{Number: 1, Message: newer}, {Number: 2, Message: record}}}}
	if err := r.Receive(t.Context(), all, []byte("there")); err == nil {
		t.Error("the message was received")
	}
	if messages, _, _, err := r.Pending(); err != nil || messages != 0 || r.Position() != nil {
		t.Errorf("%d messages are stored, and the mail was read to %q, %v", messages, r.Position(), err)
	}
	all[0].Requests[0].Message = record // as the newer program decodes it
	r.Must(r.Receive(t.Context(), all, nil))
	if messages, _, _, err := r.Pending(); err != nil || messages != 2 {
		t.Errorf("%d messages are stored (%v); want both", messages, err)
	}
}

// Requests whose effects are too large for one group are received one by one. A request that is too large
// alone is refused, and does not stop the mail behind it.
func TestMail_RefusesOnlyARequestThatIsTooLarge(t *testing.T) {
	t.Parallel()
	const most = 10_000
	client := ClientSender("c")
	for name, tt := range map[string]struct {
		sizes   []int // of the inputs
		start   int   // index of a start in sizes; the others are events
		want    int   // stored messages
		refused bool  // the start
	}{
		"together too large":     {sizes: []int{6000, 10, 6000}, start: 1, want: 3},
		"a start is too large":   {sizes: []int{10, 6000, 10}, start: 1, want: 2, refused: true},
		"a message is too large": {sizes: []int{10, 10, 12_000, 10}, start: 0, want: 3},
	} {
		text := new(bytes.Buffer)
		cfg := rigConfig()
		cfg.Owns, cfg.Post, cfg.Logger = func(string) bool { return true }, func(Outgoing) {}, slog.New(slog.NewTextHandler(text, nil))
		r := openRigWith(t, diskOf(MailTables), cfg)
		m := &Mail{Sender: client}
		for i, size := range tt.sizes {
			target := history.OrchestrationInstance{InstanceID: fmt.Sprint(name, i), ExecutionID: "e"}
			input := new(strings.Repeat("x", size))
			msg := provider.TaskMessage{Event: &history.EventRaised{Name: "E", Input: input}, Target: target}
			kind := RequestMessage
			if i == tt.start {
				msg.Event, kind = &history.ExecutionStarted{Name: "O", Input: input, Instance: target}, RequestStart
			}
			record, err := EncodeMessage(msg)
			r.Must(err)
			m.Requests = append(m.Requests, Request{Number: uint64(i + 1), Kind: kind, Message: record})
		}
		r.disk.most.Store(most)
		r.Must(r.Receive(t.Context(), []*Mail{r.decoded(m)}, []byte("there")))
		if messages, _, _, err := r.Pending(); err != nil || messages != tt.want {
			t.Errorf("%s: %d messages are stored (%v); want %d", name, messages, err, tt.want)
		}
		answered, err := r.Answer(client, uint64(tt.start+1))
		if !answered || (err != nil) != tt.refused || tt.refused && !strings.Contains(err.Error(), logstore.ErrTooLarge.Error()) {
			t.Errorf("%s: answered %t: %v; want refused %t", name, answered, err, tt.refused)
		}
		if last, err := r.Received(client); err != nil || last != uint64(len(tt.sizes)) || string(r.Position()) != "there" {
			t.Errorf("%s: received up to %d, %v, position %q; want all", name, last, err, r.Position())
		}
		lost := strings.Contains(text.String(), `level=ERROR msg="a message is lost`) && strings.Contains(text.String(), `instanceId="a message is too large2"`)
		if lost != (name == "a message is too large") {
			t.Errorf("%s: the log is %q", name, text)
		}
	}
}

// A message for an instance with a damaged record is kept with it.
func TestMail_KeepsMessagesForADamagedInstance(t *testing.T) {
	t.Parallel()
	r, _ := newShare(t, "a")
	r.Must(r.Update(t.Context(), func(t *logstore.Txn) error {
		t.Put(instancesTable, []byte("a"), []byte{255})
		return nil
	}))
	start := &history.ExecutionStarted{Instance: history.OrchestrationInstance{InstanceID: "a", ExecutionID: "e"}}
	record, err := EncodeMessage(provider.TaskMessage{Event: start, Target: start.Instance})
	r.Must(err)
	r.Must(r.Receive(t.Context(), []*Mail{{Sender: "p1", Requests: []Request{{Number: 1, Message: record}}}}, nil))
	if messages, _, _, err := r.Pending(); err != nil || messages != 1 {
		t.Errorf("%d messages are stored (%v); want the start", messages, err)
	}
}

// An open partition forgets clients that sent nothing for a day. It keeps other partitions, and
// clients whose mail arrives in the same transaction.
func TestForgetClients_KeepsPartitionsAndRecentClients(t *testing.T) {
	t.Parallel()
	r, _ := newShare(t, "a")
	gone, back, late := ClientSender("gone"), ClientSender("back"), ClientSender("late")
	mail := func(sender string, number uint64) *Mail {
		return r.decoded(&Mail{Sender: sender, Requests: []Request{{Number: number, Kind: RequestPurge, ID: "a"}}})
	}
	r.Must(r.Receive(t.Context(), []*Mail{mail(gone, 1), mail(back, 1), mail(late, 1), mail("p1", 1)}, nil))
	for _, sender := range []string{gone, back, "p1"} {
		r.senders[sender].at = time.Now().Add(-25 * time.Hour)
	}
	r.Must(r.writer.Do(t.Context(), func(t *txn) error {
		err := inbox{t}.receive(mail(back, 2), nil)
		inbox{t}.removeIdleClients()
		return err
	}))
	r, _ = openShare(t, r.disk.copy(), "a")
	for sender, want := range map[string]uint64{gone: 0, back: 2, late: 1, "p1": 1} {
		var got uint64
		if c := r.senders[sender]; c != nil {
			got = c.last
		}
		if got != want {
			t.Errorf("the last request of %s is %d; want %d", sender, got, want)
		}
	}
	if answered, _ := r.Answer(gone, 1); answered {
		t.Error("the answer to a forgotten client is still stored")
	}
}
