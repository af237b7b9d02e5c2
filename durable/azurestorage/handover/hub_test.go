package handover_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/durable/durabletest/patience"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
)

// store is the storage account of a hub.
type store struct {
	name       string // of the hub
	connection string
	worker     policy.Transporter // of the worker under test; nil is the network
	test       policy.Transporter // of the clients of the test
	patience   time.Duration      // limits the wait for the worker
	pause      time.Duration      // between two reads of the storage
	polling    time.Duration      // MaxQueuePollingInterval of the worker
}

// hubNumber makes the hub names of a process unique.
var hubNumber atomic.Int32

// inAzurite returns a store in the Azurite that the tests of this process share.
func inAzurite(t *testing.T) store {
	t.Helper()
	name := fmt.Sprintf("H%dx%d", os.Getpid(), hubNumber.Add(1))
	return store{name: name, connection: azuritetest.Start(t), patience: patience.Limit(), pause: 50 * time.Millisecond, polling: 100 * time.Millisecond}
}

// simulated returns a store on a simulated account in virtual time. faults is the share of the
// worker's requests that fail.
func simulated(t *testing.T, seed uint64, faults float64) store {
	t.Helper()
	kinds := []azsim.Fault{azsim.Throttle, azsim.FailBefore, azsim.FailAfter, azsim.RefuseAfter, azsim.Slow}
	account := azsim.New(azsim.Config{
		Seed: seed, MinLatency: time.Millisecond, MaxLatency: 20 * time.Millisecond,
		Decide: func(r azsim.Request) azsim.Fault {
			if random := rand.New(rand.NewPCG(r.Roll, 0)); r.Worker == "worker" && random.Float64() < faults {
				return kinds[random.IntN(len(kinds))]
			}
			return azsim.None
		},
	})
	t.Cleanup(account.End)
	return store{
		name: "Simulated", connection: account.ConnectionString(), worker: account.Worker("worker"), test: account.Worker("test"),
		patience: time.Hour, pause: time.Second, polling: time.Second,
	}
}

// hub is the storage of a task hub with one partition, as .NET creates it.
type hub struct {
	store
	tables *aztables.ServiceClient
	queues *azqueue.ServiceClient
	blobs  *azblob.Client

	templates *templates // of the restored recording
}

