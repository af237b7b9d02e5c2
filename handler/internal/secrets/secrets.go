// Package secrets keeps keys, signatures and passwords out of what people read:
// errors, logs and the output of commands.
package secrets

import (
	"context"
	"io"
	"log/slog"
	"regexp"
	"strings"
)

// mask stands for what is not shown.
const mask = "***"

// value matches the rest of a quoted text, up to one of the characters that end.
func value(end string) string { return `(?:\\.|[^\\"` + end + `])*` }

var (
	// fields are those of connection strings, whose values end at a semicolon.
	fields = regexp.MustCompile(`(?i)\b((?:AccountKey|SharedAccessSignature|SharedAccessKey|password|pwd|secret)\s*=)` + value(`;\r\n`))
	// parameters are those of URLs.
	parameters = regexp.MustCompile(`(?i)(\bsig=|[?&](?:code|key|token|access_token|aeg-sas-key|aeg-sas-token|api-key)=)` + value(`;&\s`))
	// users are what stands before the host of a URL.
	users = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)` + value(`\s`) + `@`)
	// keys may be keys that stand alone.
	keys = regexp.MustCompile(`[A-Za-z0-9+/_-]{40,}={0,2}`)
)

// Mask returns text with the secrets in it replaced: the values of fields and
// parameters that hold secrets, user names and passwords in URLs, and what looks
// as random as the keys that Azure makes.
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

// shortestKey is less than a key has: those that Azure makes have 43 characters or
// more.
const shortestKey = 40

// guids match GUIDs, which look random and are IDs of instances.
var guids = regexp.MustCompile(`(?i)[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}`)

// looksRandom reports whether a run of letters and digits is a key rather than a
// name or a path: it has capital letters, small ones, and digits in many places.
// In a random text every fourth neighbour of a letter is a digit or the other way
// round; a text that ends as Base64 does needs less of a proof.
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

// Error returns err with a text without secrets. It still wraps err.
func Error(err error) error {
	if err == nil {
		return nil
	}
	return &maskedError{err}
}

type maskedError struct{ err error }

func (e *maskedError) Error() string { return Mask(e.err.Error()) }
func (e *maskedError) Unwrap() error { return e.err }

// Writer returns a writer that masks each text it is given before it goes to w.
func Writer(w io.Writer) io.Writer { return maskedWriter{w} }

type maskedWriter struct{ to io.Writer }

func (w maskedWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.to, Mask(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Logger returns a logger that masks messages, texts and errors before they go to
// l's handler.
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

// longestLine bounds the text that Line returns, in bytes.
const longestLine = 1000

// Line returns the text of err on one line, at most 1,000 bytes, with secrets masked and
// without the rulers that the Azure SDK draws between lines.
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
