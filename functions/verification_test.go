package main

import "testing"

func TestSendSmsChallenge_DrawsCodesOfFourDigits(t *testing.T) {
	seen := map[int]bool{}
	for range 50 {
		code, err := SendSmsChallenge(t.Context(), "+12065550100")
		if err != nil || code < 1000 || code > 9999 {
			t.Fatalf("code %d, %v; want four digits", code, err)
		}
		seen[code] = true
	}
	if len(seen) < 10 {
		t.Errorf("50 codes, but only %d different ones", len(seen))
	}
}
