package testshare

import "testing"

func TestShare_EachCaseIsInOneShare(t *testing.T) {
	for i := range 10 {
		in := 0
		for _, text := range []string{"1/3", "2/3", "3/3"} {
			var s Share
			if err := s.Set(text); err != nil {
				t.Fatal(err)
			}
			if s.Has(i) {
				in++
			}
		}
		if in != 1 {
			t.Errorf("case %d is in %d shares, want 1", i, in)
		}
	}
}

func TestShare_RejectsInvalidTexts(t *testing.T) {
	for _, text := range []string{"", "1", "0/2", "3/2", "-1/2", "1/2/3", "1/2x", " 1/2", "01/2", "a/b"} {
		s := Share{1, 1}
		if err := s.Set(text); err == nil {
			t.Errorf("%q is accepted as %v", text, s)
		}
		if s != (Share{1, 1}) {
			t.Errorf("%q changes the share to %v", text, s)
		}
	}
}
