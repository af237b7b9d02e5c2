package azsim

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// maxPage is the maximum number of entities in a response.
const maxPage = 1000

type table struct {
	name     string
	entities map[[2]string]*entity
	order    []*entity // by key; nil if it must be rebuilt
}

// foldName returns a table's name in lower case, because names are case-insensitive.
func foldName(name string) string { return strings.ToLower(name) }

func (t *table) sorted() []*entity {
	if t.order == nil {
		t.order = slices.SortedFunc(maps.Values(t.entities), compareKeys)
	}
	return t.order
}

func (t *table) get(partitionKey, rowKey string) *entity {
	return t.entities[[2]string{partitionKey, rowKey}]
}

func (t *table) put(e *entity) {
	t.entities[[2]string{e.partitionKey, e.rowKey}] = e
	t.order = nil
}

func (t *table) remove(e *entity) {
	delete(t.entities, [2]string{e.partitionKey, e.rowKey})
	t.order = nil
}

func refuseTable(status int, code, message string) *reply {
	return refusal(TableService, status, code, message)
}

func validTableName(name string) bool {
	if len(name) < 3 || len(name) > 63 || name[0] >= '0' && name[0] <= '9' {
		return false
	}
	return !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9')
	})
}

func selectedColumns(r *Request) []string {
	text := r.query.Get("$select")
	if text == "" || text == "*" {
		return nil
	}
	return strings.Split(text, ",")
}

// toToken and fromToken convert keys to and from opaque continuation tokens.
func toToken(key string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(key))
	return "1!" + strconv.Itoa(len(text)) + "!" + text
}

func fromToken(token string) (key string, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(token[strings.LastIndex(token, "!")+1:])
	return string(text), err == nil && toToken(string(text)) == token
}

// continuationOf returns the entity at which a query continues. Like the service, it refuses an
// empty parameter.
func continuationOf(r *Request) (first *entity, ok bool) {
	partitionKey, ok := fromToken(r.query.Get("NextPartitionKey"))
	rowKey := ""
	if ok && r.query.Has("NextRowKey") {
		rowKey, ok = fromToken(r.query.Get("NextRowKey"))
	}
	return &entity{partitionKey: partitionKey, rowKey: rowKey}, ok
}

// tableService serves the tables of an account.
type tableService struct{ *Account }

func (a tableService) serveTable(r *Request) *reply {
	switch r.Operation {
	case "QueryTables":
		return a.queryTables()
	case "CreateTable":
		return a.createTable(r)
	}
	t := a.tables[foldName(r.Target)]
	if t == nil && r.Operation == "DeleteTable" {
		return refuseTable(http.StatusNotFound, "ResourceNotFound", "The specified resource does not exist.")
	}
	if t == nil {
		return refuseTable(http.StatusNotFound, "TableNotFound", "The table specified does not exist.")
	}
	switch r.Operation {
	case "DeleteTable":
		delete(a.tables, foldName(r.Target))
		return newReply(http.StatusNoContent)
	case "QueryEntities":
		return a.queryEntities(t, r)
	case "GetEntity":
		return a.getEntity(t, r)
	case "EntityGroupTransaction":
		return a.transact(t, r)
	}
	op, failure := readOperation(r.method, lastSegment(r.Path), r.header, r.Body)
	if failure != nil {
		return failure
	}
	e, undo, failure := a.apply(t, op)
	if failure != nil {
		return failure
	}
	_ = undo // a single operation is never undone
	return op.answer(e)
}

func (a tableService) queryTables() *reply {
	var value []map[string]string
	for _, name := range slices.Sorted(maps.Keys(a.tables)) {
		value = append(value, map[string]string{"TableName": a.tables[name].name})
	}
	body, err := json.Marshal(map[string]any{"value": value})
	if err != nil {
		panic(err) // names can always be encoded
	}
	return newReply(http.StatusOK).with("application/json", body)
}

