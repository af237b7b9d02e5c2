package maporder

import (
	"github.com/durablefunctions-go/durablefunctions/durable"
)

type bag struct {
	names []string
	sums  map[string]float64
	n     int
	set   []bool
}

func (b *bag) sort() {}

func statements(ctx *durable.Context, m map[string]item, b *bag) (int, error) {
	total, bits, product, scale := 0, 0, 1, 1.0
	for k, v := range m {
		total = total + v.Cost
		total = v.Cost + total
		bits |= v.Cost
		product *= v.Cost
		scale *= 1.5
		b.sums[k] += v.Price
		b.n = min(b.n, v.Cost)
		b.set[v.Cost] = true
	}
	for k := range m {
		b.names = append(b.names, k)
	}
	b.sort()
	for k := range m { // want `ranging over m appends to b`
		b.names = append(b.names, k)
	}
	for _, v := range m { // want `ranging over m accumulates total`
		total /= v.Cost
	}
	for _, v := range m { // want `ranging over m sets scale`
		scale = scale * v.Price
	}
	for _, v := range m { // want `ranging over m sets b.n`
		b.n = v.Cost
	}
	var k string
	for k = range m { // want `ranging over m returns len\(k\)`
		if k != "" {
			return len(k), nil
		}
	}
	return total + bits + product, nil
}

func labels(ctx *durable.Context, m map[string]item, limits []int) (int, error) {
	n := 0
turns:
	for _, v := range m {
		for _, limit := range limits {
			if v.Cost > limit {
				continue turns
			}
		}
		n++
	}
outer:
	for range limits {
		for _, v := range m { // want `ranging over m stops early`
			n++
			if v.Cost > 3 {
				continue outer
			}
		}
	}
search:
	for _, v := range m { // want `ranging over m stops early`
		n++
		switch v.Cost {
		case 1:
			break
		case 2:
			break search
		}
	}
	for k := range m {
		n++
		if "special" == k {
			n += 5
			break
		}
	}
	return n, nil
}

func types[K ~string, V int | float64](ctx *durable.Context, m map[K]V) (V, error) {
	var sum V
	for _, v := range m { // want `ranging over m accumulates sum`
		sum += v
	}
	return sum, nil
}
