package hubcli_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

func TestWhy_ShowsChildrenWithoutARecordOnce(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	api := answering(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) > 10 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		id, _ := strings.CutPrefix(r.URL.Path, "/api/durabletask/instances/")
		children := map[string]string{"parent/why": `"child","new"`, "child/why": `"parent"`}[id]
		if children == "" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		id = strings.TrimSuffix(id, "/why")
		_, _ = io.WriteString(w, `{"instanceId":"`+id+`","runtimeStatus":"Running","reasons":[{"kind":"subOrchestration","text":"waits of `+id+`","instanceIds":[`+children+`]}]}`)
	})
	got := runOn(t.Context(), api, "why", "parent", "--children")
	got.wants(t, hubcli.ExitOK, "new\t\t\thas not started, or was purged\t")
	got.wants(t, hubcli.ExitOK, "waits of child")
	if n := strings.Count(got.out, "waits of parent"); n != 1 {
		t.Errorf("the parent is shown %d times:\n%s", n, got.out)
	}
	runOn(t.Context(), api, "why", "new").wants(t, hubcli.ExitNotFound, "", `there is no instance "new"`)
}

func TestWhy_NamesTheChildWhoseRequestFails(t *testing.T) {
	t.Parallel()
	api := answering(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/parent/why") {
			_, _ = io.WriteString(w, `{"instanceId":"parent","reasons":[{"kind":"subOrchestration","instanceIds":["child"]}]}`)
			return
		}
		w.WriteHeader(http.StatusGone)
	})
	runOn(t.Context(), api, "why", "parent", "--children").wants(t, hubcli.ExitRefused, "", `instance "child" has ended`)
}
