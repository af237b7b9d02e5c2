package handler

import (
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// An errorLines writes log lines of errors to the standard error that the Functions host reads. The host
// logs a line as a warning if it contains "warn" in any case, otherwise as an error
// (azure-functions-host: Workers/ProcessManagement/WorkerProcess.cs, OnErrorDataReceived). An errorLines
// therefore escapes the word. Readers of the line's format see the original text.
type errorLines struct {
	to     io.Writer
	escape func(line string) string
}

// Write implements [io.Writer]. A slog handler calls it once per line.
func (w errorLines) Write(line []byte) (int, error) {
	if _, err := io.WriteString(w.to, w.escape(string(line))); err != nil {
		return 0, err
	}
	return len(line), nil
}

var warnWord = regexp.MustCompile(`(?i)warn`)

// escapeWarnJSON escapes the word "warn" in a line of JSON.
func escapeWarnJSON(line string) string { return escapeWarn(line, `\u%04x`) }

// escapeWarnText escapes the word "warn" in a line of a [slog.TextHandler]. It quotes words that contain it.
func escapeWarnText(line string) string {
	if !warnWord.MatchString(line) {
		return line
	}
	var out strings.Builder
	for len(line) > 0 {
		var token string
		if line[0] == '"' {
			token = quotedPrefix(line)
			line = line[len(token):]
		} else {
			end := strings.IndexAny(line, " =\n")
			if end < 0 {
				end = len(line)
			}
			token, line = line[:end], line[end:]
			if warnWord.MatchString(token) {
				token = strconv.Quote(token)
			}
		}
		out.WriteString(escapeWarn(token, `\x%02x`))
		if line != "" && line[0] != '"' {
			out.WriteByte(line[0])
			line = line[1:]
		}
	}
	return out.String()
}

// quotedPrefix returns the quoted string at the start of s, or the opening quote if the closing one is missing.
func quotedPrefix(s string) string {
	quoted, err := strconv.QuotedPrefix(s)
	if err != nil {
		return s[:1]
	}
	return quoted
}

// escapeWarn replaces the letter a of each "warn" in s by an escape sequence in the given format.
func escapeWarn(s, format string) string {
	return warnWord.ReplaceAllStringFunc(s, func(word string) string {
		return word[:1] + fmt.Sprintf(format, word[1]) + word[2:]
	})
}
