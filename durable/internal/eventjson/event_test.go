package eventjson_test

import (
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/eventjson"
)

func TestCutAssembly_IgnoresCommasInBrackets(t *testing.T) {
	for in, want := range map[string]string{
		"A.B":                       "A.B",
		"A.B, Asm":                  "A.B",
		"D`2[[X, a],[Y, b]], Asm":   "D`2[[X, a],[Y, b]]",
		"D`2[[X, a],[Y, b]]":        "D`2[[X, a],[Y, b]]",
		"]], Asm":                   "]]",
		"":                          "",
		"A.B,Asm, Version=1.0.0.0,": "A.B",
	} {
		if got := eventjson.CutAssembly(in); got != want {
			t.Errorf("CutAssembly(%q) = %q; want %q", in, got, want)
		}
	}
}
