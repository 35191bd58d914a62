package domain

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

// UUID is a UUID's 16 bytes in network order (RFC 9562). TenantID, EventID and the other ids are distinct types, so
// that none can be passed where another is expected.
type UUID [16]byte

func (u UUID) String() string {
	var text [36]byte
	return string(u.append(text[:0]))
}

// append appends the canonical form of 36 characters to dst.
func (u UUID) append(dst []byte) []byte {
	dst = hex.AppendEncode(dst, u[:4])
	for _, part := range [][]byte{u[4:6], u[6:8], u[8:10], u[10:]} {
		dst = hex.AppendEncode(append(dst, '-'), part)
	}
	return dst
}

// ParseUUID parses the canonical form of 36 characters, in upper or lower case. It refuses braces, URN prefixes and the
// form without dashes: an id has one spelling in the API.
func ParseUUID(text string) (UUID, error) {
	var u UUID
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return u, fmt.Errorf("%q is not a UUID such as 0190d3a4-5b6c-7def-8123-456789abcdef", Clip(text, 40))
	}
	packed := text[0:8] + text[9:13] + text[14:18] + text[19:23] + text[24:36]
	if _, err := hex.Decode(u[:], []byte(packed)); err != nil {
		return UUID{}, fmt.Errorf("%q is not a UUID such as 0190d3a4-5b6c-7def-8123-456789abcdef", text)
	}
	return u, nil
}

// NewUUID returns a version 7 UUID (RFC 9562, section 5.7): 48 bits of milliseconds, then random bits. So ids made one
// after another are close together in an index.
func NewUUID() UUID {
	var u UUID
	// crypto/rand.Read never fails since Go 1.24: it ends the program if the system has no randomness.
	rand.Read(u[6:])
	var millis [8]byte
	binary.BigEndian.PutUint64(millis[:], uint64(time.Now().UnixMilli()))
	copy(u[:6], millis[2:])
	return u.marked(7)
}

// derivedUUID returns a version 8 UUID (RFC 9562, section 5.8) that depends only on its parts. It is made of the first
// bits of the SHA-256 of the parts. Each part follows its length, so that no two lists of parts produce the same input.
func derivedUUID(parts ...string) UUID {
	hash := sha256.New()
	for _, part := range parts {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		hash.Write(length[:])
		hash.Write([]byte(part))
	}
	var u UUID
	copy(u[:], hash.Sum(nil))
	return u.marked(8)
}

func (u UUID) marked(version byte) UUID {
	u[6] = u[6]&0x0f | version<<4
	u[8] = u[8]&0x3f | 0x80
	return u
}

// Clip shortens a client's text to at most so many bytes, for use in an error message.
func Clip(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
