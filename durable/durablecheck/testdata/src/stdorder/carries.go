package stdorder

import (
	"maps"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func unsorted(ctx *durable.Context, m map[string]int) (string, error) {
	_ = slices.AppendSeq(make([]string, 0, len(m)), maps.Keys(m)) // want `maps.Keys yields in the order of a map`
	_ = slices.Clip(keys(m))                                      // want `what keys returns`
	_ = slices.Clone(keys(m))                                     // want `what keys returns`
	_ = slices.Collect(maps.Keys(m))                              // want `maps.Keys yields`
	_ = slices.Concat([]string{"a"}, keys(m))                     // want `what keys returns`
	_ = slices.DeleteFunc(keys(m), isShort)                       // want `what keys returns`
	_ = slices.Grow(keys(m), 1)                                   // want `what keys returns`
	_ = slices.Insert([]string{"a"}, 0, keys(m)...)               // want `what keys returns`
	_ = slices.Repeat(keys(m), 2)                                 // want `what keys returns`
	slices.Reverse(keys(m))                                       // want `what keys returns`
	_ = slices.Values(keys(m))                                    // want `what keys returns`
	return "", nil
}

func sortedLater(ctx *durable.Context, m map[string]int) (string, error) {
	_ = slices.Sorted(slices.Values(slices.AppendSeq([]string{"a"}, maps.Keys(m))))
	_ = slices.Sorted(slices.Values(slices.Clip(keys(m))))
	_ = slices.Sorted(slices.Values(slices.Clone(keys(m))))
	_ = slices.Sorted(slices.Values(slices.Collect(maps.Keys(m))))
	_ = slices.Sorted(slices.Values(slices.Concat([]string{"a"}, keys(m))))
	_ = slices.Sorted(slices.Values(slices.DeleteFunc(keys(m), isShort)))
	_ = slices.Sorted(slices.Values(slices.Grow(keys(m), 1)))
	_ = slices.Sorted(slices.Values(slices.Insert(keys(m), 0, "a")))
	_ = slices.Sorted(slices.Values(slices.Repeat(keys(m), 2)))
	{
		ks := keys(m)
		slices.Reverse(ks)
		slices.Sort(ks)
	}
	return "", nil
}
