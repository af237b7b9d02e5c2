package azurestorage

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUndecodable_TruncatesACauseBetweenCharacters(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("é", maxUndecodableCause), "x" + strings.Repeat("é", maxUndecodableCause)} {
		var u undecodable
		u.record("q", "1", errors.New(text))
		got := u.all()[0].Cause
		if !utf8.ValidString(got) || len(got) > maxUndecodableCause+len("…") || !strings.HasPrefix(text, strings.TrimSuffix(got, "…")) {
			t.Errorf("the cause of %.4q… is %q, want a prefix of whole characters", text, got)
		}
	}
}
