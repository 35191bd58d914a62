package socket

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"
)

// Messages of any size are frames according to RFC 6455, one after another.
func TestMessagesAreFrames(t *testing.T) {
	t.Parallel()
	sizes := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(65_500, 65_600), rapid.IntRange(0, 200_000))
	rapid.Check(t, func(r *rapid.T) {
		var b []byte
		var want [][]byte
		for i := range rapid.IntRange(1, 4).Draw(r, "messages") {
			text := bytes.Repeat([]byte{byte('a' + i)}, sizes.Draw(r, "size"))
			want = append(want, text)
			b = AppendMessage(b, text)
		}
		for _, text := range want {
			if b[0] != 0x81 {
				r.Fatalf("the frame begins %x", b[0])
			}
			size, header := int(b[1]), 2
			switch size {
			case 126:
				size, header = int(binary.BigEndian.Uint16(b[2:])), 4
			case 127:
				size, header = int(binary.BigEndian.Uint64(b[2:])), 10
			}
			if size != len(text) || header > 2 && size < 126 || header > 4 && size < 1<<16 {
				r.Fatalf("a message of %d bytes says that it has %d, in %d bytes", len(text), size, header)
			}
			if !bytes.Equal(b[header:header+size], text) {
				r.Fatalf("a message of %d bytes is another one", size)
			}
			b = b[header+size:]
		}
		if len(b) > 0 {
			r.Fatalf("%d bytes are left", len(b))
		}
	})
}
