package chain

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func chains() (ours, theirs *Chain) {
	return New(nil, "hub", "p00/log-", nil), New(nil, "hub", "p01/log-", nil)
}

func TestDecodeFrame_ReturnsAppendedFrames(t *testing.T) {
	ours, theirs := chains()
	want := []Frame{{Kind: 1, Number: 1 << 40, Payload: []byte("payload")}, {Kind: 255, Payload: []byte{}}, {Kind: 2, Number: 3, Payload: bytes.Repeat([]byte("x"), 70000)}}
	var b []byte
	for _, f := range want {
		b = ours.AppendFrame(b, f)
	}
	if _, _, err := theirs.DecodeFrame(b); !errors.Is(err, errChecksum) {
		t.Errorf("decoding a frame of another partition: %v; want a checksum error", err)
	}
	var got []Frame
	for rest := b; len(rest) > 0; {
		f, after, err := ours.DecodeFrame(rest)
		if err != nil {
			t.Fatal(err)
		}
		got, rest = append(got, f), after
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

func TestDecodeFrame_DistinguishesTruncatedFromDamagedFrames(t *testing.T) {
	ours, _ := chains()
	whole := ours.AppendFrame(nil, Frame{Kind: 1, Number: 2, Payload: []byte("payload")})
	for n := range whole {
		if _, _, err := ours.DecodeFrame(whole[:n]); !errors.Is(err, ErrTruncated) {
			t.Errorf("decoding the first %d bytes: %v; want ErrTruncated", n, err)
		}
	}
	for n := range whole {
		b := bytes.Clone(whole)
		b[n] ^= 0x40
		if f, _, err := ours.DecodeFrame(b); err == nil {
			t.Errorf("decoding with byte %d changed: got %v, want an error", n, f)
		}
	}
}

func FuzzDecodeFrame(f *testing.F) {
	ours, _ := chains()
	f.Add([]byte{})
	f.Add(ours.AppendFrame(nil, Frame{Kind: 1, Number: 2, Payload: []byte("payload")}))
	f.Add(append([]byte(magic), bytes.Repeat([]byte{255}, 40)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			frame, rest, err := ours.DecodeFrame(b)
			if err != nil {
				return
			}
			if again := ours.AppendFrame(nil, frame); !bytes.Equal(again, b[:len(b)-len(rest)]) {
				t.Fatalf("%x was decoded as %+v, which encodes to %x", b, frame, again)
			}
			b = rest
		}
	})
}
