package replaytest

import (
	"regexp"
	"strconv"
	"strings"
)

var run = regexp.MustCompile(`<(\d+) ([a-z])>`)

// WriteOut expands the large payloads of a recording: "<40000 z>" becomes 40,000 times the
// letter z. .NET stores such payloads compressed in blobs, and the recordings contain only the
// compressed lengths. The original length follows from it: 10,000 repetitions of a letter take
// ten bytes.
func WriteOut(recording string) string {
	return run.ReplaceAllStringFunc(recording, func(s string) string {
		m := run.FindStringSubmatch(s)
		n, err := strconv.Atoi(m[1])
		if err != nil {
			return s
		}
		return strings.Repeat(m[2], n)
	})
}
