package problem

import (
	"crypto/rand"
	"encoding/hex"
	"strconv"
	"sync/atomic"
)

// HeaderRequestID names a request, in the log as well.
const HeaderRequestID = "X-Request-Id"

// PlainToken reports whether a client's request id is safe to copy into answers and logs.
func PlainToken(text string) bool {
	if text == "" || len(text) > 64 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.') {
			return false
		}
	}
	return true
}

// RequestIDs creates request ids: a random word for this process, and a number.
type RequestIDs struct {
	process string
	last    *atomic.Uint64
}

func NewRequestIDs() RequestIDs {
	var word [5]byte
	rand.Read(word[:])
	return RequestIDs{process: hex.EncodeToString(word[:]) + "-", last: new(atomic.Uint64)}
}

func (r RequestIDs) Next() string { return r.process + strconv.FormatUint(r.last.Add(1), 36) }
