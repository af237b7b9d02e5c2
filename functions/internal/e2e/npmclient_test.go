//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/azuritetest"
	"github.com/durablefunctions-go/durablefunctions/handler/processtest"
	"github.com/google/go-cmp/cmp"
)

// npmClient installs the JavaScript client of Durable Functions if it is missing, and returns its modules
// folder.
var npmClient = sync.OnceValues(func() (string, error) {
	if out, err := exec.Command(filepath.Join(checkout, "scripts", "npmclient")).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return filepath.Abs(filepath.Join(checkout, ".npmclient", "node_modules"))
})

// requireNPM skips the test if npm is missing and not required.
func requireNPM(t *testing.T) {
	t.Helper()
	for _, program := range []string{"npm", "node"} {
		if _, err := exec.LookPath(program); err != nil {
			if azuritetest.Required("npm") {
				t.Fatal(err)
			}
			t.Skipf("this test needs the JavaScript client of Durable Functions: %s is not on PATH", program)
		}
	}
}

// The unchanged client of JavaScript's Durable Functions works with the app as with the .NET extension. It
// can build URLs in two ways. The client itself accepts "410" as success and sends JSON's empty string for no
// input.
func TestStandalone_ServesTheJavaScriptClient(t *testing.T) {
	t.Parallel()
	requireNPM(t)
	modules, err := npmClient()
	if err != nil {
		t.Fatalf("install durable-functions from npm: %v", err)
	}
	for mode, base := range map[string]string{"templates": "/runtime/webhooks/durabletask", "rpc": "/api/durabletask"} {
		t.Run(mode, func(t *testing.T) {
			hub := newHub()
			a := startStandalone(t, e2eApp, newRoot(t, hub, azuritetest.Start(t), nil))
			cmd := exec.CommandContext(t.Context(), "node", "testdata/npmclient/drive.js", a.url+base, hub, "Storage", mode, filepath.Join(t.TempDir(), "needed"))
			cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
			cmd.Stderr = t.Output()
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v after\n%s", err, out)
			}
			if diff := cmp.Diff(strings.Split(strings.TrimSpace(npmClientTells), "\n"), strings.Split(strings.TrimSpace(string(out)), "\n")); diff != "" {
				t.Errorf("results of the client (-want +got):\n%s", diff)
			}
		})
	}
}

// The client itself requests all pages of a list.
func TestStandalone_TheJavaScriptClientListsEveryPage(t *testing.T) {
	processtest.SkipInShortRuns(t)
	requireNPM(t)
	modules, err := npmClient()
	if err != nil {
		t.Fatalf("install durable-functions from npm: %v", err)
	}
	all := make([]string, 250)
	for i := range all {
		all[i] = fmt.Sprintf("listed %04d", i)
	}
	want := [][]string{all, all, all, {}}
	for store, connection := range map[string]func(testing.TB) string{
		"Azurite": azuritetest.Start, "a local file": func(testing.TB) string { return "" },
	} {
		for mode, base := range map[string]string{"templates": "/runtime/webhooks/durabletask", "rpc": "/api/durabletask"} {
			t.Run(store+" "+mode, func(t *testing.T) {
				hub := newHub()
				a := startStandalone(t, e2eApp, newRoot(t, hub, connection(t), nil))
				cmd := exec.CommandContext(t.Context(), "node", "testdata/npmclient/list.js", a.url+base, hub, mode, strconv.Itoa(len(all)))
				cmd.Env = append(os.Environ(), "NODE_PATH="+modules)
				cmd.Stderr = t.Output()
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("%v after\n%s", err, out)
				}
				var got [][]string
				for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
					var ids []string
					if err := lines.Decode(&ids); err != nil {
						t.Fatal(err)
					}
					got = append(got, ids)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("lists of the client (-want +got):\n%s", diff)
				}
			})
		}
	}
}

const npmClientTells = `
waited: [200,[1,4]]
status: ["Steps","Completed",{"steps":2},[1,4],true]
startNew: true
input: ""
startNew twice: "The operation failed with an unexpected status code: 409. Details: {\"Message\":\"An Orchestration instance with the status Running already exists.\"}"
suspend twice: "The operation failed with an unexpected status code: 500. Details: {\"Message\":\"Something went wrong while processing your request\",\"ExceptionMessage\":\"Cannot suspend the orchestration instance my blank id because instance is in the Suspended state.\",\"ExceptionType\":\"System.InvalidOperationException\",\"StackTrace\":\"\"}"
raiseEvent: "héllo"
raiseEvent late: "no error"
raiseEvent unknown: "No instance with ID 'unknown id' found."
terminate: "enough of that"
terminate late: "no error"
terminate unknown: "No instance with ID 'unknown id' found."
rewind: "found"
rewind completed: "This orchestration has status Completed, but only orchestrations in the \"Failed\" state can be rewound."
rewind unknown: "No orchestration with instance ID \"unknown id\" found."
getStatusAll: 5
getStatusBy: 2
purgeInstanceHistory: 1
purgeInstanceHistory again: 0
purgeInstanceHistoryBy: 2
purgeInstanceHistoryBy again: 0
createHttpManagementPayload: ["id","purgeHistoryDeleteUri","restartPostUri","resumePostUri","rewindPostUri","sendEventPostUri","statusQueryGetUri","suspendPostUri","terminatePostUri"]
its statusQueryGetUri: [202,"Running"]
its sendEventPostUri: 202
its restartPostUri: 202
createCheckStatusResponse: [202,"10",true]
waiting in vain: [202,"10"]
waiting for one that was terminated: [200,"Terminated"]
waiting for one that failed: [500,"Failed"]
getStatus unknown: "DurableClient error: Durable Functions extension replied with HTTP 404 response. This usually means we could not find any data associated with the instanceId provided: unknown id."
readEntityState before: false
readEntityState: {"entityExists":true,"entityState":{"total":7}}
readEntityState after delete: false
never called: []
`
