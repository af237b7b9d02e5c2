package azsim

import (
	"hash/fnv"
	"io"
)

// mix combines numbers into one well-distributed number. It applies the finalizer of splitmix64
// to each.
func mix(numbers ...uint64) uint64 {
	h := uint64(0x9E3779B97F4A7C15)
	for _, n := range numbers {
		h ^= n
		h += 0x9E3779B97F4A7C15
		h = (h ^ h>>30) * 0xBF58476D1CE4E5B9
		h = (h ^ h>>27) * 0x94D049BB133111EB
		h ^= h >> 31
	}
	return h
}

func hashOf(parts ...string) uint64 {
	h := fnv.New64a()
	for _, p := range parts {
		_, _ = io.WriteString(h, p) // cannot fail
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// fraction converts a random number to one in [0, 1).
func fraction(roll uint64) float64 { return float64(roll>>11) / (1 << 53) }

// fingerprint returns a hash of a body without noise. It is 0 for a body that is not text,
// because noise cannot be recognized there.
func fingerprint(body []byte) uint64 {
	if len(body) == 0 {
		return 0
	}
	if text, ok := decompress(body); ok {
		body = text
	}
	if !isText(body) {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write(appendWithoutNoise(nil, body)) // cannot fail
	return h.Sum64()
}
