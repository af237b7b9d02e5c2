package replaytest

import (
	"regexp"
	"strconv"
	"strings"
)

var run = regexp.MustCompile(`<(\d+) ([a-z])>`)

// WriteOut writes out the large payloads of a recording, which has a letter in
// them as often as <40000 z> says. .NET keeps such payloads in blobs, compressed,
// of which the recordings have the lengths only. They tell how long the payloads
// were: each 10,000 times that a letter is repeated take ten bytes.
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
