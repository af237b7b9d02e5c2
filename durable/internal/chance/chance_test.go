package chance

import (
	"context"
	"io"
	"net/url"
	"strings"
	"testing"
)

func TestFloat64_ComesFromTheSourceOfTheContext(t *testing.T) {
	ctx := With(t.Context(), func(purpose string) float64 { return float64(len(purpose)) / 10 })
	if got := Float64(ctx, "wait"); got != 0.4 {
		t.Errorf("got %v; want 0.4 from the source", got)
	}
}

func TestFloat64_IsRandomWithoutASource(t *testing.T) {
	seen := map[float64]bool{}
	for range 100 {
		f := Float64(t.Context(), "wait")
		if f < 0 || f >= 1 {
			t.Fatalf("got %v, want a number in [0, 1)", f)
		}
		seen[f] = true
	}
	if len(seen) < 50 {
		t.Errorf("100 numbers have %d different values", len(seen))
	}
}

func TestTakeTurn_CallsTheFunctionOfTheContext(t *testing.T) {
	var got []string
	ctx := WithTurns(t.Context(), func(_ context.Context, name string, content io.Reader) {
		text, _ := io.ReadAll(content)
		got = append(got, name+string(text))
	})
	AwaitTurn(ctx, &url.URL{Path: "/a"}, strings.NewReader("!"))
	AwaitTurn(t.Context(), &url.URL{Path: "/b"}, strings.NewReader("?"))
	if len(got) != 1 || got[0] != "/a!" {
		t.Errorf("the calls are %q; want only /a!", got)
	}
}
