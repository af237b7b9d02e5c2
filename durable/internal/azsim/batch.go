package azsim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"strings"
)

// The service's limits of a transaction.
const (
	maxOperations = 100
	maxBatchBytes = 4 << 20
)

func checkOperations(ops []*operation) (failed int, failure *reply) {
	if len(ops) > maxOperations {
		return 99, refuseTable(http.StatusBadRequest, "InvalidInput", "The batch request operation exceeds the maximum 100 changes per change set.")
	}
	seen := map[string]bool{}
	for i, op := range ops {
		if op.entity.partitionKey != ops[0].entity.partitionKey {
			return i, refuseTable(http.StatusBadRequest, "CommandsInBatchActOnDifferentPartitions", "All commands in a batch must operate on same entity group.")
		}
		if seen[op.entity.rowKey] {
			return i, refuseTable(http.StatusBadRequest, "InvalidDuplicateRow", "The batch request contains multiple changes with same row key. An entity can appear only once in a batch request.")
		}
		seen[op.entity.rowKey] = true
	}
	return 0, nil
}

// readTransaction parses the operations of a transaction. If one of them is invalid, it returns
// those before it and the failure.
func readTransaction(r *Request) (boundary string, ops []*operation, failed int, failure *reply) {
	bad := func(err error) (string, []*operation, int, *reply) {
		return "", nil, 0, refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid: "+err.Error())
	}
	_, params, err := mime.ParseMediaType(r.header.Get("Content-Type"))
	if err != nil {
		return bad(err)
	}
	outer, err := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"]).NextPart()
	if err != nil {
		return bad(err)
	}
	if _, params, err = mime.ParseMediaType(outer.Header.Get("Content-Type")); err != nil {
		return bad(err)
	}
	boundary = params["boundary"]
	ops = []*operation{}
	for parts := multipart.NewReader(outer, boundary); ; {
		part, err := parts.NextPart()
		if errors.Is(err, io.EOF) {
			return boundary, ops, 0, nil
		}
		if err != nil {
			return bad(err)
		}
		text, err := io.ReadAll(part)
		if err != nil {
			return bad(err)
		}
		op, failure := readPart(text)
		if failure != nil {
			return boundary, ops, len(ops), failure
		}
		ops = append(ops, op)
	}
}

// readPart parses one operation of a transaction, which is an HTTP request.
func readPart(text []byte) (*operation, *reply) {
	head, body, _ := bytes.Cut(text, []byte("\r\n\r\n"))
	first, lines, _ := strings.Cut(string(head), "\r\n")
	method, rest, _ := strings.Cut(first, " ")
	address, _, _ := strings.Cut(rest, " ")
	u, err := url.Parse(address)
	if err != nil {
		return nil, refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid.")
	}
	header := http.Header{}
	for line := range strings.SplitSeq(lines, "\r\n") {
		name, value, found := strings.Cut(line, ":")
		if !found && line != "" {
			return nil, refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid.")
		}
		header.Set(name, strings.TrimSpace(value))
	}
	return readOperation(method, lastSegment(u.Path), header, bytes.TrimSpace(body))
}

// indexed adds the operation's number to the message of a refusal.
func indexed(i int, failure *reply) *reply {
	message := failure.message
	if !strings.HasPrefix(message, "0:") {
		message = fmt.Sprintf("%d:%s", i, message)
	}
	out := refuseTable(failure.status, failure.code, message)
	out.header.Del("x-ms-error-code")
	return out
}

// transactionAnswer combines the answers to the operations.
func transactionAnswer(boundary string, answers []*reply) *reply {
	inner := "changesetresponse_" + strings.TrimPrefix(boundary, "changeset_")
	var b bytes.Buffer
	fmt.Fprintf(&b, "--batchresponse_sim\r\nContent-Type: multipart/mixed; boundary=%s\r\n\r\n", inner)
	for _, r := range answers {
		r.writePart(&b, inner)
	}
	fmt.Fprintf(&b, "--%s--\r\n--batchresponse_sim--\r\n", inner)
	answer := newReply(http.StatusAccepted).with("multipart/mixed; boundary=batchresponse_sim", b.Bytes())
	answer.code = answers[0].code
	return answer
}
