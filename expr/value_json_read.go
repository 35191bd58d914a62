package expr

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// ParseJSON reads one JSON text (RFC 8259). It keeps no reference to raw. Of several equal keys the last counts.
// Invalid UTF-8 and lone surrogates become U+FFFD.
//
// It is meant for texts that come from a database or were validated on input. It refuses text that is not JSON, or
// nested deeper than MaxDepth, with an error that names the byte.
func ParseJSON(raw []byte) (Value, error) {
	p := jsonParser{jsonCursor: jsonCursor{text: raw}}
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.skipSpace()
	if p.pos != len(p.text) {
		return nil, p.fail("something follows the value")
	}
	return v, nil
}

// ParseDocument reads a document: JSON that is one object.
func ParseDocument(raw []byte) (*Object, error) {
	v, err := ParseJSON(raw)
	if err != nil {
		return nil, err
	}
	object, ok := v.(*Object)
	if !ok {
		return nil, fmt.Errorf("a document is a JSON object, not %s", Describe(v))
	}
	return object, nil
}

// jsonCursor is a place in a JSON text.
type jsonCursor struct {
	text []byte
	pos  int
}

// skipSpace moves past white space.
func (c *jsonCursor) skipSpace() {
	for c.pos < len(c.text) {
		switch c.text[c.pos] {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return
		}
	}
}

// skip moves past the character if it is next.
func (c *jsonCursor) skip(next byte) bool {
	if c.pos < len(c.text) && c.text[c.pos] == next {
		c.pos++
		return true
	}
	return false
}

type jsonParser struct {
	jsonCursor
	keys [16]string // recently seen keys: the objects of a list mostly share them
}

// key reads a key. A recently seen key needs no new memory.
func (p *jsonParser) key() (string, error) {
	end := p.pos + 1
	for end < len(p.text) && p.text[end] != '"' && p.text[end] != '\\' && ' ' <= p.text[end] && p.text[end] < utf8.RuneSelf {
		end++
	}
	raw := p.text[p.pos+1 : end]
	if end == len(p.text) || p.text[end] != '"' || len(raw) == 0 {
		return p.str()
	}
	known := &p.keys[(len(raw)+int(raw[0])+int(raw[len(raw)-1]))%len(p.keys)]
	if *known != string(raw) {
		*known = string(raw)
	}
	p.pos = end + 1
	return *known, nil
}

func (p *jsonParser) fail(message string) error {
	return fmt.Errorf("not JSON: %s at byte %d", message, p.pos)
}

func (p *jsonParser) value(depth int) (Value, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("lists and objects are nested deeper than %d at byte %d", MaxDepth, p.pos)
	}
	p.skipSpace()
	if p.pos == len(p.text) {
		return nil, p.fail("unexpected end, expected a value")
	}
	switch c := p.text[p.pos]; c {
	case '{':
		return p.object(depth)
	case '[':
		return p.list(depth)
	case '"':
		text, err := p.str()
		return String(text), err
	case 't':
		return Bool(true), p.word("true")
	case 'f':
		return Bool(false), p.word("false")
	case 'n':
		return Null{}, p.word("null")
	default:
		return p.number()
	}
}

func (p *jsonParser) word(word string) error {
	if len(p.text)-p.pos < len(word) || string(p.text[p.pos:p.pos+len(word)]) != word {
		return p.fail("expected a value")
	}
	p.pos += len(word)
	return nil
}

func (p *jsonParser) object(depth int) (Value, error) {
	p.pos++
	o := &Object{}
	sorted := true
	p.skipSpace()
	if p.skip('}') {
		return o, nil
	}
	for {
		p.skipSpace()
		if p.pos == len(p.text) || p.text[p.pos] != '"' {
			return nil, p.fail("expected a key")
		}
		key, err := p.key()
		if err != nil {
			return nil, err
		}
		p.skipSpace()
		if !p.skip(':') {
			return nil, p.fail("expected a colon")
		}
		value, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if n := len(o.keys); n > 0 && o.keys[n-1] >= key {
			sorted = false
		}
		if o.keys == nil {
			o.keys, o.values = make([]string, 0, 8), make([]Value, 0, 8)
		}
		o.keys, o.values = append(o.keys, key), append(o.values, value)
		more, err := p.next('}')
		if err != nil {
			return nil, err
		}
		if !more {
			break
		}
	}
	if !sorted {
		o.sortEntries()
	}
	o.measure()
	return o, nil
}

