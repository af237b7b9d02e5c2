package sim_test

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/azsim"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/sim"
)

const (
	largeMessages = "sim-largemessages"
	historyTable  = "SimHistory"
)

// blobWatch checks after each request that no stored message or row refers to a deleted blob. A reader of
// such a reference could not continue.
type blobWatch struct {
	faults []string
	// messages holds blobs to which stale messages may refer. A message that was delivered twice to its queue
	// has a second copy, because its sender takes back only one. Messages to a purged instance can also be
	// stale.
	messages map[string]bool
}

// blobName matches possible blob names in any text.
var blobName = regexp.MustCompile(`[^"<>\\]+\.json\.gz`)

// blobsIn returns the distinct blobs that the text of a message or a row refers to.
func blobsIn(text string) (names []string) {
	if !strings.Contains(text, ".json.gz") {
		return nil
	}
	for _, name := range blobName.FindAllString(html.UnescapeString(text), -1) {
		if _, path, isURL := strings.Cut(name, "/"+largeMessages+"/"); isURL {
			if unescaped, err := url.PathUnescape(path); err == nil {
				name = unescaped
			}
		}
		if strings.Contains(name, "/message-") || strings.Contains(name, "/history-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// after checks the effect of a request.
func (w *blobWatch) after(v azsim.View, e azsim.Entry) {
	switch {
	case e.Status < 200 || e.Status > 299 || e.Code != "":
	case e.Operation == "DeleteBlob" && e.Target == largeMessages:
		name := strings.TrimPrefix(e.Path, "/"+largeMessages+"/")
		for _, n := range namedBlobs(v) {
			if n.blob == name && !(n.isMessage && w.messages[name]) {
				w.fault(e, name, "which is referred to by "+n.by)
			}
		}
	case e.Operation == "ListBlobs": // by the purge of an instance
		w.excuse(e.Answer)
	case e.Service == azsim.BlobService:
	case slices.Contains(repeats, e.Fault): // a repeated request may be old
		w.excuse(e.Body)
	case e.Operation == "PutMessage", e.Operation == "EntityGroupTransaction", e.Operation == "InsertEntity", e.Operation == "MergeEntity", e.Operation == "UpdateEntity":
		if strings.HasSuffix(e.Target, "-poison") {
			return // set-aside messages may have lost their blobs
		}
		for _, name := range blobsIn(string(e.Body)) {
			if !v.HasBlob(largeMessages, name) && !w.messages[name] {
				w.fault(e, name, "which does not exist")
			}
		}
	}
}

func (w *blobWatch) excuse(text []byte) {
	if w.messages == nil {
		w.messages = map[string]bool{}
	}
	for _, name := range blobsIn(string(text)) {
		w.messages[name] = true
	}
}

func (w *blobWatch) fault(e azsim.Entry, name, what string) {
	w.faults = append(w.faults, fmt.Sprintf("at %v %s made the request %s of %s for blob %s, %s", e.AppliedAt, e.Worker, e.Operation, e.Target, name, what))
}

// naming is a blob and a reference to it.
type naming struct {
	blob, by  string
	isMessage bool
}

// stored is an account or a view of one.
type stored interface {
	Queues() []string
	Messages(queue string) []azsim.Message
	Rows(table string) []azsim.Row
}

// namedBlobs returns the blobs that workers and clients still read: blobs of messages, of instance rows and
// of the history rows of current executions. Rows left from a longer history of an earlier execution are
// never read.
func namedBlobs(s stored) (all []naming) {
	add := func(text string, isMessage bool, format string, args ...any) {
		for _, name := range blobsIn(text) {
			all = append(all, naming{name, fmt.Sprintf(format, args...), isMessage})
		}
	}
	for _, queue := range s.Queues() {
		if strings.HasSuffix(queue, "-poison") {
			continue
		}
		for _, m := range s.Messages(queue) {
			add(m.Text, true, "message %s of %s", m.ID, queue)
		}
	}
	rows := s.Rows(historyTable)
	current := map[string]string{} // current execution by instance
	for _, row := range rows {
		if row.RowKey == "sentinel" {
			current[row.PartitionKey] = row.Text("ExecutionId")
		}
	}
	for _, row := range rows {
		if execution, ok := current[row.PartitionKey]; ok && row.Text("ExecutionId") == execution {
			for column := range row.Columns {
				add(row.Text(column), false, "%s of row %s of the history of %s", column, row.RowKey, row.PartitionKey)
			}
		}
	}
	for _, row := range s.Rows("SimInstances") {
		for column := range row.Columns {
			add(row.Text(column), false, "%s of the row of instance %s", column, row.PartitionKey)
		}
	}
	return all
}

// orphans returns history blobs without a reference. It ignores blobs of messages and of rows written by
// clients, whose names have no number. As in .NET, these stay until their instance is purged, and so do blobs
// left by crashed clients.
func (a *azure) orphans() (faults []string) {
	named := map[string]bool{}
	for _, n := range namedBlobs(a.account) {
		named[n.blob] = true
	}
	for _, b := range a.account.Blobs() {
		if b.Container == largeMessages && strings.Contains(b.Name, "/history-0") && !named[b.Name] {
			faults = append(faults, "no reference to blob "+b.Name)
		}
	}
	return faults
}

// isUndisturbed reports whether a plan has no faults that could make a worker leave blobs behind.
func isUndisturbed(p *sim.Plan) bool {
	return p.Faults == 0 && p.Repeats == 0 && p.Cuts == 0 && len(p.Disturbances) == 0 && p.Workers == 1
}
