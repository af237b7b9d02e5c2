package instances

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/store"
	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/internal/wire"
	"github.com/durablefunctions-go/durablefunctions/durable/history"
	"github.com/durablefunctions-go/durablefunctions/durable/provider"
	"github.com/google/go-cmp/cmp"
)

func TestHistoryCache_EvictsTheLeastRecentlyUsed(t *testing.T) {
	t.Parallel()
	c := newHistoryCache(3 * (cacheOverhead + 100))
	put := func(id string, bytes int) { c.Put(id, History{ExecutionID: id, bytes: bytes}) }
	for _, id := range []string{"a", "b", "c"} {
		put(id, 100)
	}
	if _, ok := c.Take("a"); !ok {
		t.Error("a was evicted although the cache has room for three entries")
	}
	put("a", 100)
	put("d", 100)
	if _, ok := c.Take("b"); ok {
		t.Error("b was not evicted although it was the least recently used")
	}
	put("huge", 10*cacheOverhead)
	for _, id := range []string{"c", "a", "d"} {
		if _, ok := c.Take(id); !ok {
			t.Errorf("%s was evicted", id)
		}
		if _, ok := c.Take(id); ok {
			t.Errorf("%s is still in the cache after Take", id)
		}
	}
	if _, ok := c.Take("huge"); ok || c.size != 0 || c.order.Len() != 0 {
		t.Errorf("an entry larger than the cache was kept: %d bytes, %d entries", c.size, c.order.Len())
	}
	put("x", 1)
	put("y", 1)
	put("x", 50)
	c.evict(func(id string) bool { return id == "y" })
	if c.size != cacheOverhead+50 || len(c.byID) != 1 {
		t.Errorf("%d bytes in %d entries; want only the newer x", c.size, len(c.byID))
	}
}

func TestIsOfAnother_DetectsAReplacedExecution(t *testing.T) {
	cp := &provider.Checkpoint{Instance: history.OrchestrationInstance{ExecutionID: "x"}}
	for name, tt := range map[string]struct {
		row  *wire.InstanceRow
		want bool
	}{
		"no row":                      {nil, false},
		"the same execution, running": {rowOf("x", history.Running), false},
		"the same execution, rewound and pending":              {rowOf("x", history.Pending), false},
		"an earlier attempt of this checkpoint has written it": {rowOf("x", history.Completed), false},
		"the previous execution, continued as new":             {rowOf("w", history.Running), false},
		"the previous execution, ended":                        {rowOf("w", history.Completed), false},
		"a generation in between, written late":                {rowOf("v", history.Running), false},
		"another execution, about to start":                    {rowOf("y", history.Pending), true},
		"another execution, terminated before it ran":          {rowOf("y", history.Terminated), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := isOfAnother(tt.row, "w", cp); got != tt.want {
				t.Errorf("isOfAnother = %v, want %v", got, tt.want)
			}
		})
	}
}

