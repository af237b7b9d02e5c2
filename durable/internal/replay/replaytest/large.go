package replaytest

import (
	"regexp"
	"strconv"
	"strings"
)

var run = regexp.MustCompile(`<(\d+) ([a-z])>`)

// ExpandPayloads expands the large payloads of a recording. It replaces "<40000 z>" by 40,000
// times the letter z. The recordings contain only the lengths of these payloads, because .NET
// stores them compressed in blobs. The original length follows from the compressed length:
// 10,000 repetitions of a letter take ten bytes.
func ExpandPayloads(recording string) string {
	return run.ReplaceAllStringFunc(recording, func(s string) string {
		m := run.FindStringSubmatch(s)
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return s
		}
		return strings.Repeat(m[2], n)
	})
}
