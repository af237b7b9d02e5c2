package azurestorage

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// canned returns the same in-memory response to every request, so that benchmarks measure only the
// client.
type canned struct {
	status      int
	contentType string
	body        []byte
}

func (c canned) Do(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: c.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {c.contentType}}, ContentLength: int64(len(c.body)),
		Body: io.NopCloser(bytes.NewReader(c.body)),
	}, nil
}

func cannedHub(b *testing.B, transport canned) *TaskHub {
	c, err := ParseConnectionString("DefaultEndpointsProtocol=https;AccountName=a;AccountKey=c2ltdWxhdGVk;EndpointSuffix=core.windows.net")
	if err != nil {
		b.Fatal(err)
	}
	h, err := Open(c, Config{Transport: transport})
	if err != nil {
		b.Fatal(err)
	}
	return h
}

// benchRows returns n history rows of a typical size.
func benchRows(n int) []wire.Row {
	rows := make([]wire.Row, n)
	for i := range rows {
		result := strings.Repeat("r", 200)
		rows[i] = wire.EncodeHistoryRow(&history.TaskCompleted{Header: history.NewHeader(time.Now()), TaskScheduledID: i, Result: &result}, "instance", i, "execution")
	}
	return rows
}

// BenchmarkAppend measures the client's work for the transaction of a checkpoint.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{4, 98} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			answer := strings.Repeat("HTTP/1.1 204 No Content\r\nETag: W/\"1\"\r\n\r\n\r\n", n+1)
			h := cannedHub(b, canned{http.StatusAccepted, "multipart/mixed; boundary=x", []byte(answer)})
			rows := benchRows(n)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := h.instances.Histories.Append(b.Context(), history.OrchestrationInstance{InstanceID: "instance", ExecutionID: "execution"}, rows, "W/\"0\"", nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkReadHistory measures the client's work for reading a history.
func BenchmarkReadHistory(b *testing.B) {
	for _, n := range []int{4, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var text strings.Builder
			text.WriteString(`{"odata.metadata":"m","value":[`)
			for i, row := range benchRows(n) {
				if i > 0 {
					text.WriteByte(',')
				}
				text.WriteString(`{"odata.etag":"W/\"1\"",` + string(row.JSON()[1:]))
			}
			sentinel := wire.EncodeSentinel("instance", "execution", true, time.Now())
			text.WriteString(`,{"odata.etag":"W/\"1\"",` + string(sentinel.JSON()[1:]) + "]}")
			body := text.String()
			h := cannedHub(b, canned{http.StatusOK, "application/json", []byte(body)})
			b.ReportAllocs()
			for b.Loop() {
				stored, err := h.instances.Histories.Load(b.Context(), "instance", "execution")
				if err != nil || len(stored.Events) != n {
					b.Fatalf("%d events, %v", len(stored.Events), err)
				}
			}
		})
	}
}
