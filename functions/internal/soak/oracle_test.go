//go:build unix

package soak_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// sample returns a ledger, a hub that fits it, and the runs of its activities.
func sample() (*ledger, *contents, map[string]int) {
	l := newLedger()
	runs := map[string]int{}
	found := &contents{map[string]instance{}, map[string]entity{}}
	begin := func(id, shape string, input any, output string) {
		l.intend(id, shape, input)
		l.started(id, true)
		found.Instances[id] = instance{shape, "Completed", output}
	}
	begin("s", "Steps", "", "14")
	begin("f", "Family", nil, "42")
	for _, n := range children {
		found.Instances[childOf("f", n)] = instance{"Steps", "Completed", "14"}
	}
	begin("o", "Shop", "", `{"Token":"AB"}`)
	runs[useOf("o", "AB")], runs[runOf("o", 5)] = 2, 1
	begin("p", "Watch", nil, "5")
	runs[runOf("p", 5)] = 1
	begin("m", "Move", transfer{"a", "b", 5}, "5")
	begin("l", "Later", "k", `"l"`)
	begin("c", "Listen", conversation{}, "")
	begin("c-courier", "Courier", "c", "3")
	l.intend("c-doubt", "Courier", "c")
	heard, _ := json.Marshal(append([]string{"w1", "w2"}, lettersOf("c-courier")...))
	found.Instances["c"] = instance{"Listen", "Completed", string(heard)}
	l.raised("c", spoken{"w1", "x", true})
	l.raised("c", spoken{"w2", "y", true})
	l.signaled("k", "t1", true)
	l.signaled("k", "t2", false)
	found.Entities["tally/k"] = entity{State: json.RawMessage(`{"Tokens":{"t1":1,"l":1}}`)}
	found.Entities["account/a"] = entity{State: json.RawMessage(`{"Cents":-5,"Changes":1}`)}
	found.Entities["account/b"] = entity{State: json.RawMessage(`{"Cents":5,"Changes":1}`)}
	for _, id := range []string{"s", "f-child1", "f-child2", "f-child3", "c-courier", "o"} {
		for n := 1; n <= 3; n++ {
			runs[runOf(id, n)] = 1
		}
	}
	return l, found, runs
}

