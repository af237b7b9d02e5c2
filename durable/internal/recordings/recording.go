// Package recordings contains recordings for tests: what the engine of .NET and the Functions
// Core Tools wrote to Azure Storage.
package recordings

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Request is a recorded request of .NET's engine, with its response.
type Request struct {
	Folder string

	Scenario string
	Time     string
	Service  string
	Method   string
	URL      string
	Body     string
	Status   int
	ETag     string
	Response string
}

// String returns the request's place in the recordings.
func (r *Request) String() string {
	return fmt.Sprintf("%s/%s %s %s %s", r.Folder, r.Scenario, r.Time, r.Method, r.URL)
}

// files are the recordings; testdata/README.md of each folder describes them.
//
//go:embed testdata
var files embed.FS

// loadRecordings decodes the requests once for all tests.
var loadRecordings = sync.OnceValues(func() ([]Request, error) {
	names, err := fs.Glob(files, "testdata/dotnet-wire/*.jsonl.gz")
	if err != nil {
		return nil, err
	}
	var all []Request
	for _, name := range names {
		packed, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for d := json.NewDecoder(z); ; {
			r := Request{Folder: strings.TrimSuffix(path.Base(name), ".jsonl.gz")}
			if err := d.Decode(&r); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			all = append(all, r)
		}
	}
	return all, nil
})

// LeaseBlobs returns the distinct contents of lease blobs that the engine read, one per line.
func LeaseBlobs(tb testing.TB) string {
	tb.Helper()
	text, err := files.ReadFile("testdata/dotnet-wire/leaseblobs.txt")
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// All returns the requests of .NET's engine, in order.
func All(tb testing.TB) []Request {
	tb.Helper()
	rs, err := loadRecordings()
	if err != nil {
		tb.Fatal(err)
	}
	return rs
}

// Message is the text of a queue message in a request or a response.
type Message struct {
	Request  *Request
	Received bool
	Text     string
}

// Messages returns the queue messages of all recordings.
func Messages(tb testing.TB) []Message {
	tb.Helper()
	var all []Message
	rs := All(tb)
	for i := range rs {
		r := &rs[i]
		if r.Service != "queue" {
			continue
		}
		for _, text := range messageTexts(tb, r.Body) {
			all = append(all, Message{Request: r, Text: text})
		}
		for _, text := range messageTexts(tb, r.Response) {
			all = append(all, Message{Request: r, Received: true, Text: text})
		}
	}
	return all
}

func messageTexts(tb testing.TB, body string) []string {
	tb.Helper()
	var texts []string
	d := xml.NewDecoder(strings.NewReader(strings.TrimPrefix(body, "\uFEFF")))
	for {
		token, err := d.Token()
		if token == nil {
			return texts
		}
		if err != nil {
			tb.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "MessageText" {
			var text string
			if err := d.DecodeElement(&text, &start); err != nil {
				tb.Fatal(err)
			}
			texts = append(texts, text)
		}
	}
}

// Row is a table row in a request or a response.
type Row struct {
	Request *Request
	Hub     string
	Table   string // History, Instances or Partitions
	// Verb is POST, PUT or PATCH for a written row, with the prefix "batch " in a transaction;
	// GET for a row that was read.
	Verb string
	Raw  []byte
}

// String returns the row's place in the recordings.
func (e *Row) String() string {
	return fmt.Sprintf("%s %s in %s", e.Table, e.Verb, e.Request)
}

// Column returns the value of a String column, or "".
func (e *Row) Column(tb testing.TB, name string) string {
	tb.Helper()
	return Columns(tb, e.Raw)[name].Text()
}

var (
	tableURL       = regexp.MustCompile(`/(\w+)(History|Instances|Partitions)[(?]`)
	batchOperation = regexp.MustCompile(`(?s)(PUT|POST|PATCH|DELETE) (\S+) HTTP/1\.1\r\n.*?\r\n\r\n(.*?)\r\n--changeset`)
)

// Rows returns the rows of all recordings.
func Rows(tb testing.TB) []Row {
	tb.Helper()
	var all []Row
	rs := All(tb)
	for i := range rs {
		r := &rs[i]
		if r.Service != "table" {
			continue
		}
		if r.URL == "/$batch" {
			for _, op := range batchOperation.FindAllStringSubmatch(r.Body, -1) {
				if body := strings.TrimSpace(op[3]); body != "" {
					t := tableURL.FindStringSubmatch(strings.ReplaceAll(op[2], "devstoreaccount1/", ""))
					all = append(all, Row{r, t[1], t[2], "batch " + op[1], []byte(body)})
				}
			}
			continue
		}
		t := tableURL.FindStringSubmatch(r.URL)
		if t == nil {
			tb.Fatalf("no table in %s", r)
		}
		if r.Body != "" {
			all = append(all, Row{r, t[1], t[2], r.Method, []byte(r.Body)})
		}
		if r.Response != "" {
			var answer struct{ Value []json.RawMessage }
			if err := json.Unmarshal([]byte(r.Response), &answer); err != nil {
				tb.Fatalf("%s: %v", r, err)
			}
			for _, raw := range answer.Value {
				all = append(all, Row{r, t[1], t[2], "GET", raw})
			}
		}
	}
	return all
}

// EDMValue is a value of a row with its type, which comes from JSON or from its annotation.
type EDMValue struct {
	Type  string
	Value any
}

// Text returns the value of a String; "" for another type.
func (v EDMValue) Text() string { s, _ := v.Value.(string); return s }

// Columns returns the columns of a row that are not null, without those that the service adds.
func Columns(tb testing.TB, raw []byte) map[string]EDMValue {
	tb.Helper()
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		tb.Fatalf("%v in %s", err, raw)
	}
	properties := make(map[string]EDMValue)
	for name, value := range members {
		if value == nil || name == "Timestamp" || name == "odata.etag" || strings.HasSuffix(name, "@odata.type") {
			continue
		}
		edm, ok := members[name+"@odata.type"].(string)
		if !ok {
			edm = fmt.Sprintf("%T", value)
		}
		if tags, isText := value.(string); name == "Tags" && isText && tags != "" {
			// The order of tags has no meaning: .NET's dictionary and Go's map have none.
			var parsed any
			if err := json.Unmarshal([]byte(tags), &parsed); err != nil {
				tb.Fatalf("%v in %s", err, raw)
			}
			value = parsed
		}
		properties[name] = EDMValue{edm, value}
	}
	return properties
}

// WantCount fails the test if it has not seen the known number of cases.
func WantCount(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%d %s, want %d", got, what, want)
	}
}

// CoreToolsLine is a message or a row that the Functions Core Tools wrote.
type CoreToolsLine struct {
	Queue, Text string
	Table       string
	Row         json.RawMessage
}

// CoreTools returns everything that the Functions Core Tools wrote.
func CoreTools(tb testing.TB) []CoreToolsLine {
	tb.Helper()
	text, err := files.ReadFile("testdata/core-tools/recording.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	var all []CoreToolsLine
	for line := range bytes.Lines(text) {
		var l CoreToolsLine
		if err := json.Unmarshal(line, &l); err != nil {
			tb.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// AsReturned returns the JSON of a row in the form of a response of the table service: with an
// ETag and a Timestamp, and with types before values.
func AsReturned(row []byte) []byte {
	const changed = "2026-11-20T18:34:03.1008020Z"
	return []byte(`{"odata.etag":"W/\"datetime'` + strings.ReplaceAll(changed, ":", "%3A") + `'\"",` +
		`"Timestamp":"` + changed + `",` + string(row)[1:])
}