// The row of an instance may lack the status of the previous checkpoint, whose update was not written.
func TestRowUpdateFor_KeepsTheCustomStatus(t *testing.T) {
	t.Parallel()
	head := history.NewHeader(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	checkpoint := func(execution string, keep bool, status *string) *provider.Checkpoint {
		return &provider.Checkpoint{
			Instance:  history.OrchestrationInstance{InstanceID: "i", ExecutionID: execution},
			NewEvents: []history.Event{&history.ExecutionSuspended{Header: head}}, CustomStatus: status, KeepCustomStatus: keep,
		}
	}
	row := rowOf("x", history.Running)
	row.State.CustomStatus = new("1")
	for name, tt := range map[string]struct {
		row     *wire.InstanceRow
		leftOut *provider.Checkpoint // of the unwritten update; may be nil
		cp      *provider.Checkpoint
		want    string
	}{
		"not kept":                       {row, nil, checkpoint("x", false, new("2")), "2"},
		"erased":                         {row, nil, checkpoint("x", false, nil), wire.JSONNull},
		"in the row":                     {row, nil, checkpoint("x", true, new("2")), "1"},
		"no row":                         {nil, nil, checkpoint("x", true, new("2")), wire.JSONNull},
		"in an unwritten update":         {row, checkpoint("x", false, new("3")), checkpoint("x", true, nil), "3"},
		"erased by an unwritten update":  {row, checkpoint("x", false, nil), checkpoint("x", true, nil), wire.JSONNull},
		"kept twice":                     {row, checkpoint("x", true, nil), checkpoint("x", true, nil), "1"},
		"an update of another execution": {row, checkpoint("w", false, new("3")), checkpoint("x", true, nil), "1"},
	} {
		var leftOut *RowUpdate
		if tt.leftOut != nil {
			leftOut = &RowUpdate{cp: tt.leftOut, row: tt.row, events: tt.leftOut.NewEvents}
		}
		u := new(Store).RowUpdateFor(&Instance{Row: tt.row}, tt.cp, nil, leftOut)
		if got := customStatusText(u.customStatus()); got != tt.want {
			t.Errorf("%s: the custom status is %s, want %s", name, got, tt.want)
		}
	}
}

func TestIsRowCurrent(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	row := func(change func(s *provider.InstanceState)) *wire.InstanceRow {
		r := &wire.InstanceRow{State: provider.InstanceState{
			Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "x"}, Status: history.Running, LastUpdatedAt: now,
		}}
		if change != nil {
			change(&r.State)
		}
		return r
	}
	head := history.NewHeader(now.Add(time.Second))
	checkpoint := func(events ...history.Event) *provider.Checkpoint {
		events = append(events, &history.OrchestratorCompleted{Header: head})
		return &provider.Checkpoint{Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: "x"}, NewEvents: events}
	}
	withStatus := checkpoint()
	withStatus.CustomStatus = new(`"half"`)
	kept := checkpoint()
	kept.KeepCustomStatus = true
	next := checkpoint()
	next.Instance.ExecutionID = "y"
	plain := row(nil)
	for name, tt := range map[string]struct {
		row       *wire.InstanceRow
		cp        *provider.Checkpoint
		tolerance time.Duration
		want      bool
	}{
		"a result was processed":               {plain, checkpoint(&history.TaskCompleted{Header: head}), 3 * time.Second, true},
		"the last update is old":               {plain, checkpoint(), time.Second, false},
		".NET writes the row every time":       {plain, checkpoint(), -1, false},
		"the row is missing":                   {nil, checkpoint(), 3 * time.Second, false},
		"the row lacks the start":              {row(func(s *provider.InstanceState) { s.Status = history.Pending }), checkpoint(), 3 * time.Second, false},
		"the row belongs to another execution": {plain, next, 3 * time.Second, false},
		"the custom status is new":             {plain, withStatus, 3 * time.Second, false},
		"the custom status is gone":            {row(func(s *provider.InstanceState) { s.CustomStatus = new(`1`) }), checkpoint(), 3 * time.Second, false},
		"the custom status is the same":        {row(func(s *provider.InstanceState) { s.CustomStatus = new(`"half"`) }), withStatus, 3 * time.Second, true},
		"the custom status is kept":            {row(func(s *provider.InstanceState) { s.CustomStatus = new(`1`) }), kept, 3 * time.Second, true},
		"the execution starts":                 {plain, checkpoint(&history.ExecutionStarted{Header: head}), 3 * time.Second, false},
		"the execution ends":                   {plain, checkpoint(&history.ExecutionCompleted{Header: head}), 3 * time.Second, false},
		"the instance is suspended":            {plain, checkpoint(&history.ExecutionSuspended{Header: head}), 3 * time.Second, false},
		"the instance is resumed":              {plain, checkpoint(&history.ExecutionResumed{Header: head}), 3 * time.Second, false},
		"the instance is terminated":           {plain, checkpoint(&history.ExecutionTerminated{Header: head}), 3 * time.Second, false},
		"a suspended instance gets results":    {row(func(s *provider.InstanceState) { s.Status = history.Suspended }), checkpoint(&history.TaskCompleted{Header: head}), 3 * time.Second, true},
	} {
		if got := isRowCurrent(tt.row, tt.cp, tt.tolerance); got != tt.want {
			t.Errorf("%s: isRowCurrent = %v, want %v", name, got, tt.want)
		}
	}
}

