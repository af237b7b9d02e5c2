package durable

import (
	"reflect"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/history"
)

// A Query must have all the conditions of a provider.Query and pass on each of them.
func TestQuery_PassesEachFieldToTheProvider(t *testing.T) {
	rows := reflect.ValueOf(Query{
		CreatedFrom: time.Unix(1, 0), CreatedTo: time.Unix(2, 0), Statuses: []history.RuntimeStatus{history.Failed}, IDPrefix: "p", Name: "n",
		ExcludeEntities: true, Fetch: Fetch{Input: true, Output: true}, PageSize: 1, PageBytes: 2, Continuation: "c",
	}.rows())
	for i := range rows.NumField() {
		if rows.Field(i).IsZero() {
			t.Errorf("%s is not passed to the provider", rows.Type().Field(i).Name)
		}
	}
}
