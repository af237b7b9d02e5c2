package azsim

import (
	"bytes"
	"net/http"
	"strings"
)

// operation is a change of one entity.
type operation struct {
	method  string // POST inserts, PUT replaces, PATCH merges, DELETE deletes
	entity  *entity
	ifMatch string
	echo    bool // the response contains the entity
}

// readOperation parses a change from a request. path is the part of the address that names the
// entity.
func readOperation(method, path string, header http.Header, body []byte) (*operation, *reply) {
	op := &operation{method: method, entity: &entity{}, ifMatch: header.Get("If-Match")}
	if over := header.Get("X-HTTP-Method"); over != "" {
		op.method = over
	}
	if op.method == "MERGE" {
		op.method = http.MethodPatch
	}
	if op.method != http.MethodDelete {
		e, err := readEntity(body)
		if err != nil {
			return nil, refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid: "+err.Error())
		}
		op.entity = e
	}
	if op.method == http.MethodPost {
		op.echo = header.Get("Prefer") != "return-no-content"
	} else {
		partitionKey, rowKey, ok := readKeys(path)
		if !ok {
			return nil, refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid.")
		}
		op.entity.partitionKey, op.entity.rowKey = partitionKey, rowKey
	}
	if failure := op.entity.check(); failure != nil {
		return nil, failure
	}
	return op, nil
}

// readKeys parses the keys in Table(PartitionKey='a',RowKey='b').
func readKeys(path string) (partitionKey, rowKey string, ok bool) {
	_, keys, found := strings.Cut(path, "(")
	keys, closed := strings.CutSuffix(keys, ")")
	if !found || !closed {
		return "", "", false
	}
	rest := keys
	for _, key := range []struct {
		name string
		to   *string
	}{{"PartitionKey='", &partitionKey}, {"RowKey='", &rowKey}} {
		rest = strings.TrimPrefix(rest, ",")
		text, found := strings.CutPrefix(rest, key.name)
		if !found {
			return "", "", false
		}
		end := endOfText(text)
		if end < 0 {
			return "", "", false
		}
		*key.to, rest = strings.ReplaceAll(text[:end], "''", "'"), text[end+1:]
	}
	return partitionKey, rowKey, rest == ""
}

// endOfText returns the index of the closing apostrophe of a text with doubled apostrophes, or
// -1.
func endOfText(s string) int {
	for i := 0; i < len(s); i++ {
		if s[i] != '\'' {
			continue
		}
		if i+1 == len(s) || s[i+1] != '\'' {
			return i
		}
		i++
	}
	return -1
}

// condition checks the condition of a change. old is the current entity, or nil. It returns a
// refusal or nil.
func (op *operation) condition(old *entity) *reply {
	switch {
	case op.ifMatch == "" && op.method == http.MethodDelete:
		return refuseTable(http.StatusBadRequest, "InvalidInput", "The If-Match header is missing.")
	case op.ifMatch == "":
		return nil // it is created if it does not exist
	case old == nil:
		return refuseTable(http.StatusNotFound, "ResourceNotFound", "The specified resource does not exist.")
	case op.ifMatch != "*" && op.ifMatch != old.etag:
		return refuseTable(http.StatusPreconditionFailed, "UpdateConditionNotSatisfied", "The update condition specified in the request was not satisfied.")
	}
	return nil
}

// answer returns the response to a change. after is the resulting entity, or nil.
func (op *operation) answer(after *entity) *reply {
	if after == nil {
		return newReply(http.StatusNoContent)
	}
	if op.echo {
		var b bytes.Buffer
		after.writeJSON(&b, nil)
		return newReply(http.StatusCreated, "ETag", after.etag).with("application/json;odata=minimalmetadata", b.Bytes())
	}
	r := newReply(http.StatusNoContent, "ETag", after.etag)
	if op.method == http.MethodPost {
		r.header.Set("Preference-Applied", "return-no-content")
	}
	return r
}
