package bloblog

import (
	"bytes"
	"testing"
	"time"

	"github.com/durablefunctions-go/durablefunctions/durable/azurestorage/partitionlog/internal/chain"
	"github.com/durablefunctions-go/durablefunctions/durable/internal/logstore"
)

// blob returns the content of a blob with the given frames.
func blob(c *chain.Chain, frames ...chain.Frame) (b []byte) {
	for _, f := range frames {
		b = c.AppendFrame(b, f)
	}
	return b
}

func header(number uint64, h history) chain.Frame { return numbered(kindHeader, number, h.code) }

func opened(opens, crashes uint64) chain.Frame {
	return numbered(kindOpened, opens, func(c *logstore.Coder) { c.Uint(&crashes) })
}

func TestScan_AcceptsCompleteFramesAndRejectsInvalidOnes(t *testing.T) {
	c := chain.New(nil, "hub", "p00/log-", nil)
	group := func(n uint64) chain.Frame { return chain.Frame{Kind: kindGroup, Number: n, Payload: []byte("g")} }
	part := func(kind byte, n uint64) chain.Frame { return chain.Frame{Kind: kind, Number: n, Payload: []byte("p")} }
	first := header(1, history{})
	for name, tt := range map[string]struct {
		frames []chain.Frame
		last   uint64
		bad    bool
	}{
		"groups":                                {frames: []chain.Frame{first, group(1), group(2)}, last: 2},
		"a group in parts":                      {frames: []chain.Frame{first, part(kindFirst, 1), part(kindMore, 1), part(kindLast, 1)}, last: 1},
		"a group without an end":                {frames: []chain.Frame{first, group(1), part(kindFirst, 2), part(kindMore, 2)}, last: 1},
		"a new owner after an incomplete group": {frames: []chain.Frame{first, part(kindFirst, 1), opened(2, 1), group(1)}, last: 1},
		"the same group started twice":          {frames: []chain.Frame{first, part(kindFirst, 1), part(kindFirst, 1), part(kindLast, 1)}, last: 1},
		"a gap":                                 {frames: []chain.Frame{first, group(2)}, bad: true},
		"a group twice":                         {frames: []chain.Frame{first, group(1), group(1)}, bad: true},
		"a part without a first part":           {frames: []chain.Frame{first, part(kindLast, 1)}, bad: true},
		"a part after a new owner":              {frames: []chain.Frame{first, part(kindFirst, 1), opened(2, 1), part(kindLast, 1)}, bad: true},
		"parts of two groups":                   {frames: []chain.Frame{first, part(kindFirst, 1), part(kindLast, 2)}, bad: true},
		"no header":                             {frames: []chain.Frame{group(1)}, bad: true},
		"two headers":                           {frames: []chain.Frame{first, first}, bad: true},
		"another blob's header":                 {frames: []chain.Frame{header(2, history{})}, bad: true},
		"an unknown frame kind":                 {frames: []chain.Frame{first, {Kind: 77}}, bad: true},
		"a payload that is too long":            {frames: []chain.Frame{first, {Kind: kindClosed, Payload: []byte("x")}}, bad: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := scan{chain: c}
			b := blob(c, tt.frames...)
			n, err := s.read(1, 0, b)
			if (err != nil) != tt.bad || err == nil && (n != int64(len(b)) || s.last != tt.last || s.frames != len(tt.frames)) {
				t.Errorf("read %d of %d bytes up to group %d: %v", n, len(b), s.last, err)
			}
		})
	}
}

// An opening has a higher number than each earlier opening, also if clocks are wrong. The number follows
// the clock, within a limit that leaves 8 million openings.
func TestHistory_NumbersOpeningsByTimeAndInOrder(t *testing.T) {
	day := func(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC) }
	for _, tt := range []struct {
		previous uint64
		now      time.Time
		want     uint64
	}{
		{0, day(1970), 1},
		{7, day(2000).Add(31*time.Minute + 59*time.Second), 8},
		{7, day(2000).Add(36 * time.Minute), 9},
		{7, day(2000).Add(32 * time.Minute), 8},
		{7, day(2026), 3_418_920},
		{3_418_920, day(2026), 3_418_921},
		{4_000_000, day(2026), 4_000_001},
		{7, day(2070), 1 << 23},
		{1 << 23, day(9999), 1<<23 + 1},
	} {
		h := history{opens: tt.previous}
		if h.open(tt.now); h.opens != tt.want {
			t.Errorf("the opening after %d at %v has the number %d, want %d", tt.previous, tt.now, h.opens, tt.want)
		}
	}
}

// The scan result does not depend on where the content is split into reads.
func FuzzScan(f *testing.F) {
	c := chain.New(nil, "hub", "p00/log-", nil)
	b := blob(c, header(1, history{}), opened(1, 0), chain.Frame{Kind: kindGroup, Number: 1, Payload: []byte("group")})
	f.Add(b, 7)
	f.Add(append(b, b[:30]...), 50)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		whole, parts := scan{chain: c}, scan{chain: c}
		n, err := whole.read(1, 0, b)
		at, errParts := parts.read(1, 0, b[:min(len(b), max(0, cut))])
		if errParts == nil && parts.sealed == "" {
			var more int64
			more, errParts = parts.read(1, at, b[at:])
			at += more
		}
		if at != n || (err == nil) != (errParts == nil) || whole.last != parts.last || !bytes.Equal(whole.manifest, parts.manifest) {
			t.Errorf("%d bytes, %v at once; %d bytes, %v in parts", n, err, at, errParts)
		}
	})
}
