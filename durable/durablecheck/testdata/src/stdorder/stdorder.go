// Package stdorder calls each function of the standard library whose effect on order the analyzer knows.
package stdorder

import (
	"maps"
	"slices"
)

func keys(m map[string]int) []string { return slices.Collect(maps.Keys(m)) }

func isShort(s string) bool { return len(s) < 3 }

func isCheap(s string, n int) bool { return n < 3 }
