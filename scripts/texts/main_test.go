package main

import (
	"slices"
	"testing"
)

func TestExtract_FindsErrorsLogMessagesAndPanics(t *testing.T) {
	texts, err := extract("a.go", []byte(`package a

func f() {
	_ = errors.New("one")
	_ = fmt.Errorf("two: "+
		"%w", err)
	log.WarnContext(ctx, "three", "key", 1)
	panic(fmt.Sprintf("four %d", n))
	l.LogAttrs(ctx, slog.LevelInfo, "five")
	fmt.Println("not listed")
	log.Error(message + " six")
}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []text{{"error", 4, "one"}, {"error", 5, "two: %w"}, {"warn", 7, "three"}, {"panic", 8, "four %d"}, {"log", 9, "five"}, {"error", 11, "… six"}}
	if !slices.Equal(texts, want) {
		t.Errorf("got %+v, want %+v", texts, want)
	}
}
