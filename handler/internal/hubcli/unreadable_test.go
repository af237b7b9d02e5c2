package hubcli_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

// damaged is a management API that cannot read 2 records on each of two pages.
func damaged(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/durabletask/scale" {
		_, _ = io.WriteString(w, `{}`)
		return
	}
	w.Header().Set("X-Durable-Unreadable", "2")
	if r.Method == http.MethodDelete {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if r.Header.Get("X-Ms-Continuation-Token") == "" {
		w.Header().Set("X-Ms-Continuation-Token", "next")
	}
	_, _ = io.WriteString(w, "[]")
}

func TestLists_FailIfRecordsCannotBeRead(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]struct{ n, out string }{
		"list --all":                  {"4", "ID"},
		"entity list --all":           {"4", "NAME"},
		"verify":                      {"4", ""},
		"why --stuck":                 {"4", ""},
		"terminate --all":             {"4", "instances terminated: 0"},
		"terminate --all --dry-run":   {"4", ""},
		"purge --all":                 {"2", "instances purged: 0"},
		"drained":                     {"4", "not known whether the hub is drained"},
		"drained --output json":       {"4", `"unreadable": 4`},
		"drained  --output=json":      {"4", `"drained": false`},
		"record --dir " + t.TempDir(): {"4", "recorded 0 histories"},
	} {
		got := runOn(t.Context(), answering(damaged), strings.Fields(command)...)
		got.wants(t, hubcli.ExitFailed, want.out, "Records of the task hub that cannot be read: "+want.n, "hub repair")
		if strings.Contains(got.errs, "All instances match") {
			t.Errorf("%s says that all instances match:\n%s", command, got.errs)
		}
	}
}
