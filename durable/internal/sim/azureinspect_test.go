package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
)

// Inspect checks all requests to the account:
//
//  1. No history row of an execution was written twice, which would mean that two workers had the instance.
//     A request that was in flight while its instance was purged is exempt.
//  2. Every checkpoint was conditional on the history that it was based on.
//  3. Every activity that ran was scheduled by a commit. An activity that a worker received from the queue
//     is exempt, because its message is sent before the commit, which may fail.
//  4. No activity ran before that commit, with the same exemption.
//  5. Two workers did not read the same control queue for longer than a worker needs to notice the loss of
//     its partition.
//  6. No activity was delivered while a worker was running it and could keep its message hidden.
//  7. No undecodable message was lost.
//  8. No message or row referred to a deleted blob at any time.
//  9. No message was hidden or renewed more than maxUpdates times.
func (a *azure) Inspect(runs []sim.ActivityRun) (faults []string) {
	in := inspection{written: map[historyRow]bool{}, purged: map[string]time.Duration{}, committed: map[string]time.Duration{}, received: map[string]time.Duration{}, sent: map[string]bool{}}
	for _, e := range a.account.Log() {
		switch {
		case e.Operation == "EntityGroupTransaction" && e.Target == "SimHistory" && e.Status == 202 && e.Code == "":
			in.commit(e)
		case e.Target == "SimInstances" && e.Status == 204 && (e.Operation == "InsertEntity" || e.Operation == "UpdateEntity"):
			in.begin(e)
		case e.Target == "sim-workitems" && e.Operation == "PutMessage" && e.Status == 201:
			for _, key := range keysIn(e.Body) {
				in.sent[key] = true
			}
		case e.Target == "sim-workitems" && e.Operation == "GetMessages":
			for _, key := range keysIn(e.Answer) {
				if at := e.Worker + " " + key; in.received[at] == 0 {
					in.received[at] = e.AppliedAt
				}
			}
		}
	}
	for _, run := range runs {
		in.run(run)
	}
	return slices.Concat(in.faults, a.lostStrangers(), a.watch.faults, concurrentReaders(a.account.Log()), deliveredTwice(a.account.Log(), runs), updatedTooOften(a.account.Log()))
}

// maxUpdates is the maximum number of updates of a message. An abandoned message is received after 2, 4, 8
// seconds and so on, up to 10 minutes, so several hours of simulated time take fewer updates.
const maxUpdates = 60

// updatedTooOften returns the messages that were updated more than maxUpdates times.
func updatedTooOften(log []azsim.Entry) (faults []string) {
	updates := map[string]int{}
	for _, e := range log {
		if e.Operation == "UpdateMessage" && e.Status == 204 {
			if updates[e.Path]++; updates[e.Path] == maxUpdates+1 {
				faults = append(faults, fmt.Sprintf("at %v %s was updated %d times", e.AppliedAt, e.Path, maxUpdates+1))
			}
		}
	}
	return faults
}

// inspection is the result of the requests so far.
type inspection struct {
	written   map[historyRow]bool
	purged    map[string]time.Duration // time of the last deletion of an instance's history
	committed map[string]time.Duration // time of the first commit that scheduled an activity
	received  map[string]time.Duration // time at which a worker received an activity from the queue
	sent      map[string]bool          // keys of activities with a message, and not only a blob
	faults    []string
}

func (in *inspection) fault(format string, args ...any) {
	in.faults = append(in.faults, fmt.Sprintf(format, args...))
}

// historyRow holds the relevant columns of a history row.
type historyRow struct {
	PartitionKey, RowKey, ExecutionID, EventType string
	EventID                                      int `json:"EventId"`
}

func taskOf(instanceID string, id int) string { return fmt.Sprint(instanceID, " ", id) }

func (in *inspection) commit(e azsim.Entry) {
	if change, ok := changeOfSentinel(e.Body); ok && !strings.Contains(change, "\r\nIf-Match: W/") {
		in.fault("at %v %s changed a history unconditionally: %s", e.AppliedAt, e.Worker, change)
	}
	if deleted := deletedSentinel.FindSubmatch(e.Body); deleted != nil {
		in.purged[string(deleted[1])] = e.AppliedAt
	}
	for line := range bytes.Lines(e.Body) {
		var row historyRow
		if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &row) != nil || row.RowKey == "sentinel" || row.EventType == "" {
			continue
		}
		if task := taskOf(row.PartitionKey, row.EventID); row.EventType == "TaskScheduled" && in.committed[task] == 0 {
			in.committed[task] = e.AppliedAt
		}
		row.EventType, row.EventID = "", 0
		if in.written[row] && in.isLate(e, row.PartitionKey) { // a late request brought the instance back
			in.forget(row.PartitionKey)
		}
		if in.written[row] && e.Worker != "client" { // an interrupted rewind is repeated
			in.fault("at %v %s wrote row %s of %s a second time: two workers had the instance", e.AppliedAt, e.Worker, row.RowKey, row.PartitionKey)
		}
		in.written[row] = true
	}
}

