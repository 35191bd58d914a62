package domain

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// JSONError is what a JSONScanner refuses, and where.
type JSONError struct {
	Offset  int    // in bytes from the start of the text
	Message string // what is wrong
}

func (e *JSONError) Error() string { return fmt.Sprintf("%s (at byte %d)", e.Message, e.Offset) }

// JSONScanner walks over a JSON text (RFC 8259) in one pass and without allocating for values: the append path hands
// the bytes of data and metadata on as they came, but has to know that PostgreSQL's JSONB can keep them before anything
// is written. So it refuses, beside what is not JSON: U+0000 in a string, lone surrogates, text that is not UTF-8,
// numbers beyond what NUMERIC holds, and nesting deeper than MaxJSONDepth.
//
// The methods consume a token or a value each and skip white space before it. After an error the scanner is of no more
// use. A scanner is for one goroutine.
type JSONScanner struct {
	text  []byte
	pos   int
	depth int
}

// NewJSONScanner returns a scanner at the start of text, which must not change while it is in use.
func NewJSONScanner(text []byte) *JSONScanner { return &JSONScanner{text: text} }

// CheckJSON reports the first thing in text that keeps it from being one JSON value that the log can keep; the error is
// a *JSONError.
func CheckJSON(text []byte) error {
	s := JSONScanner{text: text}
	if _, err := s.Value(); err != nil {
		return err
	}
	return s.End()
}

// Value consumes one value of any kind and returns its bytes, a part of the text.
func (s *JSONScanner) Value() (json.RawMessage, error) {
	s.space()
	start := s.pos
	if err := s.value(); err != nil {
		return nil, err
	}
	return json.RawMessage(s.text[start:s.pos:s.pos]), nil
}

// Text consumes a string and returns what it means, escapes resolved.
func (s *JSONScanner) Text() (string, error) {
	s.space()
	if s.pos >= len(s.text) || s.text[s.pos] != '"' {
		return "", s.fail("a string is wanted here")
	}
	start := s.pos
	escaped, err := s.str()
	if err != nil {
		return "", err
	}
	if !escaped {
		return string(s.text[start+1 : s.pos-1]), nil
	}
	var text string
	if err := json.Unmarshal(s.text[start:s.pos], &text); err != nil {
		return "", &JSONError{Offset: start, Message: err.Error()}
	}
	return text, nil
}

// Object consumes an object. For each member it calls member with the name; member must consume the value.
func (s *JSONScanner) Object(member func(name string) error) error {
	return s.list('{', '}', "an object is wanted here", func(int) error {
		name, err := s.Text()
		if err != nil {
			return err
		}
		if err := s.colon(); err != nil {
			return err
		}
		return member(name)
	})
}

// Array consumes an array. For each element it calls element with the index; element must consume the value.
func (s *JSONScanner) Array(element func(index int) error) error {
	return s.list('[', ']', "an array is wanted here", element)
}

// End reports an error unless only white space is left.
func (s *JSONScanner) End() error {
	s.space()
	if s.pos < len(s.text) {
		return s.fail("there is more behind the end of the JSON value")
	}
	return nil
}

func (s *JSONScanner) fail(message string) error {
	if s.pos >= len(s.text) {
		message = "the JSON text ends too early: " + message
	}
	return &JSONError{Offset: s.pos, Message: message}
}

func (s *JSONScanner) space() {
	for s.pos < len(s.text) {
		switch s.text[s.pos] {
		case ' ', '\t', '\n', '\r':
			s.pos++
		default:
			return
		}
	}
}

func (s *JSONScanner) colon() error {
	s.space()
	if s.pos >= len(s.text) || s.text[s.pos] != ':' {
		return s.fail("a colon is wanted here")
	}
	s.pos++
	return nil
}

func (s *JSONScanner) list(open, end byte, wanted string, item func(index int) error) error {
	s.space()
	if s.pos >= len(s.text) || s.text[s.pos] != open {
		return s.fail(wanted)
	}
	if s.depth++; s.depth > MaxJSONDepth {
		return s.fail(fmt.Sprintf("arrays and objects are nested more than %d deep", MaxJSONDepth))
	}
	s.pos++
	s.space()
	if s.pos < len(s.text) && s.text[s.pos] == end {
		s.pos++
		s.depth--
		return nil
	}
	for index := 0; ; index++ {
		if err := item(index); err != nil {
			return err
		}
		s.space()
		if s.pos >= len(s.text) {
			return s.fail("a comma or the end of the list is wanted")
		}
		switch s.text[s.pos] {
		case ',':
			s.pos++
		case end:
			s.pos++
			s.depth--
			return nil
		default:
			return s.fail("a comma or the end of the list is wanted here")
		}
	}
}