func (a tableService) createTable(r *Request) *reply {
	var wanted struct{ TableName string }
	if err := json.Unmarshal(r.Body, &wanted); err != nil || !validTableName(wanted.TableName) {
		return refuseTable(http.StatusBadRequest, "InvalidResourceName", "The specified resource name contains invalid characters.")
	}
	if a.tables[foldName(wanted.TableName)] != nil {
		return refuseTable(http.StatusConflict, "TableAlreadyExists", "The table specified already exists.")
	}
	if refused := a.beingDeleted(TableService, wanted.TableName); refused != nil {
		return refused
	}
	a.tables[foldName(wanted.TableName)] = &table{name: wanted.TableName, entities: map[[2]string]*entity{}}
	if r.header.Get("Prefer") == "return-no-content" {
		return newReply(http.StatusNoContent, "Preference-Applied", "return-no-content")
	}
	body := fmt.Appendf(nil, `{"odata.metadata":"%s/$metadata#Tables/@Element","TableName":%s}`, r.host, quoted(wanted.TableName))
	return newReply(http.StatusCreated).with("application/json;odata=minimalmetadata", body)
}

func (a tableService) getEntity(t *table, r *Request) *reply {
	partitionKey, rowKey, ok := readKeys(lastSegment(r.Path))
	e := t.get(partitionKey, rowKey)
	switch {
	case !ok:
		return refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid.")
	case e == nil:
		return refuseTable(http.StatusNotFound, "ResourceNotFound", "The specified resource does not exist.")
	}
	var b bytes.Buffer
	e.writeJSON(&b, selectedColumns(r))
	body := append(fmt.Appendf(nil, `{"odata.metadata":"%s/$metadata#%s/@Element",`, r.host, t.name), b.Bytes()[1:]...)
	return newReply(http.StatusOK, "ETag", e.etag).with("application/json;odata=minimalmetadata", body)
}

// queryEntities returns a page of the entities that match the filter, starting at the
// continuation.
func (a tableService) queryEntities(t *table, r *Request) *reply {
	matches, err := parseFilter(r.query.Get("$filter"))
	if err != nil {
		return refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid: "+err.Error())
	}
	top, ok := r.seconds("$top", maxPage, 1, 1<<30)
	if !ok {
		return refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid: $top")
	}
	top = min(top, maxPage)
	all := t.sorted()
	if r.query.Has("NextPartitionKey") {
		first, ok := continuationOf(r)
		if !ok {
			return refuseTable(http.StatusBadRequest, "InvalidInput", "One of the request inputs is not valid: the continuation")
		}
		i, _ := slices.BinarySearchFunc(all, first, compareKeys)
		all = all[i:]
	}
	found := slices.DeleteFunc(slices.Clone(all), func(e *entity) bool { return !matches(e) })
	end := min(top, len(found))
	if a.cfg.Loose && r.Roll%4 == 0 { // a page may end anywhere
		end = int(mix(r.Roll, 7) % uint64(end+1))
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"odata.metadata":"%s/$metadata#%s","value":[`, r.host, t.name)
	for i, e := range found[:end] {
		if i > 0 {
			b.WriteByte(',')
		}
		e.writeJSON(&b, selectedColumns(r))
	}
	b.WriteString("]}")
	answer := newReply(http.StatusOK)
	if end < len(found) {
		answer.header.Set("x-ms-continuation-NextPartitionKey", toToken(found[end].partitionKey))
		if row := found[end].rowKey; row != "" { // the service may omit this header; Azurite returns it empty
			answer.header.Set("x-ms-continuation-NextRowKey", toToken(row))
		}
	}
	return answer.with("application/json;odata=minimalmetadata", b.Bytes())
}

// transact applies all changes of a transaction or none.
func (a tableService) transact(t *table, r *Request) *reply {
	if len(r.Body) > maxBatchBytes {
		return refuseTable(http.StatusRequestEntityTooLarge, "RequestBodyTooLarge", "The request body is too large and exceeds the maximum permissible limit.")
	}
	boundary, ops, failed, failure := readTransaction(r)
	if ops == nil && failure != nil {
		return failure
	}
	if failure == nil {
		failed, failure = checkOperations(ops)
	}
	if failure != nil {
		return transactionAnswer(boundary, []*reply{indexed(failed, failure)})
	}
	var undo []func()
	answers := make([]*reply, len(ops))
	for i, op := range ops {
		after, restore, failure := a.apply(t, op)
		if failure != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
			return transactionAnswer(boundary, []*reply{indexed(i, failure)})
		}
		undo = append(undo, restore)
		answers[i] = op.answer(after)
	}
	return transactionAnswer(boundary, answers)
}