func TestSplitHistory_KeepsTransactionsWithinTheServiceLimits(t *testing.T) {
	rows := func(n, input int) []wire.Row {
		rows := make([]wire.Row, n)
		for i := range rows {
			rows[i] = wire.EncodeHistoryRow(&history.EventRaised{Header: history.NewHeader(time.Unix(0, 0)), Name: "n", Input: new(strings.Repeat("\x01", input))}, "i", i, "x")
		}
		return rows
	}
	steps := func(n, result int) []wire.Row {
		at := time.Unix(0, 0)
		events := []history.Event{&history.OrchestratorStarted{Header: history.NewHeader(at)}}
		for i := range n {
			events = append(events, &history.TaskScheduled{Header: history.Header{EventID: i, Timestamp: at}, Name: "Step"})
			switch i % 3 {
			case 0:
				events = append(events, history.NewStepStart(i, at))
			case 1:
				events = append(events, &history.TaskFailed{Header: history.NewHeader(at), TaskScheduledID: i})
			default:
				events = append(events, &history.TaskCompleted{Header: history.NewHeader(at), TaskScheduledID: i, Result: new(strings.Repeat("\x01", result))})
			}
		}
		return encoded(events...)
	}
	for name, tt := range map[string]struct {
		rows []wire.Row
		want []int
	}{
		"none":                            {nil, nil},
		"a few":                           {rows(4, 1), []int{4}},
		"the maximum number of rows":      {rows(99, 1), []int{99}},
		"one more":                        {rows(100, 1), []int{99, 1}},
		"many":                            {rows(250, 1), []int{99, 99, 52}},
		"large rows whose JSON is larger": {rows(40, 30_000), nil},
		"steps":                           {steps(150, 1), []int{99, 98, 98, 6}},
		"steps with large results":        {steps(80, 30_000), nil},
	} {
		t.Run(name, func(t *testing.T) {
			batches := splitHistory(tt.rows)
			var got []int
			total := 0
			for i, b := range batches {
				got = append(got, len(b.rows))
				total += len(b.rows)
				if b.complete != (i == len(batches)-1) {
					t.Errorf("batch %d of %d: complete is %v", i, len(batches), b.complete)
				}
				if last := b.rows[len(b.rows)-1]; last.Text("EventType") == history.TypeTaskScheduled.String() {
					t.Errorf("batch %d ends with %s, without the record of the step's end", i, last.RowKey)
				}
				var ops []store.Operation
				for _, r := range b.rows {
					ops = append(ops, store.Operation{Method: http.MethodPut, Entity: r})
				}
				body, _ := store.TransactionBody("http://host", "T", ops)
				if size := len(body); size > store.MaxTransactionBytes-64<<10 || len(ops) >= store.MaxTransactionOperations {
					t.Errorf("batch %d has %d operations in %d bytes", i, len(ops), size)
				}
			}
			if total != len(tt.rows) || tt.want != nil && !cmp.Equal(got, tt.want) {
				t.Errorf("batches of %v, want %v", got, tt.want)
			}
		})
	}
}

// encoded returns the history rows of events.
func encoded(events ...history.Event) []wire.Row {
	rows := make([]wire.Row, len(events))
	for i, ev := range events {
		rows[i] = wire.EncodeHistoryRow(ev, "i", i, "x")
	}
	return rows
}

