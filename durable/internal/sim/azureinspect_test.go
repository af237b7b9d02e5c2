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

// Inspect looks at all that was ever asked of the account:
//
//  1. No row of an execution was written twice, but by a request that was on its way
//     while its instance was purged: two workers would have had it.
//  2. Every checkpoint made sure that the history was as it was read.
//  3. Every activity that ran was scheduled by a commit, unless its worker received it
//     from the queue, where it may be though its episode never counts.
//  4. None ran before that, with the same exception.
//  5. No control queue was read by two workers at a time for longer than it takes
//     one of them to notice that the other has it.
//  6. No task was given to a worker while another one, or itself, was at it and
//     could keep its message hidden.
//  7. No message was lost that nobody can decode.
//  8. Nothing named a blob that was gone, at any time.
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
					in.received[at] = e.At
				}
			}
		}
	}
	for _, run := range runs {
		in.run(run)
	}
	return slices.Concat(in.faults, a.lostStrangers(), a.watch.faults, readersAtOnce(a.account.Log()), takenFromOthers(a.account.Log(), runs))
}

// inspection is what was found of the requests so far.
type inspection struct {
	written   map[historyRow]bool
	purged    map[string]time.Duration // when the history of an instance was deleted last
	committed map[string]time.Duration // when an activity was first scheduled
	received  map[string]time.Duration // when a worker got it out of the queue
	sent      map[string]bool          // keys of which there is a message, and not only a blob
	faults    []string
}

func (in *inspection) fault(format string, args ...any) {
	in.faults = append(in.faults, fmt.Sprintf(format, args...))
}

// historyRow is what is looked at of a row that was written to the history.
type historyRow struct {
	PartitionKey, RowKey, ExecutionID, EventType string
	EventID                                      int `json:"EventId"`
}

func taskOf(instanceID string, id int) string { return fmt.Sprint(instanceID, " ", id) }

func (in *inspection) commit(e azsim.Entry) {
	if change, ok := changeOfSentinel(e.Body); ok && !strings.Contains(change, "\r\nIf-Match: W/") {
		in.fault("at %v %s changed a history without regard to how it was: %s", e.At, e.Worker, change)
	}
	if deleted := deletedSentinel.FindSubmatch(e.Body); deleted != nil {
		in.purged[string(deleted[1])] = e.At
	}
	for line := range bytes.Lines(e.Body) {
		var row historyRow
		if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &row) != nil || row.RowKey == "sentinel" || row.EventType == "" {
			continue
		}
		if task := taskOf(row.PartitionKey, row.EventID); row.EventType == "TaskScheduled" && in.committed[task] == 0 {
			in.committed[task] = e.At
		}
		row.EventType, row.EventID = "", 0
		if in.written[row] && in.isLate(e, row.PartitionKey) { // the instance is back, and goes on from there
			in.forget(row.PartitionKey)
		}
		if in.written[row] && e.Worker != "client" { // a rewind that its caller cut off is done again
			in.fault("at %v %s wrote row %s of %s again: two workers had it", e.At, e.Worker, row.RowKey, row.PartitionKey)
		}
		in.written[row] = true
	}
}

// isLate reports whether a request was on its way while an instance was purged.
func (in *inspection) isLate(e azsim.Entry, instance string) bool {
	return e.At-e.Asked > time.Second && e.At > in.purged[instance] && in.purged[instance] > 0
}

// forget lets an instance begin again.
func (in *inspection) forget(instance string) {
	maps.DeleteFunc(in.written, func(r historyRow, _ bool) bool { return r.PartitionKey == instance })
}

// begin looks at a start. One that comes late, after its instance was purged, brings the
// instance back, and it runs again.
func (in *inspection) begin(e azsim.Entry) {
	var row historyRow
	if json.Unmarshal(e.Body, &row) == nil && in.isLate(e, row.PartitionKey) {
		in.forget(row.PartitionKey)
	}
}

// changeOfSentinel returns the head of the operation that changes the sentinel,
// if a transaction has one.
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

// keysIn returns the keys of the activities that text speaks of, however often it
// is quoted.
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
		in.fault("activity %d of %s ran (%s), which no commit scheduled", run.TaskID, run.InstanceID, run.Key)
	case at > run.At && in.sent[run.Key]:
		in.fault("activity %s ran at %v in %s, which was given it before the commit at %v", run.Key, run.At, run.Worker, at)
	}
}

