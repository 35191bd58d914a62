package expr

import "unicode/utf8"

// partIndex says where the fields of an object are in its text. It is built when the first field is read.
type partIndex struct {
	built  bool
	fields []fieldPlace // none if the text is no object, or must be parsed as a whole
}

type fieldPlace struct {
	key, keyEnd int32
	at          int32 // where its value begins
	value       Value // nil: not parsed yet
}

// member looks up a field in raw, unless that is parsed already. ok is false if it must be parsed.
func (x *partIndex) member(parsed Value, raw []byte, field string) (v Value, found, ok bool) {
	if parsed != nil {
		return nil, false, false
	}
	if !x.built {
		x.built, x.fields = true, placesOf(raw)
	}
	if len(x.fields) == 0 {
		return nil, false, false
	}
	for i := len(x.fields) - 1; i >= 0; i-- { // of two fields of one name the last counts
		place := &x.fields[i]
		if string(raw[place.key:place.keyEnd]) != field {
			continue
		}
		if place.value == nil {
			p := jsonParser{jsonCursor: jsonCursor{raw, int(place.at)}}
			v, err := p.value(1)
			if err != nil {
				return nil, false, false
			}
			place.value = v
		}
		return place.value, true, true
	}
	return nil, false, true
}

// Longer objects, or those with more fields, are parsed: offsets have 32 bits, and fields are searched one by one.
const (
	maxIndexed       = 1 << 30
	maxIndexedFields = 32
)

// placesOf finds the fields of an object, and reads their values no further than necessary. It returns nil for anything
// unusual: text that is no object, no fields or very many, names with escapes or beyond ASCII, deep nesting, and
// invalid JSON that it notices.
func placesOf(raw []byte) []fieldPlace {
	if len(raw) > maxIndexed {
		return nil
	}
	s := jsonCursor{text: raw}
	s.skipSpace()
	if !s.skip('{') {
		return nil
	}
	places := make([]fieldPlace, 0, 12)
	for {
		s.skipSpace()
		if !s.skip('"') {
			return nil
		}
		key := s.pos
		for s.pos < len(raw) && raw[s.pos] != '"' {
			if c := raw[s.pos]; c == '\\' || c < ' ' || c >= utf8.RuneSelf {
				return nil
			}
			s.pos++
		}
		end := s.pos
		if !s.skip('"') {
			return nil
		}
		s.skipSpace()
		if !s.skip(':') {
			return nil
		}
		s.skipSpace()
		if len(places) == maxIndexedFields {
			return nil
		}
		places = append(places, fieldPlace{key: int32(key), keyEnd: int32(end), at: int32(s.pos)})
		if !s.skipValue() {
			return nil
		}
		s.skipSpace()
		if s.skip(',') {
			continue
		}
		if !s.skip('}') {
			return nil
		}
		s.skipSpace()
		if s.pos != len(raw) {
			return nil
		}
		return places
	}
}

// skipValue moves past a value; it returns false if there is none, or it is too deep.
func (c *jsonCursor) skipValue() bool {
	start, depth := c.pos, 0
	for c.pos < len(c.text) {
		switch c.text[c.pos] {
		case '"':
			if !c.skipString() {
				return false
			}
			if depth == 0 {
				return true
			}
			continue
		case '{', '[':
			if depth++; depth >= MaxDepth {
				return false
			}
		case '}', ']':
			if depth == 0 {
				return c.pos > start
			}
			if depth--; depth == 0 {
				c.pos++
				return true
			}
		case ',', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return c.pos > start
			}
		}
		c.pos++
	}
	return false
}

func (c *jsonCursor) skipString() bool {
	for c.pos++; c.pos < len(c.text); c.pos++ {
		switch c.text[c.pos] {
		case '"':
			c.pos++
			return true
		case '\\':
			c.pos++
		}
	}
	return false
}