func (p *jsonParser) list(depth int) (Value, error) {
	p.pos++
	var items []Value
	p.skipSpace()
	if p.skip(']') {
		return List{}, nil
	}
	for {
		item, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		more, err := p.next(']')
		if err != nil {
			return nil, err
		}
		if !more {
			return NewList(items...), nil
		}
	}
}

// next consumes the comma between two entries, or the end; it reports whether an entry follows.
func (p *jsonParser) next(end byte) (more bool, err error) {
	p.skipSpace()
	switch {
	case p.skip(','):
		return true, nil
	case p.skip(end):
		return false, nil
	}
	return false, p.fail("expected a comma or the end of the list or object")
}

func (p *jsonParser) number() (Value, error) {
	start := p.pos
	digits := func() int {
		from := p.pos
		for p.pos < len(p.text) && '0' <= p.text[p.pos] && p.text[p.pos] <= '9' {
			p.pos++
		}
		return p.pos - from
	}
	negative := p.skip('-')
	first := p.pos
	n := digits()
	if n == 0 || n > 1 && p.text[first] == '0' {
		p.pos = start
		return nil, p.fail("expected a value")
	}
	if n <= 18 && (p.pos == len(p.text) || p.text[p.pos] != '.' && p.text[p.pos]|' ' != 'e') {
		var i int64
		for _, c := range p.text[first:p.pos] {
			i = i*10 + int64(c-'0')
		}
		if negative {
			i = -i
		}
		return Int(i), nil
	}
	if p.skip('.') && digits() == 0 {
		return nil, p.fail("expected a digit")
	}
	if p.skip('e') || p.skip('E') {
		if !p.skip('+') {
			p.skip('-')
		}
		if digits() == 0 {
			return nil, p.fail("expected a digit")
		}
	}
	return parseNumber(string(p.text[start:p.pos])), nil
}

// str reads a string from its opening quote. Each string gets separate memory: a document keeps few of an event's
// strings, and must not keep the event's whole text alive with them.
func (p *jsonParser) str() (string, error) {
	p.pos++
	start := p.pos
	ascii := true
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"':
			raw := p.text[start:p.pos]
			p.pos++
			if ascii || utf8.Valid(raw) {
				return string(raw), nil
			}
			return string([]rune(string(raw))), nil
		case c == '\\':
			return p.escaped(start)
		case c < ' ':
			return "", p.fail("a control character stands in a string")
		case c >= utf8.RuneSelf:
			ascii = false
		}
		p.pos++
	}
	return "", p.fail("a string does not end")
}

// escaped continues reading at the first backslash of the string that began at start.
func (p *jsonParser) escaped(start int) (string, error) {
	out := append(make([]byte, 0, 2*(p.pos-start)+16), p.text[start:p.pos]...)
	for p.pos < len(p.text) {
		switch c := p.text[p.pos]; {
		case c == '"':
			p.pos++
			if !utf8.Valid(out) {
				return string([]rune(string(out))), nil
			}
			return string(out), nil
		case c < ' ':
			return "", p.fail("a control character stands in a string")
		case c != '\\':
			out = append(out, c)
			p.pos++
		default:
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			out = utf8.AppendRune(out, r)
		}
	}
	return "", p.fail("a string does not end")
}

// escape reads one escape sequence at its backslash, including both halves of a surrogate pair.
func (p *jsonParser) escape() (rune, error) {
	if p.pos+1 >= len(p.text) {
		return 0, p.fail("a string does not end")
	}
	c := p.text[p.pos+1]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		p.pos += 2
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return 0, p.fail("an escape sequence is not one of JSON's")
	}
	r, ok := p.hex(p.pos)
	if !ok {
		return 0, p.fail("expected four hexadecimal digits")
	}
	p.pos += 6
	if utf16.IsSurrogate(r) {
		low, ok := p.hex(p.pos)
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			p.pos += 6
			return pair, nil
		}
		return utf8.RuneError, nil
	}
	return r, nil
}

// hex reads \uXXXX at pos.
func (p *jsonParser) hex(pos int) (rune, bool) {
	if pos+6 > len(p.text) || p.text[pos] != '\\' || p.text[pos+1] != 'u' {
		return 0, false
	}
	r, err := strconv.ParseUint(string(p.text[pos+2:pos+6]), 16, 32)
	return rune(r), err == nil
}