// DurableTask.AzureStorage/Tracking/AzureTableTrackingStore.cs,
// GetHistoryEventsAsync.
func TestCurrentExecution(t *testing.T) {
	row := func(key, execution string) *wire.HistoryRow {
		raw := fmt.Sprintf(`{"odata.etag":"e-%s","RowKey":%q,"ExecutionId":%q,"EventType":"OrchestratorStarted"}`, key, key, execution)
		r, err := wire.DecodeHistoryRow([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, tt := range map[string]struct {
		rows      []*wire.HistoryRow
		wanted    string
		execution string
		etag      string
		keys      []string
	}{
		"nothing is stored":                            {nil, "x", "x", "", nil},
		"any execution":                                {[]*wire.HistoryRow{row("0", "x"), row("1", "x"), row("sentinel", "x")}, "", "x", "e-sentinel", []string{"0", "1"}},
		"the wanted one":                               {[]*wire.HistoryRow{row("0", "x"), row("sentinel", "x")}, "x", "x", "e-sentinel", []string{"0"}},
		"another one, with its sentinel's ETag":        {[]*wire.HistoryRow{row("sentinel", "x")}, "y", "y", "e-sentinel", nil},
		"rows of an older and longer execution follow": {[]*wire.HistoryRow{row("0", "y"), row("1", "x"), row("sentinel", "y")}, "", "y", "e-sentinel", []string{"0"}},
		"no sentinel, one wanted":                      {[]*wire.HistoryRow{row("0", "x")}, "x", "x", "", nil},
		"no sentinel, any":                             {[]*wire.HistoryRow{row("0", "x")}, "", "", "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			current, stored := currentExecution(tt.rows, tt.wanted)
			var keys []string
			for _, r := range current {
				keys = append(keys, r.RowKey)
			}
			if stored.ExecutionID != tt.execution || stored.ETag != tt.etag || !cmp.Equal(keys, tt.keys) {
				t.Errorf("execution %q, ETag %q, rows %v; want %q, %q, %v", stored.ExecutionID, stored.ETag, keys, tt.execution, tt.etag, tt.keys)
			}
		})
	}
}

// prefixEnd follows all keys with the prefix, in the order of UTF-16 and of UTF-8.
func TestPrefixEnd_FollowsAllKeysWithThePrefix(t *testing.T) {
	for prefix, want := range map[string]string{
		"inst": "insu", "a^0": "a^1", "\uD7FF": "\uE000", "ü": "ý", "a\uFFFC": "a\uFFFD", "😀": "😁",
		"a\uFFFD": "b", "a\uFFFF": "b", "a\U0010FFFF": "b", "a\U0010FFFF\uFFFD\xff": "b", "\xff": "", "\U0010FFFF": "", "": "",
	} {
		got, ok := prefixEnd(prefix)
		if got != want || ok != (want != "") {
			t.Errorf("prefixEnd(%q) = %q, %v; want %q", prefix, got, ok, want)
		}
		for _, rest := range []string{"", "z", "\uFFFF", "\U0010FFFF"} {
			if id := prefix + rest; ok && (id >= got || slices.Compare(utf16.Encode([]rune(id)), utf16.Encode([]rune(got))) >= 0) {
				t.Errorf("%q, which has the prefix %q, is not before %q", id, prefix, got)
			}
		}
	}
}

func TestRowCache_RemovesEndedInstances(t *testing.T) {
	var c RowCache
	goesOn := &wire.InstanceRow{ETag: "1"}
	c.Put("i", goesOn)
	if c.Get("i") != goesOn {
		t.Error("Get does not return the cached row")
	}
	done := &wire.InstanceRow{ETag: "2"}
	done.State.Status = history.Completed
	c.Put("i", done)
	if c.Get("i") != nil {
		t.Error("the row of an ended instance is cached")
	}
	for i := range maxCachedRows + 1 {
		c.Put(fmt.Sprint(i), goesOn)
	}
	if len(c.rows) > maxCachedRows {
		t.Errorf("%d rows are cached, want at most 4096", len(c.rows))
	}
}

func TestInstanceFilter_MatchesOrchestrationInstanceStatusQueryCondition(t *testing.T) {
	at := time.Date(2026, 11, 20, 17, 34, 20, 173632100, time.UTC)
	for want, q := range map[string]provider.Query{
		"": {},
		"(RuntimeStatus eq 'Pending' or RuntimeStatus eq 'Running') and (PartitionKey ge 'inst') and (PartitionKey lt 'insu')": {
			IDPrefix: "inst", Statuses: []history.RuntimeStatus{history.Pending, history.Running},
		},
		"CreatedTime ge datetime'2026-11-20T17:34:20.1736321Z'": {CreatedFrom: at},
		"(CreatedTime ge datetime'2026-11-20T17:34:20.1736321Z') and (CreatedTime le datetime'2026-11-20T17:34:20.1736321Z')": {
			CreatedFrom: at, CreatedTo: at.In(time.FixedZone("CET", 3600)),
		},
		"PartitionKey lt '@' or PartitionKey ge 'A'":              {ExcludeEntities: true},
		"(PartitionKey ge 'a''^0') and (PartitionKey lt 'a''^1')": {IDPrefix: "a'/"},
		"PartitionKey ge '\U0010FFFF'":                            {IDPrefix: "\U0010FFFF"},
	} {
		if diff := cmp.Diff(want, instanceFilter(q)); diff != "" {
			t.Errorf("filter (-want +got):\n%s", diff)
		}
	}
}

// The cache returns every recorded type of event exactly as a read of the table does.
func TestHistoryCache_ReturnsEventsAsStored(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", 2*wire.MaxColumnUnits)
	at := time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)
	for _, ev := range []history.Event{
		&history.OrchestratorStarted{Header: history.NewHeader(at)},
		&history.TaskScheduled{Header: history.Header{EventID: 1, Timestamp: at}, Name: "A", Input: new("kept")},
		&history.TaskCompleted{Header: history.NewHeader(at), TaskScheduledID: 1, Result: &large},
		&history.TimerCreated{Header: history.Header{EventID: 2, Timestamp: at}, FireAt: at},
	} {
		row := wire.EncodeHistoryRow(ev, "i", 0, "e")
		whole, err := wire.DecodeHistoryRow(row.JSON())
		if err != nil {
			t.Fatal(err)
		}
		want, err := whole.Event()
		if err != nil {
			t.Fatal(err)
		}
		for _, column := range row.LargeColumns() {
			row.Offload(column, "blob")
		}
		got, size, err := asStored(ev, &row)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-read +remembered):\n%s", ev.Type(), diff)
		}
		if done, ok := ev.(*history.TaskCompleted); ok && size < len(*done.Result) {
			t.Errorf("%d bytes, want at least the size of the result", size)
		}
	}
}

func rowOf(executionID string, status history.RuntimeStatus) *wire.InstanceRow {
	return &wire.InstanceRow{State: provider.InstanceState{Instance: history.OrchestrationInstance{InstanceID: "i", ExecutionID: executionID}, Status: status}}
}