func (s *JSONScanner) value() error {
	s.space()
	if s.pos >= len(s.text) {
		return s.fail("a value is wanted")
	}
	switch c := s.text[s.pos]; c {
	case '{':
		return s.list('{', '}', "", func(int) error {
			s.space()
			if s.pos >= len(s.text) || s.text[s.pos] != '"' {
				return s.fail("a member's name in quotes is wanted here")
			}
			if _, err := s.str(); err != nil {
				return err
			}
			if err := s.colon(); err != nil {
				return err
			}
			return s.value()
		})
	case '[':
		return s.list('[', ']', "", func(int) error { return s.value() })
	case '"':
		_, err := s.str()
		return err
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

func (s *JSONScanner) word(word string) error {
	if len(s.text)-s.pos < len(word) || string(s.text[s.pos:s.pos+len(word)]) != word {
		return s.fail("a value is wanted here: an object, an array, a string, a number, true, false or null")
	}
	s.pos += len(word)
	return nil
}

// The largest powers of ten that PostgreSQL's NUMERIC holds: digits before and behind the decimal point.
const (
	numericWhole    = 131072
	numericFraction = 16383
)

func (s *JSONScanner) number() error {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	whole := s.digits()
	switch {
	case whole == 0:
		s.pos = start
		return s.word("true") // says what is wanted
	case whole > 1 && s.text[s.pos-whole] == '0':
		s.pos -= whole
		return s.fail("a number must not begin with a zero")
	}
	fraction := 0
	if s.peek() == '.' {
		s.pos++
		if fraction = s.digits(); fraction == 0 {
			return s.fail("a digit is wanted behind the decimal point")
		}
	}
	exponent := 0
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		negative := false
		if c := s.peek(); c == '+' || c == '-' {
			negative = c == '-'
			s.pos++
		}
		from := s.pos
		if s.digits() == 0 {
			return s.fail("a digit is wanted in the exponent")
		}
		for _, c := range s.text[from:s.pos] {
			if exponent < 1_000_000 {
				exponent = exponent*10 + int(c-'0')
			}
		}
		if negative {
			exponent = -exponent
		}
	}
	// The bounds are those of the digits as written: a number that only just fits when its zeros are dropped is refused.
	if whole+exponent > numericWhole || fraction-exponent > numericFraction {
		s.pos = start
		return s.fail("the number is out of range: JSONB keeps 131072 digits before the decimal point and 16383 behind it")
	}
	return nil
}

func (s *JSONScanner) peek() byte {
	if s.pos < len(s.text) {
		return s.text[s.pos]
	}
	return 0
}

func (s *JSONScanner) digits() int {
	start := s.pos
	for s.pos < len(s.text) && '0' <= s.text[s.pos] && s.text[s.pos] <= '9' {
		s.pos++
	}
	return s.pos - start
}

// str consumes a string, quotes included, and reports whether it has escapes.
func (s *JSONScanner) str() (escaped bool, err error) {
	text := s.text
	i := s.pos + 1
	for i < len(text) {
		switch c := text[i]; {
		case c == '"':
			s.pos = i + 1
			return escaped, nil
		case c == '\\':
			escaped = true
			s.pos = i
			if err := s.escape(); err != nil {
				return escaped, err
			}
			i = s.pos
		case c < ' ':
			s.pos = i
			return escaped, s.fail(fmt.Sprintf("the control character 0x%02x must be escaped in a string", c))
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size <= 1 {
				s.pos = i
				return escaped, s.fail("the text is not UTF-8")
			}
			i += size
		}
	}
	s.pos = len(text)
	return escaped, s.fail("a string is not closed")
}

func (s *JSONScanner) escape() error {
	if len(s.text)-s.pos < 2 {
		s.pos = len(s.text)
		return s.fail("a string is not closed")
	}
	switch s.text[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
	default:
		return s.fail("this escape is not known in JSON")
	}
	unit, err := s.unit()
	switch {
	case err != nil:
		return err
	case unit == 0:
		return s.fail(`\u0000 cannot be kept: PostgreSQL's JSONB has no U+0000`)
	case unit < 0xd800 || unit > 0xdfff:
		s.pos += 6
		return nil
	case unit > 0xdbff:
		return s.fail("a low surrogate stands alone; it needs a high one before it")
	}
	s.pos += 6
	if s.peek() == '\\' {
		if low, err := s.unit(); err == nil && 0xdc00 <= low && low <= 0xdfff {
			s.pos += 6
			return nil
		}
	}
	return s.fail("a high surrogate needs a low one behind it")
}

// unit reads the four hexadecimal digits of the \u escape at the scanner's place.
func (s *JSONScanner) unit() (rune, error) {
	var unit rune
	if len(s.text)-s.pos < 6 || s.text[s.pos+1] != 'u' {
		return 0, s.fail(`four hexadecimal digits are wanted behind \u`)
	}
	for _, c := range s.text[s.pos+2 : s.pos+6] {
		unit <<= 4
		switch {
		case '0' <= c && c <= '9':
			unit |= rune(c - '0')
		case 'a' <= c && c <= 'f':
			unit |= rune(c - 'a' + 10)
		case 'A' <= c && c <= 'F':
			unit |= rune(c - 'A' + 10)
		default:
			return 0, s.fail(`four hexadecimal digits are wanted behind \u`)
		}
	}
	return unit, nil
}
