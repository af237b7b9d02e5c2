package logstore

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/durablefunctions-go/durablefunctions/durable/internal/reclaim"
	"github.com/google/go-cmp/cmp"
)

func TestGroup_SharesLargeValuesWithTheirRecords(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("x"), reclaim.Large)
	puts := []Record{{"first", []byte("small")}, {"large", large}, {"again", large}, {"removed", nil}, {"last", large[1:]}}
	var g group
	var shared int
	want := NewLayer(testTables, 0)
	for _, p := range puts {
		g.add(plain, []byte(p.Key), p.Value)
		want.Set(plain, p.Key, p.Value)
	}
	encoded := g.encoded()
	for _, part := range encoded {
		if &part[0] == &large[0] {
			shared++
		}
	}
	if shared != 2 {
		t.Errorf("the group shares %d values, want 2", shared)
	}
	if g.size() != encoded.Size() {
		t.Errorf("got size %d, want %d", g.size(), encoded.Size())
	}
	got := NewLayer(testTables, 0)
	if err := got.Replay(1, bytes.Join(encoded, nil)); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(changesOf(want, plain), changesOf(got, plain)) { // a diff of large values takes long
		t.Error("decoded group differs from the encoded changes")
	}
}

func TestParts_BlocksAreCopiesOnlyWhereTwoPartsMeet(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		parts Parts
		want  []string // copies end with an asterisk
	}{
		{Parts{}, []string{""}},
		{Parts{[]byte("ab")}, []string{"ab"}},
		{Parts{[]byte("abc")}, []string{"abc"}},
		{Parts{[]byte("abcd")}, []string{"abc", "d"}},
		{Parts{[]byte("ab"), {}, []byte("c")}, []string{"abc*"}},
		{Parts{[]byte("a"), []byte("b"), []byte("cdefgh")}, []string{"abc*", "def", "gh"}},
		{Parts{[]byte("abc"), []byte("def")}, []string{"abc", "def"}},
	} {
		t.Run(fmt.Sprintf("%q", c.parts), func(t *testing.T) {
			for i, part := range c.parts {
				c.parts[i] = append(make([]byte, 0, 10), part...) // has room for the next part
			}
			before := bytes.Join(c.parts, nil)
			var got []string
			for _, block := range c.parts.Blocks(3) {
				text := string(block)
				if len(block) > 0 && isCopy(block, c.parts) {
					text += "*"
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("blocks (-want +got):\n%s", diff)
			}
			if after := bytes.Join(c.parts, nil); !bytes.Equal(before, after) {
				t.Errorf("the parts are %q now, want %q", after, before)
			}
		})
	}
}

// isCopy reports whether no part contains the first byte of the block.
func isCopy(block []byte, parts Parts) bool {
	for _, part := range parts {
		for i := range part {
			if &part[i] == &block[0] {
				return false
			}
		}
	}
	return true
}

func TestCoder_ReservesSpaceAfterALargeText(t *testing.T) {
	t.Parallel()
	large, small := string(make([]byte, reclaim.Large)), "small"
	for name, code := range map[string]func(c *Coder){
		"text":          func(c *Coder) { c.String(&large) },
		"optional text": func(c *Coder) { c.Text(new(&large)) },
	} {
		t.Run(name, func(t *testing.T) {
			c := Coder{Buf: []byte{1}}
			code(&c)
			before := &c.Buf[0]
			for range 2000 {
				c.String(&small)
			}
			if &c.Buf[0] != before {
				t.Error("the fields after a large text copied it")
			}
		})
	}
}
