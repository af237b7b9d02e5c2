package stdorder

import (
	"bytes"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func exposes(ctx *durable.Context, m map[string]int) (string, error) {
	_ = slices.All(keys(m))                                                                       // want `what keys returns is in the order of a map`
	_ = slices.Backward(keys(m))                                                                  // want `what keys returns`
	_, _ = slices.BinarySearch(keys(m), "a")                                                      // want `what keys returns`
	_, _ = slices.BinarySearchFunc(keys(m), "a", strings.Compare)                                 // want `what keys returns`
	_ = slices.Collect(slices.Chunk(keys(m), 2))                                                  // want `what keys returns`
	_ = slices.Sorted(slices.Values(slices.Compact(keys(m))))                                     // want `what keys returns`
	_ = slices.Sorted(slices.Values(slices.CompactFunc(keys(m), strings.EqualFold)))              // want `what keys returns`
	_ = slices.Compare(keys(m), nil)                                                              // want `what keys returns`
	_ = slices.CompareFunc(keys(m), keys(m), strings.Compare)                                     // want `what keys returns`
	_ = slices.Sorted(slices.Values(slices.Delete(keys(m), 0, 1)))                                // want `what keys returns`
	_ = slices.Equal(keys(m), keys(m))                                                            // want `what keys returns`
	_ = slices.EqualFunc(keys(m), keys(m), strings.EqualFold)                                     // want `what keys returns`
	_ = slices.Index(keys(m), "a")                                                                // want `what keys returns`
	_ = slices.IndexFunc(keys(m), isShort)                                                        // want `what keys returns`
	_ = slices.IsSorted(keys(m))                                                                  // want `what keys returns`
	_ = slices.IsSortedFunc(keys(m), strings.Compare)                                             // want `what keys returns`
	_ = slices.MaxFunc(keys(m), strings.Compare)                                                  // want `what keys returns`
	_ = slices.MinFunc(keys(m), strings.Compare)                                                  // want `what keys returns`
	_ = slices.Sorted(slices.Values(slices.Replace(keys(m), 0, 1, "a")))                          // want `what keys returns`
	_, _ = iter.Pull(maps.Keys(m))                                                                // want `maps.Keys yields in the order of a map`
	_, _ = iter.Pull2(maps.All(m))                                                                // want `maps.All yields`
	_ = strings.Join(keys(m), " ")                                                                // want `what keys returns`
	_ = slices.Sorted(strings.FieldsSeq(strings.Join(keys(m), " ")))                              // want `what keys returns`
	_ = slices.Sorted(strings.FieldsFuncSeq(strings.Join(keys(m), " "), isSpace))                 // want `what keys returns`
	_ = slices.Sorted(strings.Lines(strings.Join(keys(m), " ")))                                  // want `what keys returns`
	_ = slices.Sorted(strings.SplitSeq(strings.Join(keys(m), " "), " "))                          // want `what keys returns`
	_ = slices.Sorted(strings.SplitAfterSeq(strings.Join(keys(m), " "), " "))                     // want `what keys returns`
	_ = bytes.Join(parts(m), nil)                                                                 // want `what parts returns`
	_ = slices.SortedFunc(bytes.FieldsSeq(bytes.Join(parts(m), nil)), bytes.Compare)              // want `what parts returns`
	_ = slices.SortedFunc(bytes.FieldsFuncSeq(bytes.Join(parts(m), nil), isSpace), bytes.Compare) // want `what parts returns`
	_ = slices.SortedFunc(bytes.Lines(bytes.Join(parts(m), nil)), bytes.Compare)                  // want `what parts returns`
	_ = slices.SortedFunc(bytes.SplitSeq(bytes.Join(parts(m), nil), nil), bytes.Compare)          // want `what parts returns`
	_ = slices.SortedFunc(bytes.SplitAfterSeq(bytes.Join(parts(m), nil), nil), bytes.Compare)     // want `what parts returns`
	return "", nil
}

func isSpace(r rune) bool { return r == ' ' }

func parts(m map[string]int) (ps [][]byte) {
	for k := range m {
		ps = append(ps, []byte(k))
	}
	return ps
}
