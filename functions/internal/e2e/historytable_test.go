//go:build unix

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/google/go-cmp/cmp"
)

// testdata/hello-history.jsonl contains the rows that the .NET engine (DurableTask.AzureStorage 2.9.1) wrote
// for a hello sequence. The sentinel is last.
func TestHistoryTable_HasTheRowsOfDotNet(t *testing.T) {
	connection, hub := azuritetest.Start(t), newHub()
	a := startStandalone(t, sampleApp, newRoot(t, hub, connection, nil))
	started := a.start("E1_HelloSequence", nil)
	a.completed(started.StatusQueryGetURI, 30*time.Second, helloOutput)

	var got []map[string]string
	for _, row := range readRows(t, connection, hub+"History", started.ID) {
		got = append(got, canonical(t, row))
	}

	if diff := cmp.Diff(recordedRows(t), got); diff != "" {
		t.Errorf("history rows (-recorded +got):\n%s", diff)
	}
}

func recordedRows(t *testing.T) []map[string]string {
	t.Helper()
	f, err := os.Open("testdata/hello-history.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []map[string]string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		row := decode[map[string]any](t, lines.Text())
		switch row["Name"] {
		case "HelloSeq":
			row["Name"] = "E1_HelloSequence"
		case "Hello":
			row["Name"] = "E1_SayHello"
		}
		rows = append(rows, canonical(t, row))
	}
	return rows
}

// readRows returns all rows of a partition as raw JSON.
func readRows(t *testing.T, connection, table, partition string) []map[string]any {
	t.Helper()
	return queryRows(t, connection, table, fmt.Sprintf("PartitionKey eq '%s'", partition))
}

// queryRows returns all rows of a table that match a filter.
func queryRows(t *testing.T, connection, table, filter string) []map[string]any {
	t.Helper()
	service, err := aztables.NewServiceClientFromConnectionString(connection, nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []map[string]any
	for pager := service.NewClient(table).NewListEntitiesPager(&aztables.ListEntitiesOptions{Filter: &filter}); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, entity := range page.Entities {
			rows = append(rows, decode[map[string]any](t, string(entity)))
		}
	}
	return rows
}

var (
	guid    = regexp.MustCompile(`^[0-9a-f]{32}$`)
	instant = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,7})?Z$`)
	inner   = regexp.MustCompile(`^\{"InstanceId":"[^"]+","ExecutionId":"[0-9a-f]{32}"\}$`)
)

// canonical returns a comparable form of a row. It contains values as text with their types, and placeholders
// for values that differ between runs. It omits columns that the service adds.
func canonical(t *testing.T, row map[string]any) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name, value := range row {
		if name == "Timestamp" || strings.Contains(name, "odata.") {
			continue
		}
		text, _ := json.Marshal(value)
		kind, _ := row[name+"@odata.type"].(string)
		s, _ := value.(string)
		switch {
		case name == "PartitionKey":
			text = []byte("an instance ID")
		case name == "ExecutionId" && guid.MatchString(s):
			text = []byte("an execution ID")
		case name == "OrchestrationInstance" && inner.MatchString(s):
			text = []byte("both IDs")
		case kind == "Edm.DateTime" && instant.MatchString(s):
			text = []byte("a time")
		}
		out[name] = strings.TrimSpace(kind + " " + string(text))
	}
	return out
}
