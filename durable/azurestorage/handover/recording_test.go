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

// change is one write in a recording: an enqueued message, or the rows of one table that were
// written together.
type change struct {
	at     time.Time
	client bool // written by a client, not by a worker

	message *message
	rows    []row
}

// message is an enqueued message.
type message struct {
	queue  string // without the hub's name: control-00 or workitems
	text   string
	hidden time.Duration

	instance, execution string // the target; execution may be empty
	event               recordedEvent

	// goneAt is the index of the first change after which no worker needs the message: a history
	// has its event, or its activity has completed.
	goneAt int
}

type recordedEvent struct {
	Type            string `json:"$type"`
	EventID         int    `json:"EventId"`
	TaskScheduledID *int   `json:"TaskScheduledId"`
	Timestamp       time.Time
	ParentInstance  *struct{}
}

// kind returns the value of the EventType column for the event.
func (e recordedEvent) kind() string {
	return strings.TrimSuffix(strings.TrimPrefix(e.Type, "DurableTask.Core.History."), "Event")
}

// row is a table row as it was written.
type row struct {
	table  string // Instances, History or Partitions
	verb   string
	entity string // JSON
	key    rowKey
}

type rowKey struct{ PartitionKey, RowKey string }

// columns are the columns of a row that identify the messages it has consumed.
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

// recordingDay is the date of the recordings, which contain only times of day.
const recordingDay = "2026-11-20"

// recordedChanges returns the writes in the scenarios of a file in order, with goneAt set in their
// messages.
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
			// A client writes the row of a started instance and all changes of a rewind.
			c.client = c.rows[0].table == "History" || c.rows[0].columns(t).RuntimeStatus == "Pending"
		}
		if c.message == nil && c.rows[0].table == "Partitions" {
			continue
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		t.Fatalf("%s has no writes of the scenarios %v", file, scenarios)
	}
	endMessages(t, all)
	return all
}

func readRow(t *testing.T, verb, url, entity string) row {
	t.Helper()
	u := hubURL.FindStringSubmatch(url)
	if u == nil {
		t.Fatalf("no table name in %s", url)
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
		t.Fatalf("no instance ID in %s", m.text)
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

// endMessages sets goneAt of all messages. It derives the value from later changes, because the
// recordings contain no deletions.
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
			// An episode's messages are deleted after the instance's row is written.
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

// ends reports whether c contains the effect of m.
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
			return true // an entity's history does not contain the messages of its batch
		}
		if r.table != "History" || r.key.PartitionKey != m.instance || c.client {
			continue
		}
		row := r.columns(t)
		isIn := row.EventType == m.event.kind() || row.EventType == m.event.kind()+"Event" // the column of a GenericEvent has the suffix
		if isIn && row.Timestamp.Equal(m.event.Timestamp) || m.execution != "" && row.ExecutionID != m.execution {
			return true
		}
	}
	return false
}
