package azsim

import "testing"

func TestNoise_IncludesPartsOfStackTraces(t *testing.T) {
	a := "panic: no (goroutine 17 [running, synctest bubble 3]: f(0xc00012, {0x2, ...}) +0x45 g00 0x"
	b := "panic: no (goroutine 4 [running, synctest bubble 21]: f(0xc0ffee, {0x2f, ...}) +0x4 g00 0x"
	want := "panic: no (~ [running, synctest ~]: f(~, {~, ...}) +~ g00 0x"
	for _, text := range []string{a, b} {
		if got := withoutNoise(text); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", text, got, want)
		}
	}
}
