package logstore

import (
	"errors"
	"slices"
	"testing"
)

// damagedReader has the records a and x. Records from m to before p cannot be read.
type damagedReader struct{ Reader }

func (damagedReader) Scan(_ Table, from []byte, f func(key []byte, value func() ([]byte, error)) (bool, error)) error {
	for _, key := range []string{"a", "m", "x"} {
		switch {
		case key == "m" && string(from) < "p":
			return &RangeError{From: []byte("m"), To: []byte("p"), Cause: errors.New("damage")}
		case key == "m", key < string(from):
			continue
		}
		if stop, err := f([]byte(key), func() ([]byte, error) { return []byte("base"), nil }); stop || err != nil {
			return err
		}
	}
	return nil
}

// A scan returns the changes before an unreadable range, then the error. A scan from To
// continues.
func TestView_ScansBeforeAndBehindAnUnreadableRange(t *testing.T) {
	t.Parallel()
	layer := NewLayer(testTables, 1)
	for _, key := range []string{"b", "l", "n", "q"} {
		layer.Set(plain, key, []byte("changed"))
	}
	v := &View{base: damagedReader{}, tables: testTables, layers: []*Layer{layer}}
	var keys []string
	add := func(key string, _ []byte) (bool, error) { keys = append(keys, key); return false, nil }
	err := v.Scan(plain, "", add)
	gap, is := errors.AsType[*RangeError](err)
	if !is || !slices.Equal(keys, []string{"a", "b", "l"}) {
		t.Fatalf("the scan returned %q, %v; want a, b and l, and the range", keys, err)
	}
	keys = nil
	if err := v.Scan(plain, string(gap.To), add); err != nil || !slices.Equal(keys, []string{"q", "x"}) {
		t.Errorf("behind the range, the scan returned %q, %v; want q and x", keys, err)
	}
	failure := &RangeError{From: []byte("z"), Cause: errors.New("of the caller")}
	keys = nil
	err = v.Scan(plain, "", func(key string, _ []byte) (bool, error) { keys = append(keys, key); return false, failure })
	if !errors.Is(err, failure) || !slices.Equal(keys, []string{"a"}) {
		t.Errorf("with an error of the caller, the scan returned %q, %v; want a and that error", keys, err)
	}
}
