package azurestorage

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// A recordedRequest is one request that .NET's engine made, with the answer.
type recordedRequest struct {
	folder string

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

func (r *recordedRequest) String() string {
	return fmt.Sprintf("%s/%s %s %s %s", r.folder, r.Scenario, r.Time, r.Method, r.URL)
}

// loadRecordings reads testdata/dotnet-wire once for all tests.
var loadRecordings = sync.OnceValues(func() ([]recordedRequest, error) {
	files, err := filepath.Glob("testdata/dotnet-wire/*.jsonl.gz")
	if err != nil {
		return nil, err
	}
	var all []recordedRequest
	for _, name := range files {
		rs, err := readRecording(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, rs...)
	}
	return all, nil
})

func readRecording(name string) ([]recordedRequest, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 4<<20)
	var rs []recordedRequest
	for lines.Scan() {
		r := recordedRequest{folder: strings.TrimSuffix(filepath.Base(name), ".jsonl.gz")}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, err
		}
		rs = append(rs, r)
	}
	return rs, lines.Err()
}

func recordings(tb testing.TB) []recordedRequest {
	tb.Helper()
	rs, err := loadRecordings()
	if err != nil {
		tb.Fatal(err)
	}
	return rs
}

// A recordedMessage is the text of a queue message in a request or an answer.
type recordedMessage struct {
	request  *recordedRequest
	received bool
	text     string
}

func recordedMessages(tb testing.TB) []recordedMessage {
	tb.Helper()
	var all []recordedMessage
	rs := recordings(tb)
	for i := range rs {
		r := &rs[i]
		if r.Service != "queue" {
			continue
		}
		for _, text := range messageTexts(tb, r.Body) {
			all = append(all, recordedMessage{request: r, text: text})
		}
		for _, text := range messageTexts(tb, r.Response) {
			all = append(all, recordedMessage{request: r, received: true, text: text})
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

// A recordedEntity is a row in a request or an answer.
type recordedEntity struct {
	request *recordedRequest
	hub     string
	table   string // History, Instances or Partitions
	// verb is how it was written: POST, PUT or PATCH; in a transaction "batch"
	// and a space go before; GET is one that was read.
	verb string
	raw  []byte
}

func (e *recordedEntity) String() string {
	return fmt.Sprintf("%s %s in %s", e.table, e.verb, e.request)
}

// column returns the value of a String column, empty if there is none.
func (e *recordedEntity) column(tb testing.TB, name string) string {
	tb.Helper()
	return entityProperties(tb, e.raw)[name].text()
}

var (
	tableURL       = regexp.MustCompile(`/(\w+)(History|Instances|Partitions)[(?]`)
	batchOperation = regexp.MustCompile(`(?s)(PUT|POST|PATCH|DELETE) (\S+) HTTP/1\.1\r\n.*?\r\n\r\n(.*?)\r\n--changeset`)
)

func recordedEntities(tb testing.TB) []recordedEntity {
	tb.Helper()
	var all []recordedEntity
	rs := recordings(tb)
	for i := range rs {
		r := &rs[i]
		if r.Service != "table" {
			continue
		}
		if r.URL == "/$batch" {
			for _, op := range batchOperation.FindAllStringSubmatch(r.Body, -1) {
				if body := strings.TrimSpace(op[3]); body != "" {
					t := tableURL.FindStringSubmatch(strings.ReplaceAll(op[2], "devstoreaccount1/", ""))
					all = append(all, recordedEntity{r, t[1], t[2], "batch " + op[1], []byte(body)})
				}
			}
			continue
		}
		t := tableURL.FindStringSubmatch(r.URL)
		if t == nil {
			tb.Fatalf("no table in %s", r)
		}
		if r.Body != "" {
			all = append(all, recordedEntity{r, t[1], t[2], r.Method, []byte(r.Body)})
		}
		if r.Response != "" {
			var answer struct{ Value []json.RawMessage }
			if err := json.Unmarshal([]byte(r.Response), &answer); err != nil {
				tb.Fatalf("%s: %v", r, err)
			}
			for _, raw := range answer.Value {
				all = append(all, recordedEntity{r, t[1], t[2], "GET", raw})
			}
		}
	}
	return all
}

// An edmValue is a value of a row with its type: what JSON says of it, or its
// annotation.
type edmValue struct {
	Type  string
	Value any
}

func (v edmValue) text() string { s, _ := v.Value.(string); return s }

// entityProperties returns the columns of a row that are not null, without what
// the service adds to them.
func entityProperties(tb testing.TB, raw []byte) map[string]edmValue {
	tb.Helper()
	var members map[string]any
	if err := json.Unmarshal(raw, &members); err != nil {
		tb.Fatalf("%v in %s", err, raw)
	}
	properties := make(map[string]edmValue)
	for name, value := range members {
		if value == nil || name == "Timestamp" || name == "odata.etag" || strings.HasSuffix(name, "@odata.type") {
			continue
		}
		edm, ok := members[name+"@odata.type"].(string)
		if !ok {
			edm = fmt.Sprintf("%T", value)
		}
		if tags, isText := value.(string); name == "Tags" && isText && tags != "" {
			// The order of tags has no meaning, and Go's maps have none.
			var parsed any
			if err := json.Unmarshal([]byte(tags), &parsed); err != nil {
				tb.Fatalf("%v in %s", err, raw)
			}
			value = parsed
		}
		properties[name] = edmValue{edm, value}
	}
	return properties
}

// wantCount fails the test if it did not see as many cases as there are known to
// be.
func wantCount(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%d %s, want %d", got, what, want)
	}
}
