package maporder

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable"
)

type item struct {
	Name  string
	Cost  int
	Price float64
	At    time.Time
}

func leaks(ctx *durable.Context, m map[string]item) (string, error) {
	var names []string
	for k := range m { // want `^ranging over m appends to names, which is not sorted afterwards, in another order on each replay; range over sorted keys`
		names = append(names, k)
	}
	text := ""
	for k := range m { // want `ranging over m accumulates text`
		text += k
	}
	sum := 0.0
	for _, v := range m { // want `ranging over m adds up sum, whose rounding depends on the order,`
		sum += v.Price
	}
	var last string
	for k := range m { // want `ranging over m sets last to a value that depends on the iteration,`
		last = k
	}
	best := item{Cost: math.MaxInt}
	for _, v := range m { // want `ranging over m sets best`
		if v.Cost < best.Cost {
			best = v
		}
	}
	byCost := map[int]string{}
	for k, v := range m { // want `ranging over m sets byCost\[v.Cost\]`
		byCost[v.Cost] = k
	}
	list, i := make([]string, len(m)), 0
	for k := range m { // want `ranging over m sets list\[i\]`
		list[i] = k
		i++
	}
	var b strings.Builder
	for k := range m { // want `ranging over m writes to b`
		b.WriteString(k)
	}
	for k := range m { // want `ranging over m writes to b`
		fmt.Fprintln(&b, k)
	}
	n := 0
	for _, v := range m { // want `ranging over m stops early,`
		n += v.Cost
		if n > 100 {
			break
		}
	}
	for k := range m { // want `ranging over m returns k for the first key,`
		return k, nil
	}
	for k, v := range m { // want `ranging over m returns fmt.Errorf`
		if v.Cost < 0 {
			return "", fmt.Errorf("%s is too cheap", k)
		}
	}
	return last + text + strings.Join(names, ","), nil
}

func sequences(ctx *durable.Context, m map[string]int) ([]string, error) {
	ks := slices.Collect(maps.Keys(m)) // want `^maps.Keys yields in the order of a map, which differs on replay; wrap it in slices.Sorted$`
	first := keys(m)[0]                // want `^what keys returns is in the order of a map, which differs on replay; sort it$`
	ks = append(ks, first)
	fmt.Sprint(ks)
	again := viaKeys(m)                                        // want `what viaKeys returns is in the order of a map`
	return append(again, slices.Collect(maps.Keys(m))...), nil // want `maps.Keys yields`
}

func returnsSequence(ctx *durable.Context, m map[string]int) ([]string, error) {
	return keys(m), nil // want `what keys returns`
}

func keys(m map[string]int) (ks []string) {
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

func viaKeys(m map[string]int) []string {
	ks := keys(m)
	return ks
}

func values(m map[string]int) []int { return slices.Collect(maps.Values(m)) }

func sortedKeys(m map[string]int) []string {
	ks := keys(m)
	sort.Strings(ks)
	return ks
}

func firstKey(m map[string]int) string { return keys(m)[0] }

func throughHelper(ctx *durable.Context, m map[string]int) (string, error) {
	return firstKey(m), nil // want `what keys returns, reached via firstKey, is in the order of a map`
}

func free(ctx *durable.Context, m map[string]item, counts map[string]int) (int, error) {
	var names []string
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	var items []item
	for _, v := range m {
		items = append(items, v)
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.Name, b.Name) })
	total, n := 0, 0
	for _, v := range m {
		total += v.Cost
		n++
	}
	copied, seen, cost := map[string]item{}, map[int]bool{}, map[int]int{}
	for k, v := range m {
		copied[k] = v
		copied[string(k)] = item{Name: v.Name}
		seen[v.Cost] = true
		cost[v.Cost]++
		delete(m, k)
	}
	groups := map[int][]string{}
	for k, v := range m {
		groups[v.Cost] = append(groups[v.Cost], k)
	}
	for _, g := range groups {
		sort.Strings(g)
	}
	dearest, latest, any := 0, time.Time{}, false
	for _, v := range m {
		if v.Cost > dearest {
			dearest = v.Cost
		}
		if v.At.After(latest) {
			latest = v.At
		}
		total = max(total, v.Cost)
		any = any || v.Cost > 10
	}
	for k, v := range m {
		if v.Cost == 0 {
			any = true
			break
		}
		if k == "special" && v.Cost > 1 {
			return v.Cost, nil
		}
		if !seen[v.Cost] {
			return 0, nil
		}
	}
	for _, v := range m {
		local := v.Cost
		for range 3 {
			local++
			if local > 10 {
				break
			}
		}
		check := func() bool { return local > 3 }
		any = any && check()
	}
	ks := keys(counts)
	slices.Sort(ks)
	vs := values(counts)
	slices.Sort(vs)
	sorted := slices.Sorted(maps.Values(counts))
	collected := maps.Collect(maps.All(counts))
	most := slices.Max(values(counts))
	_ = len(keys(counts)) + len(sortedKeys(counts))
	return total + n + dearest + len(names) + len(ks) + len(sorted) + len(collected) + most, nil
}

func sortNames(names []string) { sort.Strings(names) }

func ownSort(ctx *durable.Context, m map[string]int) ([]string, error) {
	ks := keys(m)
	sortNames(ks)
	return ks, nil
}
