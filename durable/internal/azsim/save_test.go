package azsim

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLoad_RestoresAllThatSaveReturned(t *testing.T) {
	t.Parallel()
	a := New(Config{})
	at := time.Date(2000, 1, 2, 3, 4, 5, 0, time.UTC)
	a.queues["q"] = &queue{metadata: http.Header{"A": {"b"}}}
	a.Put("q", "first", 3)
	a.Put("q", "second", 0)
	a.queues["q"].messages[1].visibleAt = at
	row, err := readEntity([]byte(`{"PartitionKey":"p","RowKey":"r","Text":"a<b","Number":1,"Long@odata.type":"Edm.Int64","Long":"5","Yes":true,` +
		`"At@odata.type":"Edm.DateTime","At":"2000-01-02T03:04:05.0000000Z"}`))
	if err != nil {
		t.Fatal(err)
	}
	row.stamp(a.tick())
	a.tables["rows"] = &table{name: "Rows", entities: map[[2]string]*entity{{"p", "r"}: row}}
	a.containers["c"] = &container{blobs: map[string]*blob{
		"append": {name: "append", kind: appendBlob, content: []byte("xyz"), blocks: 2, metadata: http.Header{"K": {"v"}}, lease: lease{id: "l", present: true}},
		"block":  {name: "block", kind: blockBlob, content: []byte{0, 255}, md5: sum([]byte{0, 255}), contentType: "text/plain"},
	}}
	saved, err := Save(a)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load(Config{}, saved)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Save(b)
	if diff := cmp.Diff(string(saved), string(again)); err != nil || diff != "" {
		t.Errorf("saved again: %v (-want +got):\n%s", err, diff)
	}
	if diff := cmp.Diff(a.Messages("q"), b.Messages("q"), cmp.Comparer(time.Time.Equal)); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(a.Rows("Rows"), b.Rows("rows")); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	wantBlobs := a.Blobs()
	wantBlobs[0].LeaseID = "" // leases are not saved
	if diff := cmp.Diff(wantBlobs, b.Blobs()); diff != "" {
		t.Errorf("blobs (-want +got):\n%s", diff)
	}
	if _, err := Load(Config{}, []byte(`{"tables": {"T": [{"columns": [{"name": "C", "value": {}}]}]}}`)); err == nil {
		t.Error("a column without a valid value is loaded")
	}
}
