package store

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
)

// errorAnswers is a transport that answers every request with the same error.
type errorAnswers struct {
	status  int
	headers map[string]string
	body    string
}

func (r errorAnswers) Do(req *http.Request) (*http.Response, error) {
	header := http.Header{"X-Ms-Request-Id": {"r-1"}}
	for name, value := range r.headers {
		header.Set(name, value)
	}
	return &http.Response{StatusCode: r.status, Status: "refused", Header: header, Body: io.NopCloser(strings.NewReader(r.body)), Request: req}, nil
}

func TestStorageError_IsOneLine(t *testing.T) {
	t.Parallel()
	account, err := ParseAccount("AccountName=a;AccountKey=a2V5;EndpointSuffix=example.net")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		answer     errorAnswers
		code, text string
	}{
		{
			errorAnswers{503, map[string]string{"x-ms-error-code": "ServerBusy"}, "<?xml version=\"1.0\"?><Error><Code>ServerBusy</Code><Message>The server is busy.\nRequestId:1\nTime:2</Message></Error>"},
			"ServerBusy", "status 503 ServerBusy: The server is busy. (request r-1)",
		},
		{
			errorAnswers{404, map[string]string{"Content-Type": "application/json"}, `{"odata.error":{"code":"ResourceNotFound","message":{"lang":"en-US","value":"The resource does not exist.\nRequestId:1"}}}`},
			"ResourceNotFound", "status 404 ResourceNotFound: The resource does not exist. (request r-1)",
		},
		{errorAnswers{502, nil, "<html>\n<body>bad</body>\n</html>"}, "", "status 502 Bad Gateway (request r-1)"},
	} {
		s, err := NewServices(account, account, tt.answer, nil, func(error) {})
		if err != nil {
			t.Fatal(err)
		}
		_, queueErr := NewQueue(s.Queues, "queue").Receive(t.Context(), 1, 0)
		_, rowErr := NewTable(s.Tables, s.TableEndpoint, "table").Get(t.Context(), "p", "r")
		_, transactErr := NewTable(s.Tables, s.TableEndpoint, "table").Transact(t.Context(), []Operation{{Method: http.MethodPut, Entity: wire.Row{PartitionKey: "p", RowKey: "r"}}})
		blobErr := NewContainer(s.Blobs, s.BlobEndpoint, "container").AppendBlob("blob").Renew(t.Context(), "id")
		for what, err := range map[string]error{"queue": queueErr, "row": rowErr, "transaction": transactErr, "blob": blobErr} {
			if err == nil {
				t.Errorf("%s: no error", what)
				continue
			}
			if text := err.Error(); strings.ContainsAny(text, "\r\n") || !strings.HasSuffix(text, tt.text) || !strings.Contains(text, "example.net/") {
				t.Errorf("%s: the text is %q, want one line that ends with %q", what, text, tt.text)
			}
			if StatusOf(err) != tt.answer.status || CodeOf(err) != tt.code {
				t.Errorf("%s: status %d and code %q, want %d and %q", what, StatusOf(err), CodeOf(err), tt.answer.status, tt.code)
			}
		}
	}
}
