package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/google/uuid"
)

// The service's limits for an entity group transaction.
const (
	MaxTransactionOperations = 100
	MaxTransactionBytes      = 4 << 20
)

// OperationOverhead is the maximum size of an operation in a transaction without its JSON, in bytes.
const OperationOverhead = 1024

// Operation is one operation of a transaction.
type Operation struct {
	Method  string // POST inserts, PUT replaces, PATCH merges, DELETE deletes
	Entity  wire.Row
	IfMatch string // for PUT and PATCH, "" means insert if missing
}

// TransactionError means that the service rejected a transaction. None of its operations was applied.
type TransactionError struct {
	Index   int // index of the rejected operation, -1 if unknown
	Status  int
	Code    string
	Message string
}

// Error names the rejected operation and the reason.
func (e *TransactionError) Error() string {
	return fmt.Sprintf("operation %d of the transaction: status %d %s: %s", e.Index, e.Status, e.Code, e.Message)
}

// Transact applies all operations, which belong to one partition, or none. It returns the new ETag of
// each row. It does not retry.
//
// Transact builds the request body itself. aztables would double apostrophes in keys in the wrong
// place, decode and encode every entity again, and not return the ETags. The SDK still signs and sends
// the request.
func (t *Table) Transact(ctx context.Context, ops []Operation) ([]string, error) {
	if err := checkTransaction(ops); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNeverSent, err)
	}
	body, boundary := TransactionBody(t.endpoint, t.Name, ops)
	if len(body) > MaxTransactionBytes {
		return nil, fmt.Errorf("%w: transaction of %d bytes; want at most %d", ErrNeverSent, len(body), MaxTransactionBytes)
	}
	var resp *http.Response
	ctx = substitute(policy.WithCaptureResponse(ctx, &resp), substitution{
		contentType: "multipart/mixed; boundary=" + boundary, body: body,
	})
	_, err := t.Client.SubmitTransaction(ctx, placeholderTransaction, nil)
	if resp == nil {
		return nil, err
	}
	text, readErr := runtime.Payload(resp)
	if readErr != nil {
		return nil, errors.Join(err, readErr)
	}
	if resp.StatusCode != http.StatusAccepted {
		return nil, err
	}
	return ParseTransaction(text, len(ops))
}

// checkTransaction checks rules of the service that Azurite does not check.
func checkTransaction(ops []Operation) error {
	if len(ops) == 0 || len(ops) > MaxTransactionOperations {
		return fmt.Errorf("transaction of %d operations; want 1 to %d", len(ops), MaxTransactionOperations)
	}
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if op.Entity.PartitionKey != ops[0].Entity.PartitionKey {
			return fmt.Errorf("transaction over partitions %q and %q", ops[0].Entity.PartitionKey, op.Entity.PartitionKey)
		}
		if seen[op.Entity.RowKey] {
			return fmt.Errorf("transaction has row %q twice", op.Entity.RowKey)
		}
		seen[op.Entity.RowKey] = true
	}
	return nil
}

// TransactionBody returns the body of a transaction and the boundary of its parts.
func TransactionBody(endpoint, tableName string, ops []Operation) (body []byte, boundary string) {
	id := uuid.NewString()
	var b bytes.Buffer
	fmt.Fprintf(&b, "--batch_%s\r\nContent-Type: multipart/mixed; boundary=changeset_%[1]s\r\n\r\n", id)
	for _, op := range ops {
		fmt.Fprintf(&b, "--changeset_%s\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n", id)
		target := endpoint + "/" + tableName
		if op.Method != http.MethodPost {
			target += keysURL(op.Entity.PartitionKey, op.Entity.RowKey)
		}
		fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nAccept: application/json;odata=minimalmetadata\r\nContent-Type: application/json\r\nDataServiceVersion: 3.0\r\n", op.Method, target)
		switch {
		case op.Method == http.MethodPost:
			b.WriteString("Prefer: return-no-content\r\n")
		case op.IfMatch != "":
			fmt.Fprintf(&b, "If-Match: %s\r\n", op.IfMatch)
		}
		b.WriteString("\r\n")
		if op.Method != http.MethodDelete {
			b.Write(op.Entity.JSON())
		}
		b.WriteString("\r\n")
	}
	fmt.Fprintf(&b, "--changeset_%s--\r\n--batch_%[1]s--\r\n", id)
	return b.Bytes(), "batch_" + id
}

// keysURL returns the part of an entity's URL with its keys.
func keysURL(partitionKey, rowKey string) string {
	return "(PartitionKey='" + escapeKeyURL(partitionKey) + "',RowKey='" + escapeKeyURL(rowKey) + "')"
}

func escapeKeyURL(key string) string { return url.PathEscape(EscapeOData(key)) }

// EscapeOData doubles apostrophes, the escape in an OData string.
func EscapeOData(s string) string { return strings.ReplaceAll(s, "'", "''") }

// ParseTransaction parses the response to a transaction of n operations. It returns the new ETags, or
// the reason why an operation was rejected.
func ParseTransaction(text []byte, n int) ([]string, error) {
	var etags []string
	var status int
	inBody := false
	for line := range bytes.Lines(text) {
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case bytes.HasPrefix(line, []byte("HTTP/1.1 ")):
			status, _ = strconv.Atoi(string(line[9:min(12, len(line))]))
			etags = append(etags, "")
			inBody = false
		case len(etags) == 0:
		case len(line) == 0:
			inBody = true
		case status >= 400 && inBody && line[0] == '{':
			return nil, newTransactionError(len(etags)-1, status, line)
		case !inBody:
			if name, value, found := strings.Cut(string(line), ":"); found && textproto.CanonicalMIMEHeaderKey(name) == "Etag" {
				etags[len(etags)-1] = strings.TrimSpace(value)
			}
		}
	}
	if status >= 400 {
		return nil, &TransactionError{Index: -1, Status: status}
	}
	if len(etags) != n {
		return nil, fmt.Errorf("response to a transaction of %d operations has %d parts", n, len(etags))
	}
	return etags, nil
}

// newTransactionError parses the body of a rejection. Its message starts with the index of the
// operation.
func newTransactionError(part, status int, body []byte) error {
	var answer struct {
		Error struct {
			Code    string `json:"code"`
			Message struct {
				Value string `json:"value"`
			} `json:"message"`
		} `json:"odata.error"`
	}
	e := &TransactionError{Index: part, Status: status}
	if json.Unmarshal(body, &answer) == nil {
		e.Code = answer.Error.Code
		e.Message, _, _ = strings.Cut(answer.Error.Message.Value, "\n")
		if index, rest, found := strings.Cut(e.Message, ":"); found {
			if i, err := strconv.Atoi(index); err == nil {
				e.Index, e.Message = i, rest
			}
		}
	}
	return e
}

// placeholderTransaction is the transaction that the SDK receives; the substitution replaces it.
var placeholderTransaction = []aztables.TransactionAction{{
	ActionType: aztables.TransactionTypeAdd,
	Entity:     []byte(`{"PartitionKey":"","RowKey":""}`),
}}
