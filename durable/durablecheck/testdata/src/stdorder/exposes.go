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
	sorted(slices.All(keys(m)))                                        // want `what keys returns is in the order of a map`
	sorted(slices.Backward(keys(m)))                                   // want `what keys returns`
	sorted(slices.BinarySearch(keys(m), "a"))                          // want `what keys returns`
	sorted(slices.BinarySearchFunc(keys(m), "a", strings.Compare))     // want `what keys returns`
	sorted(slices.Chunk(keys(m), 2))                                   // want `what keys returns`
	sorted(slices.Compact(keys(m)))                                    // want `what keys returns`
	sorted(slices.CompactFunc(keys(m), strings.EqualFold))             // want `what keys returns`
	sorted(slices.Compare(keys(m), nil))                               // want `what keys returns`
	sorted(slices.CompareFunc(keys(m), keys(m), strings.Compare))      // want `what keys returns`
	sorted(slices.Delete(keys(m), 0, 1))                               // want `what keys returns`
	sorted(slices.Equal(keys(m), keys(m)))                             // want `what keys returns`
	sorted(slices.EqualFunc(keys(m), keys(m), strings.EqualFold))      // want `what keys returns`
	sorted(slices.Index(keys(m), "a"))                                 // want `what keys returns`
	sorted(slices.IndexFunc(keys(m), isShort))                         // want `what keys returns`
	sorted(slices.IsSorted(keys(m)))                                   // want `what keys returns`
	sorted(slices.IsSortedFunc(keys(m), strings.Compare))              // want `what keys returns`
	sorted(slices.MaxFunc(keys(m), strings.Compare))                   // want `what keys returns`
	sorted(slices.MinFunc(keys(m), strings.Compare))                   // want `what keys returns`
	sorted(slices.Replace(keys(m), 0, 1, "a"))                         // want `what keys returns`
	sorted(iter.Pull(maps.Keys(m)))                                    // want `maps.Keys yields in the order of a map`
	sorted(iter.Pull2(maps.All(m)))                                    // want `maps.All yields`
	sorted(strings.Join(keys(m), " "))                                 // want `what keys returns`
	sorted(strings.FieldsSeq(strings.Join(keys(m), " ")))              // want `what keys returns`
	sorted(strings.FieldsFuncSeq(strings.Join(keys(m), " "), isSpace)) // want `what keys returns`
	sorted(strings.Lines(strings.Join(keys(m), " ")))                  // want `what keys returns`
	sorted(strings.SplitSeq(strings.Join(keys(m), " "), " "))          // want `what keys returns`
	sorted(strings.SplitAfterSeq(strings.Join(keys(m), " "), " "))     // want `what keys returns`
	sorted(bytes.Join(parts(m), nil))                                  // want `what parts returns`
	sorted(bytes.FieldsSeq(bytes.Join(parts(m), nil)))                 // want `what parts returns`
	sorted(bytes.FieldsFuncSeq(bytes.Join(parts(m), nil), isSpace))    // want `what parts returns`
	sorted(bytes.Lines(bytes.Join(parts(m), nil)))                     // want `what parts returns`
	sorted(bytes.SplitSeq(bytes.Join(parts(m), nil), nil))             // want `what parts returns`
	sorted(bytes.SplitAfterSeq(bytes.Join(parts(m), nil), nil))        // want `what parts returns`
	return "", nil
}

// sorted has the name of a function that sorts, so that only the function in its argument decides.
func sorted(values ...any) {}

func isSpace(r rune) bool { return r == ' ' }

func parts(m map[string]int) (ps [][]byte) {
	for k := range m {
		ps = append(ps, []byte(k))
	}
	return ps
}
