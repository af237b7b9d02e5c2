package handover_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
)

// A change is one write of a recording: a message put on a queue, or rows of
// one table written together.
type change struct {
	at     time.Time
	client bool // whoever called the orchestration wrote it, not a worker

	message *message
	rows    []row
}

// A message is one on a queue.
type message struct {
	queue  string // what the hub's name is in front of: control-00 or workitems
	text   string
	hidden time.Duration

	instance, execution string // whom it is for; the execution may be empty
	event               recordedEvent

	// goneAt is the place of the first change at which nobody needs it any more:
	// its event is in a history, or its activity has answered.
	goneAt int
}

type recordedEvent struct {
	Type            string `json:"$type"`
	EventID         int    `json:"EventId"`
	TaskScheduledID *int   `json:"TaskScheduledId"`
	Timestamp       time.Time
	ParentInstance  *struct{}
}

// kind returns what the EventType column says of such events.
func (e recordedEvent) kind() string {
	return strings.TrimSuffix(strings.TrimPrefix(e.Type, "DurableTask.Core.History."), "Event")
}

// A row is one of a table as it was written.
type row struct {
	table  string // Instances, History or Partitions
	verb   string
	entity string // JSON
	key    rowKey
}

type rowKey struct{ PartitionKey, RowKey string }

// columns are those of a row that tell what it says of messages.
type columns struct {
	EventType, ExecutionID, RuntimeStatus string
	Timestamp                             time.Time `json:"_Timestamp"`
}

func (r row) columns(t *testing.T) (c columns) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.entity), &c); err != nil {
		t.Fatalf("%v in %s", err, r.entity)
	}
	return c
}

var (
	hubURL         = regexp.MustCompile(`/([A-Za-z]+)(History|Instances|Partitions|-control-00|-workitems)`)
	batchOperation = regexp.MustCompile(`(?s)(PUT|POST|PATCH) (\S+) HTTP/1\.1\r\n.*?\r\n\r\n(.*?)\r\n--changeset`)
	hiddenFor      = regexp.MustCompile(`visibilitytimeout=(\d+)`)
)

// recordingDay is when the recordings were made, which say the time of the day only.
const recordingDay = "2026-11-20"

// recordedChanges returns what was written in the scenarios of a file, in order,
// with the messages' ends.
func recordedChanges(t *testing.T, file string, scenarios ...string) []*change {
	t.Helper()
	wanted := make(map[string]bool)
	for _, s := range scenarios {
		wanted[s] = true
	}
	var all []*change
	for _, r := range recordings.All(t) {
		if r.Folder != file || !wanted[r.Scenario] || r.Method == "GET" {
			continue
		}
		at, err := time.Parse(time.RFC3339, recordingDay+"T"+r.Time+"Z")
		if err != nil {
			t.Fatal(err)
		}
		c := &change{at: at}
		switch {
		case r.Service == "queue":
			c.message = readMessage(t, r.URL, r.Body)
			c.client = sentByClient(c.message)
		case r.URL == "/$batch":
			for _, op := range batchOperation.FindAllStringSubmatch(r.Body, -1) {
				c.rows = append(c.rows, readRow(t, op[1], strings.ReplaceAll(op[2], "devstoreaccount1/", ""), strings.TrimSpace(op[3])))
			}
		default:
			c.rows = []row{readRow(t, r.Method, r.URL, r.Body)}
			// A client writes the row of what it starts, and all that a rewind changes.
			c.client = c.rows[0].table == "History" || c.rows[0].columns(t).RuntimeStatus == "Pending"
		}
		if c.message == nil && c.rows[0].table == "Partitions" {
			continue
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		t.Fatalf("%s has nothing of %v", file, scenarios)
	}
	endMessages(t, all)
	return all
}

func readRow(t *testing.T, verb, url, entity string) row {
	t.Helper()
	u := hubURL.FindStringSubmatch(url)
	if u == nil {
		t.Fatalf("no table in %s", url)
	}
	r := row{table: u[2], verb: verb, entity: entity}
	if err := json.Unmarshal([]byte(entity), &r.key); err != nil {
		t.Fatalf("%v in %s", err, entity)
	}
	return r
}

func readMessage(t *testing.T, url, body string) *message {
	t.Helper()
	var wrapper struct{ MessageText string }
	if err := xml.Unmarshal([]byte(strings.TrimPrefix(body, "\uFEFF")), &wrapper); err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		TaskMessage struct {
			Event                 recordedEvent
			OrchestrationInstance struct {
				InstanceID  string `json:"InstanceId"`
				ExecutionID string `json:"ExecutionId"`
			}
		}
	}
	if err := json.Unmarshal([]byte(wrapper.MessageText), &envelope); err != nil {
		t.Fatal(err)
	}
	m := &message{
		queue:     strings.TrimPrefix(hubURL.FindStringSubmatch(url)[2], "-"),
		text:      wrapper.MessageText,
		instance:  envelope.TaskMessage.OrchestrationInstance.InstanceID,
		execution: envelope.TaskMessage.OrchestrationInstance.ExecutionID,
		event:     envelope.TaskMessage.Event,
	}
	if m.instance == "" {
		t.Fatalf("no instance in %s", m.text)
	}
	if h := hiddenFor.FindStringSubmatch(url); h != nil {
		var seconds int
		if _, err := fmt.Sscan(h[1], &seconds); err != nil {
			t.Fatal(err)
		}
		m.hidden = time.Duration(seconds) * time.Second
	}
	return m
}

func sentByClient(m *message) bool {
	switch m.event.kind() {
	case "ExecutionStarted":
		return m.event.ParentInstance == nil
	case "ExecutionSuspended", "ExecutionResumed", "ExecutionTerminated", "Generic":
		return true
	}
	return false
}

// endMessages finds out from what follows a message when it has done its work,
// since the recordings do not have deletions.
func endMessages(t *testing.T, all []*change) {
	t.Helper()
	for i, c := range all {
		m := c.message
		if m == nil {
			continue
		}
		m.goneAt = len(all)
		ended := false
		for j := i + 1; j < len(all); j++ {
			ended = ended || ends(t, all[j], m)
			// An episode's messages are deleted once the instance's row is written.
			if ended && (m.queue == "workitems" || all[j].writesInstance(m.instance)) {
				m.goneAt = j
				break
			}
		}
	}
}

func (c *change) writesInstance(id string) bool {
	return len(c.rows) == 1 && c.rows[0].table == "Instances" && c.rows[0].key.PartitionKey == id
}

// ends reports whether c has all of m in it.
func ends(t *testing.T, c *change, m *message) bool {
	t.Helper()
	if answer := c.message; answer != nil {
		return m.queue == "workitems" && answer.instance == m.instance && answer.execution == m.execution &&
			answer.event.TaskScheduledID != nil && *answer.event.TaskScheduledID == m.event.EventID
	}
	if m.queue == "workitems" {
		return false
	}
	for _, r := range c.rows {
		if r.table == "History" && r.key.PartitionKey == m.instance && m.instance[0] == '@' {
			return true // an entity's history does not have the messages of its batch
		}
		if r.table != "History" || r.key.PartitionKey != m.instance || c.client {
			continue
		}
		row := r.columns(t)
		isIn := row.EventType == m.event.kind() || row.EventType == m.event.kind()+"Event" // GenericEvent
		if isIn && row.Timestamp.Equal(m.event.Timestamp) || m.execution != "" && row.ExecutionID != m.execution {
			return true
		}
	}
	return false
}
