package domain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// JSONError says what a JSONScanner refuses, and where.
type JSONError struct {
	Offset  int    // in bytes from the start of the text
	Pointer string // the value at the offset, as a JSON Pointer (RFC 6901); empty: the whole text
	Message string // what is wrong
}

// Error returns what is wrong and where.
func (e *JSONError) Error() string {
	if e.Pointer == "" {
		return fmt.Sprintf("%s (at byte %d)", e.Message, e.Offset)
	}
	return fmt.Sprintf("%s (at %s, byte %d)", e.Message, e.Pointer, e.Offset)
}

// Line returns the line of the error in the scanned text, from 1.
func (e *JSONError) Line(text []byte) int {
	return 1 + bytes.Count(text[:min(e.Offset, len(text))], []byte("\n"))
}

// Refusal returns the error for a request with the scanned text. A text that is valid JSON, but of another kind than
// wanted in this place, makes the request invalid.
func (e *JSONError) Refusal(text []byte, where string) *Error {
	code := CodeInvalidJSON
	if CheckJSON(text) == nil {
		code = CodeInvalidRequest
	}
	return Errorf(code, where, "%s", e)
}

// DecodeJSON is json.Unmarshal with numbers as json.Number, so that none of their digits is lost.
func DecodeJSON(data []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// UnquoteJSON returns the value of a JSON string that a scanner has accepted.
func UnquoteJSON(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var text string
	_ = json.Unmarshal(raw, &text) // the scanner has checked it
	return text
}

// JSONScanner walks over a JSON text (RFC 8259) in one pass and without allocating for values. The append path passes
// the bytes of data and metadata on unchanged. Before anything is written it must know that PostgreSQL's JSONB can keep
// them, and their size there. So besides invalid JSON, the scanner refuses U+0000 in a string, lone surrogates, text
// that is not UTF-8, nesting deeper than MaxJSONDepth, and numbers that are long when printed. JSONB prints 1e300 with
// all its zeros. So a number has at most MaxWholeDigits and MaxFractionDigits, and a value at most MaxPrintedBytes or
// twice its own length, whichever is more. The same limit applies to the whole text.
//
// Each method skips white space and then consumes one token or value. After an error the scanner must no longer be
// used. A scanner is not safe for concurrent use.
type JSONScanner struct {
	text   []byte
	pos    int
	depth  int
	growth int  // upper bound on the bytes that the text so far grows by when JSONB prints it
	stored bool // the text came from JSONB: the length of numbers is not checked
}

// NewJSONScanner returns a scanner at the start of text. The text must not change while the scanner is in use.
func NewJSONScanner(text []byte) *JSONScanner { return &JSONScanner{text: text} }

// NewStoredJSONScanner returns a scanner over a text that the log returned. Earlier releases may have stored longer
// numbers than are accepted now, so their length is not limited.
func NewStoredJSONScanner(text []byte) *JSONScanner { return &JSONScanner{text: text, stored: true} }

// CheckJSON returns an error unless text is one JSON value that the log can keep. The error is a *JSONError about the
// first problem.
func CheckJSON(text []byte) error {
	s := JSONScanner{text: text}
	if _, err := s.Value(); err != nil {
		return err
	}
	return s.End()
}

// Value consumes one value of any kind and returns its bytes as a slice of the text.
func (s *JSONScanner) Value() (json.RawMessage, error) {
	s.space()
	start, growth := s.pos, s.growth
	if err := s.value(); err != nil {
		return nil, err
	}
	if length := s.pos - start; PrintedTooLong(length, s.growth-growth) && !s.stored {
		s.pos = start
		return nil, s.failTooLong(length)
	}
	return json.RawMessage(s.text[start:s.pos:s.pos]), nil
}

// Text consumes a string and returns it with escapes resolved.
func (s *JSONScanner) Text() (string, error) {
	s.space()
	if s.pos >= len(s.text) || s.text[s.pos] != '"' {
		return "", s.fail("expected a string")
	}
	start := s.pos
	if err := s.str(); err != nil {
		return "", err
	}
	return UnquoteJSON(s.text[start:s.pos]), nil
}

// Next returns the first byte of the next token, 0 at the end of the text. It consumes white space only.
func (s *JSONScanner) Next() byte {
	s.space()
	return s.peek()
}

// Offset returns the number of bytes consumed so far.
func (s *JSONScanner) Offset() int { return s.pos }

// Object consumes an object. It calls member with the name of each member; member must consume the value.
func (s *JSONScanner) Object(member func(name string) error) error {
	return s.list('{', '}', "expected an object", func(int) error {
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

// Array consumes an array. It calls element with the index of each element; element must consume the value.
func (s *JSONScanner) Array(element func(index int) error) error {
	return s.list('[', ']', "expected an array", element)
}

// End returns an error if more than white space is left, or if the whole text is too long when printed.
func (s *JSONScanner) End() error {
	s.space()
	if s.pos < len(s.text) {
		return s.fail("unexpected text after the JSON value")
	}
	if PrintedTooLong(len(s.text), s.growth) && !s.stored {
		s.pos = 0
		return s.failTooLong(len(s.text))
	}
	return nil
}

// fail returns an error about the scanner's current place, or one that says that the text ends there.
func (s *JSONScanner) fail(message string) error {
	pointer, within := pointerAt(s.text, s.pos)
	if s.pos >= len(s.text) {
		return s.failTruncated(within)
	}
	return &JSONError{Offset: s.pos, Pointer: pointer, Message: message}
}

// failTruncated returns an error that says that the text ends within something.
func (s *JSONScanner) failTruncated(within string) error {
	s.pos = len(s.text)
	if len(bytes.TrimSpace(s.text)) == 0 {
		return &JSONError{Offset: s.pos, Message: "there is no JSON: the text is empty"}
	}
	pointer, _ := pointerAt(s.text, s.pos)
	return &JSONError{Offset: s.pos, Pointer: pointer, Message: "the JSON ends in the middle of " + within + "; was it cut off on its way?"}
}

func (s *JSONScanner) failTooLong(length int) error {
	return s.fail(fmt.Sprintf("the JSON has more than %d bytes when its numbers are written without exponents, as the log keeps them; send long numbers as strings, or split it",
		max(MaxPrintedBytes, 2*length)))
}

// PrintedTooLong reports whether a JSON value of length bytes is too long when JSONB prints it with up to growth more
// bytes.
func PrintedTooLong(length, growth int) bool {
	return length+growth > MaxPrintedBytes && growth > length
}

// pointerAt returns the JSON Pointer of the value at an offset, and a description of the innermost list or object
// around it. The text up to the offset must be the beginning of a JSON text.
func pointerAt(text []byte, offset int) (pointer, within string) {
	type level struct {
		object bool
		index  int
		name   []byte // in quotes; nil: not read yet
	}
	var levels []level
	for i := 0; i < offset; {
		top := len(levels) - 1
		switch c := text[i]; {
		case c == '{' || c == '[':
			levels = append(levels, level{object: c == '{'})
			i++
		case (c == '}' || c == ']') && top >= 0:
			levels = levels[:top]
			i++
		case c == ',' && top >= 0:
			levels[top].index++
			levels[top].name = nil
			i++
		case c == '"':
			end := endOfString(text[:offset], i)
			if top >= 0 && levels[top].object && levels[top].name == nil && end-i > 1 && text[end-1] == '"' {
				levels[top].name = text[i:end]
			}
			i = end
		default:
			i++
		}
	}
	within = "a value"
	var path []byte
	for _, l := range levels {
		if l.object {
			within = "an object"
		} else {
			within = "an array"
		}
		if len(path) > maxPointerBytes {
			continue
		}
		switch {
		case !l.object:
			path = strconv.AppendInt(append(path, '/'), int64(l.index), 10)
		case l.name != nil:
			path = append(append(path, '/'), pointerEscapes.Replace(UnquoteJSON(l.name))...)
		}
	}
	if len(path) > maxPointerBytes {
		path = append(bytes.ToValidUTF8(path[:maxPointerBytes], nil), "..."...)
	}
	return string(path), within
}

// maxPointerBytes limits the pointer of an error, because names may be as long as a text.
const maxPointerBytes = 200

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

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
		return s.fail("expected a colon")
	}
	s.pos++
	s.growth++ // JSONB prints a space after the colon
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
			return s.fail("expected a comma or the end of the list")
		}
		switch s.text[s.pos] {
		case ',':
			s.pos++
			s.growth++
		case end:
			s.pos++
			s.depth--
			return nil
		default:
			return s.fail("expected a comma or the end of the list")
		}
	}
}

