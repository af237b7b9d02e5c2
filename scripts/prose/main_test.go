package main

import "testing"

func TestLimits_DependOnTheSize(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		f                figures
		matches, tooLong int
	}{
		{figures{name: "small", lines: 249}, 2, 0},
		{figures{name: "middle", lines: 250}, 2, 0},
		{figures{name: "large", lines: 1000, tooLong: 3}, 8, 3}, // comments may have long sentences
		{figures{name: "README.md", words: 900, sentences: 100}, 0, 2},
		{figures{name: "short.md", words: 10, sentences: 2}, 1, 1},
		{figures{name: "long.md", words: 2001, sentences: 100}, 3, 3},
	} {
		test.f.setLimits()
		if test.f.limit != test.matches || test.f.limitTooLong != test.tooLong {
			t.Errorf("%s: at most %d matches and %d long sentences, want %d and %d", test.f.name, test.f.limit, test.f.limitTooLong, test.matches, test.tooLong)
		}
	}
}

func TestFigures_CountCommentsAndProse(t *testing.T) {
	t.Parallel()
	f := figures{}
	f.add("a.go", "// One.\n// Two.\npackage a // three\n\n/* four\nfive */\nvar s = \"// no comment\"\n", []alert{{Check: "Durable.Cleft"}, {Check: "Durable.SentenceLength"}})
	if f.lines != 5 || f.matches != 1 || f.tooLong != 1 {
		t.Errorf("counted %+v, want 5 lines, 1 match and 1 long sentence", f)
	}
	f = figures{}
	f.add("a.md", "Two sentences here. Yes!\n\n```go\nno. prose. here.\n```\nEnd.\n", nil)
	if f.words != 5 || f.sentences != 3 {
		t.Errorf("counted %+v, want 5 words in 3 sentences", f)
	}
}
