package stdorder

import (
	"context"
	"maps"
	"slices"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

func work(ctx context.Context, item string) (string, error) { return item, nil }

func visits(ctx *durable.Context, m map[string]int) ([]string, error) {
	var ks []string
	maps.DeleteFunc(m, func(k string, n int) bool { // want `^maps.DeleteFunc over m appends to ks, which is not sorted afterwards, in another order on each replay`
		ks = append(ks, k)
		return n > 3
	})
	maps.DeleteFunc(m, func(k string, n int) bool { // want `maps.DeleteFunc over m makes durable calls \(durable.CallActivity\)`
		durable.CallActivity(ctx, work, k)
		return false
	})
	calls := 0
	_ = maps.EqualFunc(m, m, func(a, b int) bool { // want `maps.EqualFunc over m stops early,`
		calls++
		return a == b
	})
	last := 0
	keep := func(k string, n int) bool {
		last = n
		return false
	}
	maps.DeleteFunc(m, keep) // want `maps.DeleteFunc over m sets last`
	return append(ks, string(rune(last+calls))), nil
}

func visitsWithoutEffect(ctx *durable.Context, m map[string]int) ([]string, error) {
	var gone []string
	total := 0
	maps.DeleteFunc(m, func(k string, n int) bool {
		gone = append(gone, k)
		total += n
		return n > 3
	})
	slices.Sort(gone)
	maps.DeleteFunc(m, isCheap)
	_ = maps.EqualFunc(m, m, func(a, b int) bool { return a == b })
	return gone, nil
}
