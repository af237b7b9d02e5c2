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

// blobWatch looks after each request that nothing that is stored names a blob that is
// gone: whoever reads it next could not go on.
type blobWatch struct {
	faults []string
	// messages are blobs of which messages may be left that name them: those that came
	// twice on their way to a queue, since whoever takes them back knows of one, and
	// those of instances that are purged while messages are on their way to them.
	messages map[string]bool
}

// blobName matches what may be the name of a blob, in whatever text names it.
var blobName = regexp.MustCompile(`[^"<>\\]+\.json\.gz`)

// blobsIn returns the blobs that a text of a message or a row names, each once.
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

// after looks at what a request has done.
func (w *blobWatch) after(v azsim.View, e azsim.Entry) {
	switch {
	case e.Status < 200 || e.Status > 299 || e.Code != "":
	case e.Operation == "DeleteBlob" && e.Target == largeMessages:
		name := strings.TrimPrefix(e.Path, "/"+largeMessages+"/")
		for _, n := range namedBlobs(v) {
			if n.blob == name && !(n.isMessage && w.messages[name]) {
				w.fault(e, name, "though it is named by "+n.by)
			}
		}
	case e.Operation == "ListBlobs": // of an instance that is purged
		w.excuse(e.Answer)
	case e.Service == azsim.BlobService:
	case slices.Contains(repeats, e.Fault): // what comes again may be of long ago
		w.excuse(e.Body)
	case e.Operation == "PutMessage", e.Operation == "EntityGroupTransaction", e.Operation == "InsertEntity", e.Operation == "MergeEntity", e.Operation == "UpdateEntity":
		if strings.HasSuffix(e.Target, "-poison") {
			return // these may have no blob any more: that is why they are there
		}
		for _, name := range blobsIn(string(e.Body)) {
			if !v.HasBlob(largeMessages, name) && !w.messages[name] {
				w.fault(e, name, "and there is no such blob")
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
	w.faults = append(w.faults, fmt.Sprintf("at %v %s made the request %s of %s, which has to do with blob %s, %s", e.At, e.Worker, e.Operation, e.Target, name, what))
}

// naming is a blob and what names it.
type naming struct {
	blob, by  string
	isMessage bool
}

// stored is what an account, or a view of it, has.
type stored interface {
	Queues() []string
	Messages(queue string) []azsim.Message
	Rows(table string) []azsim.Row
}

// namedBlobs returns the blobs that somebody will read: those of messages, of the rows of
// current executions and of instances. What is left of a longer history of an earlier
// execution nobody reads any more.
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
	current := map[string]string{} // executions, by instance
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

// orphans returns the blobs of histories that nothing names. Those of messages and of
// rows that clients wrote, whose names have no number, stay until their instance is
// purged, as in .NET, and so does what is left by one who died or was not answered.
func (a *azure) orphans() (faults []string) {
	named := map[string]bool{}
	for _, n := range namedBlobs(a.account) {
		named[n.blob] = true
	}
	for _, b := range a.account.Blobs() {
		if b.Container == largeMessages && strings.Contains(b.Name, "/history-0") && !named[b.Name] {
			faults = append(faults, "nothing names blob "+b.Name)
		}
	}
	return faults
}

// isUndisturbed reports whether nothing goes wrong in a plan by which a worker could
// leave something behind.
func isUndisturbed(p *sim.Plan) bool {
	return p.Faults == 0 && p.Repeats == 0 && p.Cuts == 0 && len(p.Disturbances) == 0 && p.Workers == 1
}
