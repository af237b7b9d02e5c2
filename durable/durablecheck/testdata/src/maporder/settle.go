package maporder

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

var costs = map[string]int{"a": 1, "b": 2}

var (
	names   = slices.Collect(maps.Keys(costs))
	more    = slices.AppendSeq([]string{"c"}, maps.Keys(costs))
	viaCall = keys(costs)
	count   = len(slices.Collect(maps.Keys(costs)))
	inOrder = slices.Sorted(maps.Keys(costs))
	later   = slices.Collect(maps.Keys(costs))
)

func init() { slices.Sort(later) }

func ofVariables(ctx *durable.Context, n int) (string, error) {
	_ = names[0]   // want `maps.Keys, reached via names, yields in the order of a map`
	_ = more[0]    // want `maps.Keys, reached via more, yields`
	_ = viaCall[0] // want `what keys returns, reached via viaCall, is in the order of a map`
	return inOrder[count-1] + later[0], nil
}

func sortedTooLate(ctx *durable.Context, m map[string]int) (string, error) {
	ks := slices.AppendSeq([]string(nil), maps.Keys(m)) // want `maps.Keys yields`
	for _, k := range ks {
		durable.CallActivity(ctx, reserve, k)
	}
	slices.Sort(ks)
	first := slices.Collect(maps.Keys(m)) // want `maps.Keys yields`
	text := first[0]
	slices.Sort(first)
	passed := keys(m) // want `what keys returns`
	durable.CallActivity(ctx, reserveAll, passed)
	slices.Sort(passed)
	joined := keys(m) // want `what keys returns`
	text += strings.Join(joined, ",")
	slices.Sort(joined)
	early := keys(m) // want `what keys returns`
	if len(early) > 3 {
		return strings.Join(returnsEarly(m), ","), nil // want `what returnsEarly returns`
	}
	reserveEach(ctx, early)
	slices.Sort(early)
	return text, nil
}

func returnsEarly(m map[string]int) []string {
	ks := keys(m)
	if len(ks) > 3 {
		return ks
	}
	slices.Sort(ks)
	return ks
}

func sortedCopies(ctx *durable.Context, m map[string]int) (string, error) {
	ks := slices.AppendSeq([]string(nil), maps.Keys(m)) // want `maps.Keys yields`
	copied := slices.Sorted(slices.Values(ks))
	for _, k := range ks {
		durable.CallActivity(ctx, reserve, k)
	}
	collect := maps.Keys[map[string]int] // want `maps.Keys yields`
	for k := range collect(m) {
		durable.CallActivity(ctx, reserve, k)
	}
	numbered := maps.Collect(slices.All(slices.Collect(maps.Keys(m)))) // want `maps.Keys yields`
	return copied[0] + numbered[0], nil
}

func writes(ctx *durable.Context, m map[string]string) (string, error) {
	var b bytes.Buffer
	for k := range m { // want `ranging over m writes to b`
		io.Copy(&b, strings.NewReader(k))
	}
	for k := range m { // want `ranging over m writes to b`
		json.NewEncoder(&b).Encode(k)
	}
	list := make([]string, len(m))
	for k := range m { // want `ranging over m writes to list`
		copy(list, []string{k})
	}
	var ks []string
	for k, v := range m { // want `ranging over m appends to ks`
		ks = slices.AppendSeq(ks, slices.Values([]string{k, v}))
	}
	return b.String() + ks[0], nil
}

func settled(ctx *durable.Context, m map[string]int) (int, error) {
	var ks []string
	for k := range m {
		ks = slices.AppendSeq(ks, slices.Values([]string{k}))
	}
	ks = slices.Sorted(slices.Values(ks))
	for _, k := range ks {
		durable.CallActivity(ctx, reserve, k)
	}
	seq := maps.Keys(m)
	all := slices.Collect(seq)
	lower := slices.Clone(all)
	for i := range lower {
		lower[i] = strings.ToLower(lower[i])
	}
	slices.Sort(lower)
	counted := keys(m)
	counted = append(counted, "a")
	for range counted {
		ctx.Sleep(1)
	}
	if slices.Contains(counted, "b") {
		return len(counted), nil
	}
	return len(lower), nil
}