func TestOracle_FindsEachDifference(t *testing.T) {
	file, log, azure := promise{exact: true, ordered: true}, promise{exact: true}, promise{}
	letters := lettersOf("c-courier")
	hears := func(tokens ...string) func(*ledger, *contents, map[string]int) {
		text, _ := json.Marshal(tokens)
		return func(_ *ledger, c *contents, _ map[string]int) {
			c.Instances["c"] = instance{"Listen", "Completed", string(text)}
		}
	}
	counts := func(state string) func(*ledger, *contents, map[string]int) {
		return func(_ *ledger, c *contents, _ map[string]int) {
			c.Entities["tally/k"] = entity{State: json.RawMessage(state)}
		}
	}
	for name, tt := range map[string]struct {
		change  func(*ledger, *contents, map[string]int)
		promise promise
		want    string // empty if the hub still fits
	}{
		"nothing":            {func(*ledger, *contents, map[string]int) {}, file, ""},
		"a lost instance":    {func(_ *ledger, c *contents, _ map[string]int) { delete(c.Instances, "s") }, azure, "lost after its start"},
		"a start in doubt":   {func(l *ledger, _ *contents, _ map[string]int) { l.intend("d", "Steps", "") }, file, ""},
		"a start that hangs": {func(_ *ledger, c *contents, _ map[string]int) { c.Instances["s"] = instance{"Steps", "Pending", ""} }, azure, "Pending"},
		"a wrong output": {func(_ *ledger, c *contents, _ map[string]int) {
			c.Instances["f"] = instance{"Family", "Completed", "28"}
		}, azure, "the output is 28"},
		"a lost child":               {func(_ *ledger, c *contents, _ map[string]int) { delete(c.Instances, "f-child2") }, azure, "child f-child2"},
		"an unknown instance":        {func(_ *ledger, c *contents, _ map[string]int) { c.Instances["u"] = instance{} }, azure, "no client started it"},
		"an activity without run":    {func(_ *ledger, _ *contents, r map[string]int) { delete(r, runOf("s", 2)) }, azure, "never ran"},
		"an activity that ran twice": {func(_ *ledger, _ *contents, r map[string]int) { r[runOf("s", 2)]++ }, file, ""},
		"a step without run":         {func(_ *ledger, _ *contents, r map[string]int) { delete(r, runOf("o", 2)) }, azure, "never ran"},
		"a step of other results":    {func(_ *ledger, _ *contents, r map[string]int) { r[useOf("o", "AC")]++ }, azure, "other results"},
		"a use without run":          {func(_ *ledger, _ *contents, r map[string]int) { delete(r, useOf("o", "AB")) }, azure, "never ran"},
		"a step at most twice":       {func(_ *ledger, _ *contents, r map[string]int) { r[runOf("o", 5)]++ }, azure, "ran 2 times"},
		"a step that never ran":      {func(_ *ledger, _ *contents, r map[string]int) { delete(r, runOf("o", 5)) }, azure, "ran 0 times"},
		"an unknown outcome": {func(_ *ledger, c *contents, r map[string]int) {
			delete(r, runOf("o", 5))
			c.Instances["o"] = instance{"Shop", "Completed", `{"Token":"AB","Unknown":true}`}
		}, azure, ""},
		"a poll that ended early": {func(_ *ledger, c *contents, _ map[string]int) { c.Instances["p"] = instance{"Watch", "Completed", "3"} }, azure, "ended with 3"},
		"a poll without its call": {func(_ *ledger, _ *contents, r map[string]int) { delete(r, runOf("p", 5)) }, azure, "never ran"},
		"a lost change":           {func(_ *ledger, c *contents, _ map[string]int) { delete(c.Entities, "account/b") }, azure, "account b: missing"},
		"a repeated change": {func(_ *ledger, c *contents, _ map[string]int) {
			c.Entities["account/b"] = entity{State: json.RawMessage(`{"Cents":10,"Changes":2}`)}
		}, azure, "account b"},
		"a lock": {func(_ *ledger, c *contents, _ map[string]int) {
			c.Entities["account/c"] = entity{LockedBy: "x", State: json.RawMessage(`{}`)}
		}, azure, "locked by"},
		"an operation that waits": {func(_ *ledger, c *contents, _ map[string]int) {
			c.Entities["account/c"] = entity{Queue: 1, State: json.RawMessage(`{}`)}
		}, azure, "1 operations wait"},
		"an unknown entity":        {func(_ *ledger, c *contents, _ map[string]int) { c.Entities["x/y"] = entity{} }, azure, "no client uses it"},
		"a lost signal":            {counts(`{"Tokens":{"l":1}}`), azure, "signal t1 is lost"},
		"a repeated signal":        {counts(`{"Tokens":{"t1":2,"l":1}}`), azure, "t1 counts 2"},
		"a signal in doubt":        {counts(`{"Tokens":{"t1":1,"t2":1,"l":1}}`), azure, ""},
		"a signal in doubt, twice": {counts(`{"Tokens":{"t1":1,"t2":2,"l":1}}`), azure, "t2 counts 2"},
		"a lost signal of one":     {counts(`{"Tokens":{"t1":1}}`), azure, "the signal of instance l is lost"},
		"a repeated one":           {counts(`{"Tokens":{"t1":1,"l":2}}`), azure, "l counts 2"},
		"an unknown signal":        {counts(`{"Tokens":{"t1":1,"l":1,"u":1}}`), azure, "u counts 1"},
		"a tally that is missing":  {func(_ *ledger, c *contents, _ map[string]int) { delete(c.Entities, "tally/k") }, azure, "t1 is lost"},
		"a silent listener": {func(l *ledger, c *contents, _ map[string]int) {
			l.intend("q", "Listen", conversation{})
			c.Instances["q"] = instance{"Listen", "Completed", ""}
		}, file, ""},
		"a lost event":              {hears(append([]string{"w1"}, letters...)...), azure, "event w2 is lost"},
		"an unknown event":          {hears(append([]string{"w1", "w2", "u"}, letters...)...), azure, "no client sent event u"},
		"a repeated event":          {hears(append([]string{"w1", "w2", "w1"}, letters...)...), file, ""},
		"events in reverse, a file": {hears(append([]string{"w2", "w1"}, letters...)...), file, "arrived before"},
		"events of two processes":   {hears(append([]string{"w2", "w1"}, letters...)...), log, ""},
		"letters in reverse":        {hears("w1", "w2", letters[1], letters[0], letters[2]), log, "events of c-courier"},
		"letters in any order":      {hears("w1", "w2", letters[1], letters[0], letters[2], letters[0]), azure, ""},
		"letters in doubt":          {hears(append(append([]string{"w1", "w2"}, lettersOf("c-doubt")[:2]...), letters...)...), log, ""},
		"a lost letter in doubt":    {hears(append(append([]string{"w1", "w2"}, lettersOf("c-doubt")[1:]...), letters...)...), log, "events of c-doubt"},
		"a repeated letter":         {hears("w1", "w2", letters[0], letters[0], letters[1], letters[2]), log, "events of c-courier"},
		"a lost letter":             {hears("w1", "w2", letters[0], letters[2]), azure, "events of c-courier"},
	} {
		l, found, runs := sample()
		tt.change(l, found, runs)
		_, problems := l.judge(found, runs, tt.promise)
		if got := strings.Join(problems, "\n"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: the problems are %q, want %q", name, got, tt.want)
		}
	}
}
