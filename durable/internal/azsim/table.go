package azsim

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// maxPage is the most entities that one answer has.
const maxPage = 1000

type table struct {
	name     string
	entities map[[2]string]*entity
	order    []*entity // by their keys; nil if it has to be made anew
}

// foldName returns what makes two names of tables the same.
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

func selected(r *Request) []string {
	text := r.query.Get("$select")
	if text == "" || text == "*" {
		return nil
	}
	return strings.Split(text, ",")
}

// toToken and fromToken turn keys into continuations, which clients cannot read.
func toToken(key string) string {
	text := base64.RawURLEncoding.EncodeToString([]byte(key))
	return "1!" + strconv.Itoa(len(text)) + "!" + text
}

func fromToken(token string) (key string, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(token[strings.LastIndex(token, "!")+1:])
	return string(text), err == nil && toToken(string(text)) == token
}

// continuationOf returns where a query is to go on. As the service does, it refuses a
// parameter that is there and is empty.
func continuationOf(r *Request) (first *entity, ok bool) {
	partitionKey, ok := fromToken(r.query.Get("NextPartitionKey"))
	rowKey := ""
	if ok && r.query.Has("NextRowKey") {
		rowKey, ok = fromToken(r.query.Get("NextRowKey"))
	}
	return &entity{partitionKey: partitionKey, rowKey: rowKey}, ok
}