// isLate reports whether a request was in flight while its instance was purged.
func (in *inspection) isLate(e azsim.Entry, instance string) bool {
	return e.AppliedAt-e.SentAt > time.Second && e.AppliedAt > in.purged[instance] && in.purged[instance] > 0
}

// forget resets the history rows of an instance that may run again.
func (in *inspection) forget(instance string) {
	maps.DeleteFunc(in.written, func(r historyRow, _ bool) bool { return r.PartitionKey == instance })
}

// begin handles a start. A late start brings a purged instance back, which then runs again.
func (in *inspection) begin(e azsim.Entry) {
	var row historyRow
	if json.Unmarshal(e.Body, &row) == nil && in.isLate(e, row.PartitionKey) {
		in.forget(row.PartitionKey)
	}
}

// changeOfSentinel returns the headers of the operation that updates the sentinel row, if the transaction has
// one.
func changeOfSentinel(body []byte) (head string, ok bool) {
	_, rest, found := bytes.Cut(body, []byte("PATCH "))
	for ; found; _, rest, found = bytes.Cut(rest, []byte("PATCH ")) {
		head, _, _ := bytes.Cut(rest, []byte("\r\n\r\n"))
		if bytes.Contains(head, []byte("RowKey='sentinel'")) {
			return string(head), true
		}
	}
	return "", false
}

var deletedSentinel = regexp.MustCompile(`DELETE [^\r\n]*PartitionKey='([^']*)',RowKey='sentinel'`)

var taskKey = regexp.MustCompile(`\\*"Key\\*":\\*"([^"\\]+)`)

// keysIn returns the keys of the activities in text, which may be escaped several times.
func keysIn(text []byte) (keys []string) {
	for _, match := range taskKey.FindAllStringSubmatch(html.UnescapeString(html.UnescapeString(string(text))), -1) {
		keys = append(keys, match[1])
	}
	return keys
}

func (in *inspection) run(run sim.ActivityRun) {
	if received, ok := in.received[run.Worker+" "+run.Key]; ok && received <= run.At {
		return
	}
	switch at, ok := in.committed[taskOf(run.InstanceID, run.TaskID)]; {
	case !ok:
		in.fault("activity %d of %s (%s) ran but was not scheduled by a commit", run.TaskID, run.InstanceID, run.Key)
	case at > run.At && in.sent[run.Key]:
		in.fault("activity %s ran at %v in %s, before its commit at %v", run.Key, run.At, run.Worker, at)
	}
}

const (
	// maxConcurrentReads is the longest time for which two workers may read the same control queue. A worker
	// that was considered dead notices it at its next check of its partitions.
	maxConcurrentReads = 20 * time.Second
	// betweenReads is the maximum time between two reads of a queue by its owner.
	betweenReads = 16 * time.Second
)

// reader is the period in which a worker reads a control queue.
type reader struct{ since, until time.Duration }

// concurrentReaders returns the control queues that two workers read for longer than atOnce. It ignores late
// requests of slow or frozen workers.
func concurrentReaders(log []azsim.Entry) (faults []string) {
	readers := map[string]map[string]reader{} // by queue and name
	for _, e := range log {
		if e.Operation != "GetMessages" || !strings.HasPrefix(e.Target, "sim-control") || e.Status != 200 || e.AppliedAt-e.SentAt > time.Second {
			continue
		}
		if readers[e.Target] == nil {
			readers[e.Target] = map[string]reader{}
		}
		me, ok := readers[e.Target][e.Worker]
		if !ok || e.AppliedAt-me.until > betweenReads {
			me.since = e.AppliedAt
		}
		me.until = e.AppliedAt
		readers[e.Target][e.Worker] = me
		for name, other := range readers[e.Target] {
			if d := min(me.until, other.until) - max(me.since, other.since); name != e.Worker && d > maxConcurrentReads {
				faults = append(faults, fmt.Sprintf("%s and %s both read %s for %v, until %v", e.Worker, name, e.Target, d, e.AppliedAt))
				delete(readers, e.Target)
				break
			}
		}
	}
	return faults
}

