package expr

import (
	"fmt"
	"strings"
)

// measure is what is known of the values inside a list or object without visiting them. It is updated cheaply as
// values are created, so that each folded document is known to be storable.
type measure struct {
	bytes   int  // as JSON; at least as many as AppendJSON writes
	depth   int  // how deep lists and objects are nested
	foreign bool // some value has no JSON kind, so settle has work to do
	nul     bool // some string contains U+0000, which databases cannot store
}

// add adds a value after those that are measured already, with the comma before it.
func (m *measure) add(other measure) {
	m.bytes += other.bytes + 1
	m.depth = max(m.depth, other.depth)
	m.foreign = m.foreign || other.foreign
	m.nul = m.nul || other.nul
}

// join adds everything inside another list or object.
func (m *measure) join(other measure) {
	m.add(other)
	m.bytes--
}

// addKey adds the key of an entry, with the colon after it.
func (m *measure) addKey(key string) {
	m.bytes += stringLength(key) + 1
	m.nul = m.nul || strings.IndexByte(key, 0) >= 0
}

// Upper bounds for values that are not worth formatting just to measure them.
const (
	doubleLength   = 25 // the longest: -2.2250738585072014e-308
	timeLength     = 37 // a timestamp or duration in quotes
	intLength      = 20
	containerBytes = 2
)

// measureOf measures a value. Only strings take time, in proportion to their length.
func measureOf(v Value) measure {
	switch v := v.(type) {
	case Null, Bool:
		return measure{bytes: len("false")}
	case Int:
		if v >= 0 && v < 1000 {
			return measure{bytes: 3}
		}
		return measure{bytes: intLength}
	case Double:
		return measure{bytes: doubleLength}
	case String:
		return measure{bytes: stringLength(string(v)), nul: strings.IndexByte(string(v), 0) >= 0}
	case List:
		m := v.inside
		m.depth, m.bytes = m.depth+1, m.bytes+containerBytes
		return m
	case *Object:
		m := v.inside
		m.depth, m.bytes = m.depth+1, m.bytes+containerBytes
		return m
	}
	return measure{bytes: timeLength, foreign: true}
}

// stringLength is the length of a string as JSON.
func stringLength(text string) int {
	n := len(text) + 2
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"', c == '\\', c == '\n', c == '\r', c == '\t':
			n++
		case c < ' ':
			n += 5
		}
	}
	return n
}

// fault says why a value of this measure cannot be a document.
func (m measure) fault() *EvalError {
	switch {
	case m.bytes > MaxDocumentBytes:
		return &EvalError{Kind: KindMemory, Message: fmt.Sprintf("the result is larger than %d MiB as JSON, which is what a document may have", MaxDocumentBytes>>20)}
	case m.depth > MaxDepth:
		return &EvalError{Kind: KindResult, Message: fmt.Sprintf("lists and objects are nested deeper than %d in the result", MaxDepth)}
	case m.nul:
		return &EvalError{Kind: KindResult, Message: "a string in the result has the character U+0000, which databases cannot keep"}
	}
	return nil
}

// Size returns about how many bytes v has as JSON: at least as many as AppendJSON writes, except for an event. It takes
// time for a string only, and that in proportion to its length.
func Size(v Value) int { return measureOf(v).bytes }
