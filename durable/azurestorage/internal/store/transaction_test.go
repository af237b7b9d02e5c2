package store

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/google/go-cmp/cmp"
)

const acceptedTransaction = "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n" +
	"--changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" +
	"HTTP/1.1 204 No Content\r\nX-Content-Type-Options: nosniff\r\nDataServiceVersion: 3.0;\r\nETag: W/\"datetime'2026-11-20T18%3A33%3A36.7974990Z'\"\r\n\r\n\r\n" +
	"--changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" +
	"HTTP/1.1 204 No Content\r\netag: W/\"datetime'2'\"\r\n\r\n\r\n" +
	"--changesetresponse_2--\r\n--batchresponse_1--\r\n"

func refusedTransaction(body string) string {
	return "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n" +
		"--changesetresponse_2\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" +
		"HTTP/1.1 412 Precondition Failed\r\nContent-Type: application/json\r\n\r\n" + body +
		"\r\n--changesetresponse_2--\r\n--batchresponse_1--\r\n"
}

func TestParseTransaction_ReturnsTheETagOfEveryOperation(t *testing.T) {
	got, err := ParseTransaction([]byte(acceptedTransaction), 2)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"W/\"datetime'2026-11-20T18%3A33%3A36.7974990Z'\"", "W/\"datetime'2'\""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ETags (-want +got):\n%s", diff)
	}
}

func TestParseTransaction_ReportsTheRejectedOperation(t *testing.T) {
	for name, tt := range map[string]struct {
		answer string
		want   TransactionError
	}{
		"the index is in the message": {
			refusedTransaction(`{"odata.error":{"code":"UpdateConditionNotSatisfied","message":{"lang":"en-US","value":"4:The update condition was not satisfied.\nRequestId:1"}}}`),
			TransactionError{4, 412, "UpdateConditionNotSatisfied", "The update condition was not satisfied."},
		},
		"the message has no index": {
			refusedTransaction(`{"odata.error":{"code":"X","message":{"value":"nothing: to see"}}}`),
			TransactionError{0, 412, "X", "nothing: to see"},
		},
		"the body is not JSON":     {refusedTransaction(`{oops`), TransactionError{0, 412, "", ""}},
		"the response has no body": {refusedTransaction(""), TransactionError{-1, 412, "", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ParseTransaction([]byte(tt.answer), 5)
			got, ok := errors.AsType[*TransactionError](err)
			if !ok {
				t.Fatalf("error %v", err)
			}
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Errorf("refusal (-want +got):\n%s", diff)
			}
			if !IsConflict(err) || IsTransient(err) {
				t.Errorf("IsConflict %v, IsTransient %v; want a permanent conflict", IsConflict(err), IsTransient(err))
			}
		})
	}
}

func TestParseTransaction_RejectsIncompleteResponses(t *testing.T) {
	if _, err := ParseTransaction([]byte(acceptedTransaction), 3); err == nil {
		t.Error("no error for a response with two parts to three operations")
	}
	if _, err := ParseTransaction(nil, 1); err == nil {
		t.Error("no error for an empty response")
	}
}

func FuzzParseTransaction(f *testing.F) {
	f.Add([]byte(acceptedTransaction), 2)
	f.Add([]byte(refusedTransaction(`{"odata.error":{"code":"X","message":{"value":"1:no"}}}`)), 2)
	f.Add([]byte("HTTP/1.1 "), 1)
	f.Add([]byte("HTTP/1.1 2"), 1)
	f.Fuzz(func(t *testing.T, text []byte, n int) {
		etags, err := ParseTransaction(text, n)
		if err == nil && len(etags) != n {
			t.Errorf("%d ETags for %d operations", len(etags), n)
		}
	})
}

func TestTransactionBody_EncodesKeysAsOData(t *testing.T) {
	text, _ := TransactionBody("http://host/account", "HubHistory", []Operation{
		{Method: http.MethodPut, Entity: wire.Row{PartitionKey: "it's ü/", RowKey: "0000000000000000"}},
		{Method: http.MethodPatch, Entity: wire.Row{PartitionKey: "it's ü/", RowKey: "sentinel"}, IfMatch: "W/\"1\""},
		{Method: http.MethodPost, Entity: wire.Row{PartitionKey: "it's ü/", RowKey: "x"}},
	})
	body := string(text)
	for _, want := range []string{
		"PUT http://host/account/HubHistory(PartitionKey='it%27%27s%20%C3%BC%2F',RowKey='0000000000000000') HTTP/1.1\r\n",
		"PATCH http://host/account/HubHistory(PartitionKey='it%27%27s%20%C3%BC%2F',RowKey='sentinel') HTTP/1.1\r\n",
		"\r\nIf-Match: W/\"1\"\r\n",
		"POST http://host/account/HubHistory HTTP/1.1\r\n",
		"{\"PartitionKey\":\"it's ü/\",",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the body lacks %q:\n%s", want, body)
		}
	}
}

func TestCheckTransaction_RejectsWhatTheServiceRejects(t *testing.T) {
	op := func(partition, row string) Operation {
		return Operation{Method: http.MethodPut, Entity: wire.Row{PartitionKey: partition, RowKey: row}}
	}
	many := make([]Operation, 101)
	for i := range many {
		many[i] = op("p", wire.HistoryRowKey(i))
	}
	for name, ops := range map[string][]Operation{
		"none":           {},
		"more than 100":  many,
		"two partitions": {op("p", "1"), op("q", "2")},
		"one row twice":  {op("p", "1"), op("p", "1")},
	} {
		if err := checkTransaction(ops); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if err := checkTransaction(many[:100]); err != nil {
		t.Errorf("100 operations: %v", err)
	}
}
