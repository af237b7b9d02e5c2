package wire

// JSONLength returns how many bytes text takes up within JSON, at most.
func JSONLength(text string) (n int) {
	for _, r := range text {
		n += jsonRuneLength(r)
	}
	return n
}

func jsonRuneLength(r rune) int {
	switch {
	case r < ' ' || r == 0x7F || r == '\u2028' || r == '\u2029' || r == '\uFFFD' || r == '<' || r == '>' || r == '&':
		return len(`\u0000`)
	case r == '"' || r == '\\':
		return 2
	case r < 0x80:
		return 1
	}
	return len(string(r))
}

// CutJSON returns the longest beginning of text that takes up at most limit
// bytes within JSON.
func CutJSON(text string, limit int) string {
	n := 0
	for i, r := range text {
		if n += jsonRuneLength(r); n > limit {
			return text[:i]
		}
	}
	return text
}
