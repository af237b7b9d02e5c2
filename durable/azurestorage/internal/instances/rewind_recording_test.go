package instances

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/recordings"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	gocmp "github.com/google/go-cmp/cmp"
)

// recordedHistory returns the history rows of an instance that a scenario wrote, ordered by key: the
// request bodies and the decoded rows.
func recordedHistory(t *testing.T, scenario, instanceID string) (bodies [][]byte, rows []*wire.HistoryRow) {
	t.Helper()
	type written struct {
		raw []byte
		row *wire.HistoryRow
	}
	var all []written
	for _, e := range recordings.Rows(t) {
		if e.Request.Folder != "kinds" || e.Request.Scenario != scenario || e.Table != "History" || e.Verb != "batch PUT" ||
			e.Column(t, "PartitionKey") != instanceID {
			continue
		}
		row, err := wire.DecodeHistoryRow(e.Raw)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, written{e.Raw, row})
	}
	slices.SortFunc(all, func(a, b written) int { return cmp.Compare(a.row.RowKey, b.row.RowKey) })
	for _, w := range all {
		bodies, rows = append(bodies, w.raw), append(rows, w.row)
	}
	return bodies, rows
}

// TestRewind_ChangesRowsAsRewindHistoryAsync rewinds the recorded histories of a failed parent and its
// failed child, and compares the changed rows with the rows that .NET wrote.
func TestRewind_ChangesRowsAsRewindHistoryAsync(t *testing.T) {
	for run, scenarios := range map[string]struct{ failed, rewound string }{
		"with failure details":       {"parentfail", "rewind"},
		"with serialized exceptions": {"parentfail-run2", "rewind-run2"},
	} {
		t.Run(run, func(t *testing.T) {
			bodies, rows := map[string][][]byte{}, map[string][]*wire.HistoryRow{}
			load := func(_ context.Context, id string) ([]history.Event, error) {
				bodies[id], rows[id] = recordedHistory(t, scenarios.failed, id)
				events := make([]history.Event, len(rows[id]))
				for i, row := range rows[id] {
					var err error
					if events[i], err = row.Event(); err != nil {
						return nil, err
					}
				}
				return events, nil
			}
			plan, err := provider.PlanRewind(t.Context(), "parf", "try again", time.Now(), load)
			if err != nil {
				t.Fatal(err)
			}

			type row = map[string]recordings.EDMValue
			got, want := map[string]row{}, map[string]row{}
			name := func(r row) string { return r["PartitionKey"].Text() + " " + r["RowKey"].Text() }
			for _, x := range plan.Executions {
				for _, op := range rewindEdits(x, rows[x.Instance.InstanceID]) {
					at := slices.IndexFunc(rows[x.Instance.InstanceID], func(r *wire.HistoryRow) bool { return r.RowKey == op.Entity.RowKey })
					merged := recordings.Columns(t, bodies[x.Instance.InstanceID][at])
					for column, value := range recordings.Columns(t, op.Entity.JSON()) {
						merged[column] = value
					}
					got[name(merged)] = merged
				}
			}
			for _, e := range recordings.Rows(t) {
				if e.Request.Folder == "kinds" && e.Request.Scenario == scenarios.rewound && e.Table == "History" && e.Verb == "PUT" {
					p := recordings.Columns(t, e.Raw)
					want[name(p)] = p
				}
			}
			recordings.WantCount(t, "rows that .NET changed", len(want), 6)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("rows (-.NET +ours):\n%s", diff)
			}
		})
	}
}

// TestRewind_SendsTheMessageOfDotNet compares the message that wakes the failed leaf.
func TestRewind_SendsTheMessageOfDotNet(t *testing.T) {
	var wakes []*wire.Envelope
	for _, m := range recordings.Messages(t) {
		if m.Request.Folder != "kinds" || m.Received || !strings.Contains(m.Text, "GenericEvent") {
			continue
		}
		env, err := wire.DecodeEnvelope(m.Text)
		if err != nil {
			t.Fatal(err)
		}
		wakes = append(wakes, env)
	}
	recordings.WantCount(t, "messages with a GenericEvent", len(wakes), 2)
	for _, want := range wakes {
		load := func(_ context.Context, id string) ([]history.Event, error) {
			_, rows := recordedHistory(t, "parentfail", id)
			var events []history.Event
			for _, row := range rows {
				ev, err := row.Event()
				if err != nil {
					return nil, err
				}
				events = append(events, ev)
			}
			return events, nil
		}
		at := want.Message.Event.Head().Timestamp
		plan, err := provider.PlanRewind(t.Context(), "parf", "try again", at, load)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff([]provider.TaskMessage{*want.Message}, plan.Messages); diff != "" {
			t.Errorf("messages (-.NET +ours):\n%s", diff)
		}
	}
}

// TestRewind_UpdatesTheRowAsUpdateStatusForRewindAsync compares the updates of instance rows.
func TestRewind_UpdatesTheRowAsUpdateStatusForRewindAsync(t *testing.T) {
	seen := 0
	for _, e := range recordings.Rows(t) {
		if e.Table != "Instances" || e.Verb != "PATCH" || e.Column(t, "RuntimeStatus") != "Pending" {
			continue
		}
		seen++
		want := recordings.Columns(t, e.Raw)
		at, err := time.Parse(time.RFC3339Nano, want["LastUpdatedTime"].Text())
		if err != nil {
			t.Fatal(err)
		}
		ours := wire.EncodeRewound(want["PartitionKey"].Text(), at)
		if diff := gocmp.Diff(want, recordings.Columns(t, ours.JSON())); diff != "" {
			t.Errorf("%s (-.NET +ours):\n%s", e.String(), diff)
		}
	}
	recordings.WantCount(t, "instance rows that .NET made pending again", seen, 4)
}