func (s *JSONScanner) value() error {
	s.space()
	if s.pos >= len(s.text) {
		return s.fail("expected a value")
	}
	switch c := s.text[s.pos]; c {
	case '{':
		return s.list('{', '}', "", func(int) error {
			s.space()
			if s.pos >= len(s.text) || s.text[s.pos] != '"' {
				return s.fail("expected a member's name in quotes")
			}
			if err := s.str(); err != nil {
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
		return s.str()
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
	if rest := s.text[s.pos:]; len(rest) < len(word) && string(rest) == word[:len(rest)] {
		return s.failTruncated("a value")
	}
	if len(s.text)-s.pos < len(word) || string(s.text[s.pos:s.pos+len(word)]) != word {
		return s.fail("expected a value: an object, an array, a string, a number, true, false or null")
	}
	s.pos += len(word)
	return nil
}

// maxExponent limits the exponent of a zero, the only number that an exponent does not change.
const maxExponent = 999_999

func (s *JSONScanner) number() error {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	whole := s.digits()
	switch {
	case whole == 0 && s.pos == len(s.text):
		return s.failTruncated("a number")
	case whole == 0:
		s.pos = start
		return s.word("true") // reports what is expected
	case whole > 1 && s.text[s.pos-whole] == '0':
		s.pos -= whole
		return s.fail("a number must not begin with a zero")
	}
	fraction := 0
	if s.peek() == '.' {
		s.pos++
		if fraction = s.digits(); fraction == 0 {
			return s.failDigit("expected a digit after the decimal point")
		}
	}
	if c := s.peek(); c != 'e' && c != 'E' {
		if (whole > MaxWholeDigits || fraction > MaxFractionDigits) && !s.stored {
			return s.failNumber(start)
		}
		return nil
	}
	mantissa := s.pos
	s.pos++
	negative := false
	if c := s.peek(); c == '+' || c == '-' {
		negative = c == '-'
		s.pos++
	}
	from := s.pos
	if s.digits() == 0 {
		return s.failDigit("expected a digit in the exponent")
	}
	exponent := 0
	for _, c := range s.text[from:s.pos] {
		if exponent <= maxExponent {
			exponent = exponent*10 + int(c-'0')
		}
	}
	if negative {
		exponent = -exponent
	}
	// Digits are counted as written: a number that fits only without its trailing zeros is refused.
	printedWhole, printedFraction := max(1, whole+exponent), max(0, fraction-exponent)
	if exponent > 0 && exponent <= maxExponent && isZero(s.text[start:mantissa]) {
		printedWhole = 1
	}
	if (printedWhole > MaxWholeDigits || printedFraction > MaxFractionDigits) && !s.stored {
		return s.failNumber(start)
	}
	// Two more bytes, for the sign and the decimal point that may be there.
	s.growth += max(0, printedWhole+printedFraction+2-(s.pos-start))
	return nil
}

// failNumber returns an error about the number that begins at start.
func (s *JSONScanner) failNumber(start int) error {
	s.pos = start
	return s.fail(fmt.Sprintf("the number is too long: written without an exponent it may have %d digits before the decimal point and %d after it; send it as a string",
		MaxWholeDigits, MaxFractionDigits))
}

func (s *JSONScanner) failDigit(message string) error {
	if s.pos >= len(s.text) {
		return s.failTruncated("a number")
	}
	return s.fail(message)
}

// isZero reports whether a number without its exponent is zero.
func isZero(mantissa []byte) bool {
	for _, c := range mantissa {
		if '1' <= c && c <= '9' {
			return false
		}
	}
	return true
}

// NumberGrowth returns the most bytes by which a number that CheckJSON accepts grows when JSONB prints it.
func NumberGrowth(number []byte) int {
	s := JSONScanner{text: number}
	_ = s.number()
	return s.growth
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

// str consumes a string, quotes included.
func (s *JSONScanner) str() error {
	text := s.text
	i := s.pos + 1
	for i < len(text) {
		switch c := text[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c == '\\':
			s.pos = i
			if err := s.escape(); err != nil {
				return err
			}
			i = s.pos
		case c < ' ':
			s.pos = i
			return s.fail(fmt.Sprintf("the control character 0x%02x must be escaped in a string", c))
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRune(text[i:])
			if r == utf8.RuneError && size <= 1 {
				if !utf8.FullRune(text[i:]) {
					return s.failTruncated("a string")
				}
				s.pos = i
				return s.fail("the text is not UTF-8")
			}
			i += size
		}
	}
	return s.failTruncated("a string")
}

func (s *JSONScanner) escape() error {
	if len(s.text)-s.pos < 2 {
		return s.failTruncated("a string")
	}
	switch s.text[s.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos += 2
		return nil
	case 'u':
	default:
		return s.fail("unknown escape sequence")
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
	if s.pos >= len(s.text) {
		return s.failTruncated("a string")
	}
	if s.peek() == '\\' {
		low, err := s.unit()
		if err == nil && 0xdc00 <= low && low <= 0xdfff {
			s.pos += 6
			return nil
		}
		if s.pos >= len(s.text) {
			return err // the text is truncated
		}
	}
	return s.fail("a high surrogate needs a low one after it")
}

// unit reads the four hexadecimal digits of the \u escape at the scanner's current place.
func (s *JSONScanner) unit() (rune, error) {
	var unit rune
	if rest := s.text[s.pos+1:]; len(rest) == 0 || len(rest) < 5 && rest[0] == 'u' && isHex(rest[1:]) {
		return 0, s.failTruncated("a string")
	}
	if len(s.text)-s.pos < 6 || s.text[s.pos+1] != 'u' {
		return 0, s.fail(`expected four hexadecimal digits after \u`)
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
			return 0, s.fail(`expected four hexadecimal digits after \u`)
		}
	}
	return unit, nil
}

func isHex(digits []byte) bool {
	for _, c := range digits {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F') {
			return false
		}
	}
	return true
}