// renewalGrace is the period after a failed or slow queue request in which a worker may fail to renew its
// messages.
const renewalGrace = time.Minute

// deliveredTwice returns the activities that were delivered while another run of them was in progress. An
// activity with two messages, after a repeated episode, is exempt.
func deliveredTwice(log []azsim.Entry, runs []sim.ActivityRun) (faults []string) {
	byKey := map[string][]sim.ActivityRun{}
	for _, run := range runs {
		byKey[run.Key] = append(byKey[run.Key], run)
	}
	messages := map[string]int{}
	trouble := map[string]time.Duration{} // by worker
	var slow []azsim.Entry                // renewals
	for _, e := range log {
		if e.Operation == "UpdateMessage" && e.AppliedAt-e.SentAt > time.Second {
			slow = append(slow, e)
		}
	}
	for _, e := range log {
		if e.Service == azsim.QueueService && (e.Fault != azsim.None || e.AppliedAt-e.SentAt > time.Second) {
			trouble[e.Worker] = e.AppliedAt
		}
		switch {
		case e.Target != "sim-workitems":
		case e.Operation == "PutMessage" && e.Status == 201:
			for _, key := range keysIn(e.Body) {
				messages[key]++
			}
		case e.Operation == "GetMessages":
			for _, key := range keysIn(e.Answer) {
				for _, run := range byKey[key] {
					last, ok := trouble[run.Worker]
					excused := ok && e.AppliedAt-last < renewalGrace || slices.ContainsFunc(slow, func(s azsim.Entry) bool {
						return s.Worker == run.Worker && s.SentAt < e.AppliedAt && e.AppliedAt < s.AppliedAt
					})
					if messages[key] == 1 && run.At < e.AppliedAt && e.AppliedAt < run.Until && !excused {
						faults = append(faults, fmt.Sprintf("at %v %s received activity %s, which %s ran from %v to %v", e.AppliedAt, e.Worker, key, run.Worker, run.At, run.Until))
					}
				}
			}
		}
	}
	return faults
}

// Audit checks that an undisturbed run leaves no blobs behind, and compares the tracking records with the
// histories.
func (a *azure) Audit() (faults []string) {
	if a.quiet {
		faults = a.orphans()
	}
	if !a.cfg.Tracking {
		return faults
	}
	for _, row := range a.account.Rows("SimInstances") {
		id := row.PartitionKey
		past, err := a.client.History(a.Context(context.Background(), "oracle"), id)
		if err != nil {
			faults = append(faults, fmt.Sprintf("history of %s: %v", id, err))
			continue
		}
		if len(past) == 0 { // terminated before its first episode; only the tracking records show it
			continue
		}
		told, err := a.trackedEvents(id, row.Text("ExecutionId"))
		if err != nil {
			faults = append(faults, fmt.Sprintf("tracking records of %s: %v", id, err))
			continue
		}
		for i := range max(len(told), len(past)) {
			if i >= len(told) || i >= len(past) || told[i].Type() != past[i].Type() || told[i].Head().EventID != past[i].Head().EventID {
				faults = append(faults, fmt.Sprintf("the tracking records of %s differ from event %d on: %d records, %d history events", id, i, len(told), len(past)))
				break
			}
		}
	}
	return faults
}

// trackedEvents returns the tracking records of an execution. The records of each execution must have no gaps.
func (a *azure) trackedEvents(id, execution string) (events []history.Event, err error) {
	next := map[string]int{}
	for q := (provider.TrackingQuery{}); ; {
		page, err := a.client.Tracking(a.Context(context.Background(), "oracle"), id, q)
		if err != nil {
			return nil, err
		}
		for _, r := range page.Records {
			if r.SequenceNumber != next[r.ExecutionID] {
				return nil, fmt.Errorf("record %d of execution %s follows record %d", r.SequenceNumber, r.ExecutionID, next[r.ExecutionID]-1)
			}
			next[r.ExecutionID]++
			if r.ExecutionID == execution && r.Event.Type() != history.TypeHistoryState {
				events = append(events, r.Event)
			}
		}
		if q.Continuation = page.Continuation; q.Continuation == "" {
			return events, nil
		}
	}
}
