package logstore

import "github.com/durablefunctions-go/durablefunctions/durable/internal/reclaim"

// Parts is a long byte string in several parts. They share the memory of the values that they
// contain and must not be changed.
type Parts [][]byte

// Size returns the total length of the parts.
func (p Parts) Size() int {
	n := 0
	for _, part := range p {
		n += len(part)
	}
	return n
}

// Blocks returns the bytes in blocks of the given size, at least one. The last block may be shorter.
// Only blocks that cross the border of two parts are copies.
func (p Parts) Blocks(size int) [][]byte {
	var blocks [][]byte
	var block []byte // is not complete
	for _, part := range p {
		for len(part) > 0 {
			n := min(size-len(block), len(part))
			if block == nil {
				block = part[:n:n]
			} else {
				block = append(block, part[:n]...)
			}
			part = part[n:]
			if len(block) == size {
				blocks, block = append(blocks, block), nil
			}
		}
	}
	if block != nil || len(blocks) == 0 {
		blocks = append(blocks, block)
	}
	return blocks
}

// group is the encoded changes of a transaction. It shares large values with their records and copies
// small ones. The zero value is empty.
type group struct {
	parts Parts
	sized int   // size of parts, in bytes
	rest  Coder // encodes the changes after parts
}

// add adds a change. A nil value deletes the record.
func (g *group) add(table Table, key, value []byte) {
	if len(value) < reclaim.Large {
		g.rest.change(&table, &key, &value)
		return
	}
	g.rest.changeTo(&table, &key, value)
	g.parts = append(g.parts, g.rest.Buf, value)
	g.sized += len(g.rest.Buf) + len(value)
	g.rest.Buf = nil
}

// size returns the size of the changes, in bytes.
func (g *group) size() int { return g.sized + len(g.rest.Buf) }

// encoded returns the changes.
func (g *group) encoded() Parts {
	if len(g.rest.Buf) == 0 {
		return g.parts
	}
	return append(g.parts, g.rest.Buf)
}
