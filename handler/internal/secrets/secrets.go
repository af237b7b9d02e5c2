// Package secrets masks keys, signatures and passwords in errors, logs and the output of commands.
package secrets

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// mask replaces a secret.
const mask = "***"

// value returns a pattern for a value in a quoted text. The value ends before one of the characters in
// end.
func value(end string) string { return `(?:\\.|[^\\"` + end + `])*` }

var (
	// fields matches secret fields of connection strings. A value ends at a semicolon.
	fields = regexp.MustCompile(`(?i)\b((?:AccountKey|SharedAccessSignature|SharedAccessKey|password|pwd|secret)\s*=)` + value(`;\r\n`))
	// parameters matches secret query parameters.
	parameters = regexp.MustCompile(`(?i)(\bsig=|[?&](?:code|key|token|access_token|aeg-sas-key|aeg-sas-token|api-key)=)` + value(`;&\s`))
	// users matches the user information of a URL.
	users = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)` + value(`\s`) + `@`)
	// keys matches texts that may be keys.
	keys = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}={0,2}`)
)

// Mask returns text with its secrets replaced. Secrets are the values of secret fields and parameters,
// user names and passwords in URLs, and texts that look as random as Azure's keys.
func Mask(text string) string {
	if len(text) < 20 && !strings.ContainsAny(text, "=@") {
		return text
	}
	text = fields.ReplaceAllString(text, "${1}"+mask)
	text = parameters.ReplaceAllString(text, "${1}"+mask)
	text = users.ReplaceAllString(text, "${1}"+mask+"@")
	return keys.ReplaceAllStringFunc(text, func(run string) string {
		if looksRandom(run) {
			return mask
		}
		return run
	})
}

// shortestKey is less than the length of a key. Azure generates keys of at least 43 characters.
const shortestKey = 40

// guids matches GUIDs. They look random, but are often instance IDs and not secret.
var guids = regexp.MustCompile(`(?i)[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}`)

// looksRandom reports whether text looks like a key, not like a name or a path. A key has upper-case
// letters, lower-case letters, and many digits. In random text, about every fourth pair of neighbors
// consists of a letter and a digit. A text that ends like Base64 needs fewer such pairs.
func looksRandom(run string) bool {
	bare := guids.ReplaceAllString(strings.TrimRight(run, "="), "")
	if len(bare) < shortestKey || strings.ToLower(bare) == bare || strings.ToUpper(bare) == bare {
		return false
	}
	isDigit := func(c byte) bool { return '0' <= c && c <= '9' }
	isLetter := func(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
	changes := 0
	for i := 1; i < len(bare); i++ {
		if isDigit(bare[i-1]) && isLetter(bare[i]) || isLetter(bare[i-1]) && isDigit(bare[i]) {
			changes++
		}
	}
	if len(run) > len(bare) && strings.HasSuffix(run, "=") {
		return changes >= 2
	}
	return changes >= len(bare)/8
}

// Error returns an error that wraps err and masks its text. It returns nil if err is nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return &maskedError{err}
}

type maskedError struct{ err error }

func (e *maskedError) Error() string { return Mask(e.err.Error()) }
func (e *maskedError) Unwrap() error { return e.err }

// Writer returns a writer that masks the text of each write before it writes to w.
func Writer(w io.Writer) io.Writer { return maskedWriter{w} }

type maskedWriter struct{ to io.Writer }

func (w maskedWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, Mask(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Logger returns a logger that masks messages, strings and errors before it passes them to l's handler.
func Logger(l *slog.Logger) *slog.Logger {
	if _, done := l.Handler().(maskedHandler); done {
		return l
	}
	return slog.New(maskedHandler{l.Handler()})
}

type maskedHandler struct{ to slog.Handler }

var _ slog.Handler = maskedHandler{}

// Enabled implements [slog.Handler].
func (h maskedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.to.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h maskedHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, Mask(r.Message), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		out.AddAttrs(maskedAttr(a))
		return true
	})
	return h.to.Handle(ctx, out)
}

// WithAttrs implements [slog.Handler].
func (h maskedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return maskedHandler{h.to.WithAttrs(maskedAttrs(attrs))}
}

// WithGroup implements [slog.Handler].
func (h maskedHandler) WithGroup(name string) slog.Handler {
	return maskedHandler{h.to.WithGroup(name)}
}

func maskedAttrs(attrs []slog.Attr) []slog.Attr {
	out := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		out[i] = maskedAttr(a)
	}
	return out
}

func maskedAttr(a slog.Attr) slog.Attr {
	v := a.Value.Resolve()
	switch v.Kind() {
	case slog.KindString:
		return slog.String(a.Key, Mask(v.String()))
	case slog.KindGroup:
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(maskedAttrs(v.Group())...)}
	case slog.KindAny:
		if err, ok := v.Any().(error); ok {
			return slog.Any(a.Key, Error(err))
		}
	default:
	}
	return slog.Attr{Key: a.Key, Value: v}
}

// longestLine limits the text that [Line] returns, in bytes.
const longestLine = 1000

// Line returns the text of err on one line, masked and limited to 1,000 bytes. It omits the rulers that
// the Azure SDK draws between lines.
func Line(err error) string {
	words := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' || r == '\t' || r == ' ' })
	kept := words[:0]
	for _, w := range words {
		if strings.Trim(w, "-") != "" || len(w) < 8 {
			kept = append(kept, w)
		}
	}
	text := Mask(strings.ToValidUTF8(strings.Join(kept, " "), "?"))
	if len(text) > longestLine {
		text = strings.ToValidUTF8(text[:longestLine], "") + " …"
	}
	return text
}