const (
	// atOnce is for how long two workers may read one control queue: one that was
	// given up for dead does not know it until it looks at its partitions again.
	atOnce = 20 * time.Second
	// betweenReads is how long one that reads a queue may let it be.
	betweenReads = 16 * time.Second
)

// reader is a worker that reads a control queue, and since when.
type reader struct{ since, until time.Duration }

// readersAtOnce finds control queues that two workers read for longer than they
// may. What is late on its way, of one that was slow or frozen, does not count.
func readersAtOnce(log []azsim.Entry) (faults []string) {
	readers := map[string]map[string]reader{} // by queue and name
	for _, e := range log {
		if e.Operation != "GetMessages" || !strings.HasPrefix(e.Target, "sim-control") || e.Status != 200 || e.At-e.Asked > time.Second {
			continue
		}
		if readers[e.Target] == nil {
			readers[e.Target] = map[string]reader{}
		}
		me, ok := readers[e.Target][e.Worker]
		if !ok || e.At-me.until > betweenReads {
			me.since = e.At
		}
		me.until = e.At
		readers[e.Target][e.Worker] = me
		for name, other := range readers[e.Target] {
			if d := min(me.until, other.until) - max(me.since, other.since); name != e.Worker && d > atOnce {
				faults = append(faults, fmt.Sprintf("%s and %s read %s at once for %v, until %v", e.Worker, name, e.Target, d, e.At))
				delete(readers, e.Target)
				break
			}
		}
	}
	return faults
}

// troubled is for how long a worker may not get through to its messages after one
// of its requests to queues went wrong.
const troubled = time.Minute

// takenFromOthers finds tasks that were handed out while a worker was at them. One
// of which there are two messages, since an episode was run again, may be.
func takenFromOthers(log []azsim.Entry, runs []sim.ActivityRun) (faults []string) {
	byKey := map[string][]sim.ActivityRun{}
	for _, run := range runs {
		byKey[run.Key] = append(byKey[run.Key], run)
	}
	messages := map[string]int{}
	trouble := map[string]time.Duration{} // by worker
	var slow []azsim.Entry                // renewals
	for _, e := range log {
		if e.Operation == "UpdateMessage" && e.At-e.Asked > time.Second {
			slow = append(slow, e)
		}
	}
	for _, e := range log {
		if e.Service == azsim.QueueService && (e.Fault != azsim.None || e.At-e.Asked > time.Second) {
			trouble[e.Worker] = e.At
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
					excused := ok && e.At-last < troubled || slices.ContainsFunc(slow, func(s azsim.Entry) bool {
						return s.Worker == run.Worker && s.Asked < e.At && e.At < s.At
					})
					if messages[key] == 1 && run.At < e.At && e.At < run.Until && !excused {
						faults = append(faults, fmt.Sprintf("at %v %s was given activity %s, which %s ran from %v to %v", e.At, e.Worker, key, run.Worker, run.At, run.Until))
					}
				}
			}
		}
	}
	return faults
}

// Audit looks that nothing is left behind if nothing went wrong, and holds the audit,
// if there is one, against the histories.
func (a *azure) Audit() (faults []string) {
	if a.quiet {
		faults = a.orphans()
	}
	if !a.cfg.Tracking {
		return faults
	}
	for _, row := range a.account.Rows("SimInstances") {
		id := row.PartitionKey
		past, err := a.client.History(context.Background(), id)
		if err != nil {
			faults = append(faults, fmt.Sprintf("history of %s: %v", id, err))
			continue
		}
		if len(past) == 0 { // it was terminated before it began, which only the audit tells
			continue
		}
		told, err := a.told(id, row.Text("ExecutionId"))
		if err != nil {
			faults = append(faults, fmt.Sprintf("audit of %s: %v", id, err))
			continue
		}
		for i := range max(len(told), len(past)) {
			if i >= len(told) || i >= len(past) || told[i].Type() != past[i].Type() || told[i].Head().EventID != past[i].Head().EventID {
				faults = append(faults, fmt.Sprintf("the audit of %s differs from event %d on: it has %d events, the history %d", id, i, len(told), len(past)))
				break
			}
		}
	}
	return faults
}

// told returns what the audit has of an execution. Each of the instance's executions
// must be without gaps.
func (a *azure) told(id, execution string) (events []history.Event, err error) {
	next := map[string]int{}
	for q := (provider.TrackingQuery{}); ; {
		page, err := a.client.Tracking(context.Background(), id, q)
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