func newHub(t *testing.T, in store) *hub {
	t.Helper()
	h := &hub{store: in}
	options := azcore.ClientOptions{Transport: in.test}
	var err error
	if h.tables, err = aztables.NewServiceClientFromConnectionString(in.connection, &aztables.ClientOptions{ClientOptions: options}); err != nil {
		t.Fatal(err)
	}
	if h.queues, err = azqueue.NewServiceClientFromConnectionString(in.connection, &azqueue.ClientOptions{ClientOptions: options}); err != nil {
		t.Fatal(err)
	}
	if h.blobs, err = azblob.NewClientFromConnectionString(in.connection, &azblob.ClientOptions{ClientOptions: options}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.blobs.CreateContainer(t.Context(), h.container(), nil); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"History", "Instances", "Partitions"} {
		if _, err := h.tables.CreateTable(t.Context(), h.name+table, nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range []string{"control-00", "workitems"} {
		if _, err := h.queues.CreateQueue(t.Context(), h.queue(queue), nil); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func (h *hub) queue(name string) string { return strings.ToLower(h.name) + "-" + name }

func (h *hub) container() string { return strings.ToLower(h.name) + "-largemessages" }

// writeBlob writes the blob with the result of a history row, if the row has one.
func (h *hub) writeBlob(t *testing.T, r row, result string) {
	t.Helper()
	var columns struct{ ResultBlobName string }
	if err := json.Unmarshal([]byte(r.entity), &columns); err != nil {
		t.Fatalf("%v in %s", err, r.entity)
	}
	if columns.ResultBlobName == "" {
		return
	}
	var content bytes.Buffer
	z := gzip.NewWriter(&content)
	if _, err := z.Write([]byte(result)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.blobs.UploadBuffer(t.Context(), h.container(), columns.ResultBlobName, content.Bytes(), nil); err != nil {
		t.Fatal(err)
	}
}

// writeExpiredLease writes the lease of a killed worker, which has just expired.
func (h *hub) writeExpiredLease(t *testing.T) {
	t.Helper()
	at := func(d time.Duration) string { return time.Now().Add(d).UTC().Format("2006-01-02T15:04:05.0000000Z") }
	h.write(t, row{table: "Partitions", verb: "POST", entity: fmt.Sprintf(`{"PartitionKey":"","RowKey":%q,"CurrentOwner":"worker1",
		"OwnedSince":%q,"OwnedSince@odata.type":"Edm.DateTime","LastRenewal":%q,"LastRenewal@odata.type":"Edm.DateTime",
		"ExpiresAt":%q,"ExpiresAt@odata.type":"Edm.DateTime","IsDraining":false}`,
		h.queue("control-00"), at(-time.Minute), at(-31*time.Second), at(-time.Second))})
}

func (h *hub) write(t *testing.T, r row) {
	t.Helper()
	table := h.tables.NewClient(h.name + r.table)
	var err error
	switch {
	case r.verb == "POST": // the worker may have written the row already
		var refused *azcore.ResponseError
		if _, err = table.AddEntity(t.Context(), []byte(r.entity), nil); errors.As(err, &refused) && refused.StatusCode == 409 {
			err = nil
		}
	case r.verb == "PATCH":
		_, err = table.UpsertEntity(t.Context(), []byte(r.entity), &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeMerge})
	default:
		_, err = table.UpsertEntity(t.Context(), []byte(r.entity), &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace})
	}
	if err != nil {
		t.Fatalf("write %s to %s: %v", r.entity, r.table, err)
	}
}

func (h *hub) put(t *testing.T, queue, text string, hidden time.Duration) {
	t.Helper()
	_, err := h.queues.NewQueueClient(h.queue(queue)).EnqueueMessage(t.Context(), text, &azqueue.EnqueueMessageOptions{
		TimeToLive: to.Ptr[int32](-1), VisibilityTimeout: to.Ptr(int32(hidden / time.Second)),
	})
	if err != nil {
		t.Fatal(err)
	}
}

// messages returns the number of messages in the queues, including hidden ones.
func (h *hub) messages(t *testing.T) (n int64) {
	t.Helper()
	for _, queue := range []string{"control-00", "workitems"} {
		p, err := h.queues.NewQueueClient(h.queue(queue)).GetProperties(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		n += *p.ApproximateMessagesCount
	}
	return n
}

// rows returns the history rows of an instance.
func (h *hub) rows(t *testing.T, instance string) (rows []string) {
	t.Helper()
	filter := "PartitionKey eq '" + instance + "'"
	pages := h.tables.NewClient(h.name + "History").NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter})
	for pages.More() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Entities {
			rows = append(rows, string(e))
		}
	}
	return rows
}

// copier changes the texts of a recording to other instances, executions and times.
type copier struct {
	hub       string
	blobs     string // the URL of the container
	suffix    string // appended to instance IDs
	number    int    // used in execution IDs
	shift     time.Duration
	templates *templates
}

func newCopier(h *hub, instances []string, suffix string, number int, shift time.Duration) *copier {
	if h.templates == nil {
		h.templates = newTemplates(instances)
	}
	return &copier{
		hub: h.name, blobs: h.blobs.ServiceClient().NewContainerClient(h.container()).URL(),
		suffix: suffix, number: number, shift: shift, templates: h.templates,
	}
}

func (c *copier) id(instance string) string {
	text := c.text(`"` + instance + `"`)
	return text[1 : len(text)-1]
}

func (c *copier) text(s string) string {
	var b strings.Builder
	at := 0
	for _, e := range c.templates.of(s) {
		b.WriteString(s[at:e.start])
		at = e.end
		switch e.kind {
		case suffixOfID:
			b.WriteString(c.suffix)
		case numberOfExecution:
			fmt.Fprintf(&b, "%04x", c.number)
		case container:
			b.WriteString(c.blobs + "/")
		case hubName:
			b.WriteString(c.hub)
		case date:
			b.WriteString(c.date(s[e.start:e.end]))
		}
	}
	b.WriteString(s[at:])
	return b.String()
}

func (c *copier) date(date string) string {
	utc, isUTC := strings.CutSuffix(date, "Z")
	at, err := time.Parse("2006-01-02T15:04:05.999999999", utc)
	if err != nil || at.IsZero() {
		return date
	}
	shifted := at.Add(c.shift).Format("2006-01-02T15:04:05.0000000")
	if isUTC {
		shifted += "Z"
	}
	return shifted
}

// templates finds the parts of recorded texts that a copier changes, and caches them by text.
type templates struct {
	instances []*regexp.Regexp
	known     map[string][]edit
}

// edit is a part of a recorded text that a copier changes.
type edit struct {
	start, end int
	kind       editKind
}

type editKind int

const (
	suffixOfID editKind = iota
	numberOfExecution
	container
	hubName
	date
)

var others = map[editKind]*regexp.Regexp{
	numberOfExecution: regexp.MustCompile(`(?:"|u0022)[0-9a-f]{28}([0-9a-f]{4})`),
	container:         regexp.MustCompile(`(http://[^/"]+/devstoreaccount1/\w+-largemessages/)`),
	hubName:           regexp.MustCompile(`"TaskHubName":"(\w+)"`),
	date:              regexp.MustCompile(`(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z?)`),
}

func newTemplates(instances []string) *templates {
	t := &templates{known: make(map[string][]edit)}
	for _, id := range instances {
		// The ID occurs in JSON and in JSON strings within JSON.
		t.instances = append(t.instances, regexp.MustCompile(`(?:"|u0022)`+regexp.QuoteMeta(id)+`()(?:-child)?["\\]`))
	}
	return t
}

func (t *templates) of(text string) []edit {
	if edits, ok := t.known[text]; ok {
		return edits
	}
	var edits []edit
	find := func(kind editKind, r *regexp.Regexp) {
		for _, m := range r.FindAllStringSubmatchIndex(text, -1) {
			edits = append(edits, edit{m[2], m[3], kind})
		}
	}
	for _, r := range t.instances {
		find(suffixOfID, r)
	}
	for kind, r := range others {
		find(kind, r)
	}
	slices.SortFunc(edits, func(a, b edit) int { return a.start - b.start })
	t.known[text] = edits
	return edits
}

// step has the columns of a history row in which equivalent histories agree.
type step struct {
	EventType                                             string
	EventID                                               int  `json:"EventId"`
	TaskScheduledID                                       *int `json:"TaskScheduledId"`
	TimerID                                               *int `json:"TimerId"`
	Name, InstanceID, Input, Result, Reason, Tags, Status string
}

// steps returns the history of the instance's current execution. It omits duplicates of redelivered
// messages that neither .NET nor Go can recognize: events, suspensions, resumptions and rewinds of
// clients and orchestrations. It also omits episodes that contain only such duplicates.
func steps(t *testing.T, rows []string) (all []step) {
	t.Helper()
	type decoded struct {
		step
		RowKey, ExecutionID, OrchestrationStatus string
		Child                                    string `json:"InstanceId"`
	}
	var events []decoded
	var execution string
	for _, r := range rows {
		var d decoded
		if err := json.Unmarshal([]byte(r), &d); err != nil {
			t.Fatalf("%v in %s", err, r)
		}
		d.step.InstanceID, d.Status = d.Child, d.OrchestrationStatus
		if d.Tags == "null" {
			d.Tags = "" // .NET writes "null" for no tags
		}
		if d.RowKey == "sentinel" {
			execution = d.ExecutionID
			continue
		}
		events = append(events, d)
	}
	sort.Slice(events, func(i, j int) bool { return events[i].RowKey < events[j].RowKey })
	seen := make(map[string]bool)
	for _, d := range events {
		if d.ExecutionID != execution {
			continue
		}
		switch d.EventType {
		case "EventRaised", "ExecutionSuspended", "ExecutionResumed", "GenericEvent":
			if d.EventID == -1 && seen[d.EventType+d.Name+d.Reason] {
				continue
			}
			seen[d.EventType+d.Name+d.Reason] = d.EventID == -1
		case "OrchestratorCompleted":
			if n := len(all); n > 0 && all[n-1].EventType == "OrchestratorStarted" {
				all = all[:n-1]
				continue
			}
		}
		all = append(all, d.step)
	}
	return all
}
