package hubcli_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/handler/internal/hubcli"
)

// A run is the result of one command.
type run struct {
	code      int
	out, errs string
}

// runOn runs a command against a management API.
func runOn(ctx context.Context, api http.RoundTripper, args ...string) run {
	var out, errs strings.Builder
	p := hubcli.Program{
		Name: "app hub", Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Verify: func([]byte) error { return nil },
		Open: func(context.Context) (*hubcli.Target, error) {
			return &hubcli.Target{Client: &http.Client{Transport: api}, Base: "http://app/api/durabletask"}, nil
		},
	}
	return run{p.Run(ctx, args), out.String(), errs.String()}
}

// wants checks the exit code and that the output and standard error contain texts.
func (r run) wants(t *testing.T, code int, out string, errs ...string) {
	t.Helper()
	lacks := func(text string) bool { return !strings.Contains(r.errs, text) }
	if r.code != code || !strings.Contains(r.out, out) || slices.ContainsFunc(errs, lacks) {
		t.Errorf("exit code %d, want %d, %q and %q:\n%s%s", r.code, code, out, errs, r.out, r.errs)
	}
}

// listing is a management API with instances that lists them and passes other requests to change.
func listing(change http.HandlerFunc, ids ...string) answering {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != "/api/durabletask/instances" {
			change(w, r)
			return
		}
		var all []string
		for _, id := range ids {
			all = append(all, instance(id, "Failed", "null"))
		}
		_, _ = io.WriteString(w, "["+strings.Join(all, ",")+"]")
	}
}

func TestBulk_RefusesABlankStatus(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"purge", "--status", ","},
		{"purge", "--status", " "},
		{"purge", "--status", ", ", "--all"},
		{"purge", "--status", ""},
		{"terminate", "--status", ","},
		{"terminate", "--status", " ", "--dry-run"},
		{"terminate", "i", "--status", ","},
		{"list", "--status", ","},
	} {
		api := &asking{}
		if got := runOn(t.Context(), api, args...); got.code != hubcli.ExitUsage || len(api.asked) > 0 {
			t.Errorf("%q: exit code %d, sent %q", args, got.code, api.asked)
		}
	}
}

const noInstance = `{"Message":"InstanceId does not match a valid orchestration instance."}`

func TestRestart_CountsAnInstanceThatWasPurgedMeanwhileAsRefused(t *testing.T) {
	t.Parallel()
	api := listing(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, noInstance)
	}, "gone")
	got := runOn(t.Context(), api, "restart", "--status", "Failed", "--output", "json")
	got.wants(t, hubcli.ExitFailed, `"refused": 1`, `instance "gone": there is no such instance`)
	runOn(t.Context(), api, "restart", "gone").wants(t, hubcli.ExitNotFound, "", `there is no instance "gone"`)
}

func TestBulk_CountsOnlySuccessesAndContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	api := listing(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/durabletask/instances/broken/terminate":
			w.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(w, `{"Message":"its row cannot be read"}`)
		case "/api/durabletask/instances/damaged/terminate":
			w.WriteHeader(http.StatusServiceUnavailable)
		case "/api/durabletask/instances/odd/terminate":
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `"bad ID"`)
		case "/api/durabletask/instances/ended/terminate":
			w.WriteHeader(http.StatusGone)
		}
	}, "a", "broken", "damaged", "ended", "odd", "z")
	got := runOn(t.Context(), api, "terminate", "--all", "--output", "json")
	got.wants(t, hubcli.ExitFailed, `"failed": 3`,
		`instance "broken": its row cannot be read`, `instance "odd": bad ID`, `instance "ended": it has ended`,
		"4 of 6 instances were not terminated: 3 failed, 1 refused, 0 not attempted")
	got.wants(t, hubcli.ExitFailed, `"instances": 2`)
	got.wants(t, hubcli.ExitFailed, `"refused": 1`)
}

func TestBulk_StopsWhenTheHubIsUnreachable(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(w http.ResponseWriter) error{
		"no answer": func(http.ResponseWriter) error { return errors.New("connection refused") },
		"an outage": func(w http.ResponseWriter) error {
			w.WriteHeader(http.StatusServiceUnavailable)
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var attempts atomic.Int64
			list := listing(nil, strings.Fields(strings.Repeat("i ", 100))...)
			api := failing{list, func(w http.ResponseWriter, r *http.Request) error {
				attempts.Add(1)
				return fail(w)
			}}
			got := runOn(t.Context(), api, "terminate", "--all", "--output", "json")
			got.wants(t, hubcli.ExitUnavailable, `"failed": 100`, "100 of 100 instances were not terminated", `instance "i": `, "not attempted")
			got.wants(t, hubcli.ExitUnavailable, `"instances": 0`)
			if n := attempts.Load(); n > 15 {
				t.Errorf("%d attempts, want at most 8 and the 7 that run at the same time", n)
			}
		})
	}
}

func TestBulk_StopsWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{context.Canceled, nil} {
		ctx, stop := context.WithCancel(t.Context())
		var attempts atomic.Int64
		api := failing{listing(nil, strings.Fields(strings.Repeat("i ", 100))...), func(http.ResponseWriter, *http.Request) error {
			attempts.Add(1)
			stop()
			return answer
		}}
		got := runOn(ctx, api, "terminate", "--all")
		got.wants(t, hubcli.ExitUnavailable, "instances terminated: ", "of 100 instances were not terminated", "context canceled")
		if n := attempts.Load(); n > 8 {
			t.Errorf("%d attempts, want at most the 8 that run at the same time", n)
		}
	}
}

// failing is a management API whose lists work. Other requests call fail.
type failing struct {
	answering
	fail func(http.ResponseWriter, *http.Request) error
}

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/instances") {
		return f.answering.RoundTrip(r)
	}
	var failed error
	resp, err := answering(func(w http.ResponseWriter, r *http.Request) { failed = f.fail(w, r) }).RoundTrip(r)
	if failed != nil {
		return nil, failed
	}
	return resp, err
}

func TestControlVerbs_RefuseEntities(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"terminate", "@counter@a"},
		{"suspend", "@counter@a"},
		{"resume", "@counter@a"},
		{"rewind", "@counter@a"},
		{"restart", "@counter@a"},
		{"raise", "@counter@a", "E"},
		{"terminate", "@counter@a", "--dry-run"},
	} {
		api := &asking{}
		runOn(t.Context(), api, args...).wants(t, hubcli.ExitRefused, "", `"@counter@a" is an entity`, "entity signal counter a OPERATION")
		if len(api.asked) > 0 {
			t.Errorf("%q sent %q", args, api.asked)
		}
	}
}

func TestPurge_DryRunAcceptsEntities(t *testing.T) {
	t.Parallel()
	api := answering(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, instance("@counter@a", "Running", "null"))
	})
	runOn(t.Context(), api, "purge", "@counter@a", "--dry-run").wants(t, hubcli.ExitOK, "@counter@a", "would be purged: 1")
}

func TestStart_PrintsTheIDBeforeItWaits(t *testing.T) {
	t.Parallel()
	api := answering(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			_, _ = io.WriteString(w, `{"id":"0123"}`)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	runOn(t.Context(), api, "start", "Hello", "--wait", "1s").wants(t, hubcli.ExitUnavailable, "", "started 0123\n")
}
