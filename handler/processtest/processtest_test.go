package processtest

import (
	"fmt"
	"strings"
	"testing"
)

func TestLast_KeepsTheLastHundredLines(t *testing.T) {
	t.Parallel()
	var all []string
	for i := range 150 {
		all = append(all, fmt.Sprintf("line %d\n", i))
	}
	for _, tt := range []struct{ log, want string }{
		{"", ""},
		{"a", "a"},
		{"a\nb\n", "a\nb\n"},
		{strings.Join(all, ""), strings.Join(all[50:], "")},
		{strings.Join(all, "") + "cut off", strings.Join(all[51:], "") + "cut off"},
	} {
		if got := LastLines(tt.log); got != tt.want {
			t.Errorf("Last of %d bytes: %q, want %q", len(tt.log), got, tt.want)
		}
	}
}
