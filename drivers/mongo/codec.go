package mongo

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// Documents are converted between JSON text and BSON directly, without a tree in between, because this is the hot path.
// bsonspec.org specifies BSON. This package never writes types that JSON lacks (dates, binary data and so on), and
// refuses them if somebody else has stored them.

// The kinds of elements that JSON needs.
const (
	kindDouble = 0x01
	kindText   = 0x02
	kindObject = 0x03
	kindList   = 0x04
	kindBool   = 0x08
	kindNull   = 0x0a
	kindInt32  = 0x10 // never written here
	kindInt64  = 0x12
)

// MaxDataBytes is the maximum size of a document's data in BSON. MongoDB accepts documents of 16 MiB. The rest of the
// row needs up to 1.2 KB, depending on the id, and gets 2 KiB.
const MaxDataBytes = 16<<20 - 2<<10

// MaxDepth is the maximum nesting of objects and lists in a document's data, including its outermost object. MongoDB
// accepts 100 levels, and the row around the data takes one.
const MaxDepth = 99

// encodeDocument appends a document's data, a JSON object, as a BSON document. Errors are *domain.Error with where as
// the place.
func encodeDocument(to, data []byte, where string) ([]byte, error) {
	if err := domain.CheckJSON(data); err != nil {
		return nil, domain.Errorf(domain.CodeInvalidJSON, where, "its data cannot be kept: %s", err)
	}
	e := encoder{text: data, to: to, start: len(to)}
	if e.space(); e.text[e.pos] != '{' {
		return nil, domain.Errorf(domain.CodeInvalidJSON, where, "its data is no JSON object")
	}
	err := e.object()
	if err == nil && len(e.to)-e.start > MaxDataBytes {
		err = errTooLarge
	}
	switch err {
	case nil:
		return e.to, nil
	case errTooDeep:
		return nil, domain.Errorf(domain.CodeInvalidJSON, where,
			"its data cannot be kept: objects and lists are nested more than %d deep, which MongoDB does not take", MaxDepth)
	default:
		return nil, domain.Errorf(domain.CodeTooLarge, where, "it has more than %d bytes in BSON, which MongoDB does not take", MaxDataBytes)
	}
}

var (
	errTooDeep  = errors.New("nested too deep")
	errTooLarge = errors.New("too large")
)

// encoder writes BSON from JSON text that domain.CheckJSON has accepted, so it checks no more than it must.
type encoder struct {
	text    []byte
	pos     int
	to      []byte
	start   int
	depth   int
	members []member // of the open objects, the innermost one's last
}

// member is the position of an object's element in the encoder's output.
type member struct {
	start, nameEnd, end int // nameEnd is after the zero that ends the name
}

func (e *encoder) space() {
	for {
		switch e.text[e.pos] {
		case ' ', '\t', '\n', '\r':
			e.pos++
		default:
			return
		}
	}
}

func (e *encoder) object() error {
	if e.depth++; e.depth > MaxDepth {
		return errTooDeep
	}
	e.pos++ // the brace
	start, mine := len(e.to), len(e.members)
	e.to = append(e.to, 0, 0, 0, 0)
	for e.space(); e.text[e.pos] != '}'; e.space() {
		if e.text[e.pos] == ',' {
			e.pos++
			e.space()
		}
		at := len(e.to)
		e.to = append(e.to, 0)
		e.name()
		nameEnd := len(e.to)
		e.space()
		e.pos++ // the colon
		if err := e.value(at); err != nil {
			return err
		}
		e.members = append(e.members, member{at, nameEnd, len(e.to)})
	}
	e.pos++
	e.dropRepeated(e.members[mine:])
	e.members = e.members[:mine]
	e.depth--
	e.to = append(e.to, 0)
	binary.LittleEndian.PutUint32(e.to[start:], uint32(len(e.to)-start))
	return nil
}

func (e *encoder) list() error {
	if e.depth++; e.depth > MaxDepth {
		return errTooDeep
	}
	e.pos++ // the bracket
	start := len(e.to)
	e.to = append(e.to, 0, 0, 0, 0)
	index := int64(0)
	for e.space(); e.text[e.pos] != ']'; e.space() {
		if e.text[e.pos] == ',' {
			e.pos++
		}
		at := len(e.to)
		e.to = append(strconv.AppendInt(append(e.to, 0), index, 10), 0)
		if err := e.value(at); err != nil {
			return err
		}
		index++
	}
	e.pos++
	e.depth--
	e.to = append(e.to, 0)
	binary.LittleEndian.PutUint32(e.to[start:], uint32(len(e.to)-start))
	return nil
}

// value writes a value after its element's name, and the value's kind at the element's start.
func (e *encoder) value(at int) error {
	if len(e.to)-e.start > MaxDataBytes {
		return errTooLarge
	}
	e.space()
	switch e.text[e.pos] {
	case '{':
		e.to[at] = kindObject
		return e.object()
	case '[':
		e.to[at] = kindList
		return e.list()
	case '"':
		e.to[at] = kindText
		start := len(e.to)
		e.to = append(e.to, 0, 0, 0, 0)
		e.string()
		e.to = append(e.to, 0)
		binary.LittleEndian.PutUint32(e.to[start:], uint32(len(e.to)-start-4))
	case 't':
		e.to[at] = kindBool
		e.to = append(e.to, 1)
		e.pos += len("true")
	case 'f':
		e.to[at] = kindBool
		e.to = append(e.to, 0)
		e.pos += len("false")
	case 'n':
		e.to[at] = kindNull
		e.pos += len("null")
	default:
		e.number(at)
	}
	return nil
}

func (e *encoder) number(at int) {
	start := e.pos
	whole := true
	for ; ; e.pos++ {
		switch c := e.text[e.pos]; {
		case '0' <= c && c <= '9', c == '-':
			continue
		case c == '.', c == 'e', c == 'E', c == '+':
			whole = false
			continue
		}
		break
	}
	text := e.text[start:e.pos]
	if whole && len(text) < len("-999999999999999999") {
		negative := text[0] == '-'
		if negative {
			text = text[1:]
		}
		var n int64
		for _, c := range text {
			n = n*10 + int64(c-'0')
		}
		if negative {
			n = -n
		}
		e.to[at] = kindInt64
		e.to = binary.LittleEndian.AppendUint64(e.to, uint64(n))
		return
	}
	switch number := domain.ParseNumber(string(text)); number.Kind {
	case domain.ScalarInt:
		e.to[at] = kindInt64
		e.to = binary.LittleEndian.AppendUint64(e.to, uint64(number.Int))
	default:
		e.to[at] = kindDouble
		e.to = binary.LittleEndian.AppendUint64(e.to, math.Float64bits(number.Double))
	}
}

// string writes the value of a JSON string, with escapes resolved.
func (e *encoder) string() {
	e.pos++ // the quote
	for {
		plain := bytes.IndexByte(e.text[e.pos:], '"')
		if escape := bytes.IndexByte(e.text[e.pos:e.pos+plain], '\\'); escape >= 0 {
			e.to = append(e.to, e.text[e.pos:e.pos+escape]...)
			e.pos += escape
			e.escape()
			continue
		}
		e.to = append(e.to, e.text[e.pos:e.pos+plain]...)
		e.pos += plain + 1
		return
	}
}

// escape writes the character that an escape sequence represents.
func (e *encoder) escape() {
	c := e.text[e.pos+1]
	e.pos += 2
	switch c {
	case 'b':
		c = '\b'
	case 'f':
		c = '\f'
	case 'n':
		c = '\n'
	case 'r':
		c = '\r'
	case 't':
		c = '\t'
	case 'u':
		char := e.unit()
		if char >= 0xd800 && char < 0xe000 {
			e.pos += 2 // the second half's \u
			char = 0x10000 + (char-0xd800)<<10 + (e.unit() - 0xdc00)
		}
		e.to = utf8.AppendRune(e.to, char)
		return
	}
	e.to = append(e.to, c)
}

// unit reads four hexadecimal digits.
func (e *encoder) unit() (char rune) {
	for range 4 {
		c := e.text[e.pos]
		e.pos++
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c&^0x20 - 'A' + 10
		}
		char = char<<4 | rune(c)
	}
	return char
}

// name writes a member's name as MongoDB stores it, and the zero after it.
func (e *encoder) name() {
	start := len(e.to)
	e.string()
	if name := e.to[start:]; !ordinary(name) {
		e.to = append(e.to[:start], escapeName(string(name))...)
	}
	e.to = append(e.to, 0)
}

// dropRepeated keeps the last of the members that share a name. The members are the last elements written.
func (e *encoder) dropRepeated(members []member) {
	name := func(m member) []byte { return e.to[m.start+1 : m.nameEnd] }
	const few = 12 // up to this number, comparing all pairs is faster than a map
	if len(members) <= few {
		distinct := true
		for i, m := range members {
			for _, later := range members[i+1:] {
				distinct = distinct && !bytes.Equal(name(m), name(later))
			}
		}
		if distinct {
			return
		}
	}
	last := make(map[string]int, len(members))
	for i, m := range members {
		last[string(name(m))] = i
	}
	if len(last) == len(members) {
		return
	}
	drop := make([]bool, len(members)) // decided before the names move
	for i, m := range members {
		drop[i] = last[string(name(m))] != i
	}
	to := members[0].start
	for i, m := range members {
		if !drop[i] {
			to += copy(e.to[to:], e.to[m.start:m.end])
		}
	}
	e.to = e.to[:to]
}

// Some names need escapes. MongoDB can store a name that contains a dot or begins with a dollar sign, but cannot query
// or index it. The empty name cannot be part of a path. White space at either end of a name breaks paths on some
// servers (FerretDB). Every other name is stored unchanged.

// ordinary reports whether a name needs no escape.
func ordinary(name []byte) bool {
	if len(name) == 0 || name[0] == '$' || bytes.IndexByte(name, '.') >= 0 || bytes.IndexByte(name, '%') >= 0 {
		return false
	}
	plain := func(c byte) bool { return ' ' < c && c < utf8.RuneSelf }
	return plain(name[0]) && plain(name[len(name)-1]) || len(bytes.TrimSpace(name)) == len(name)
}

// escapeName encodes a member's name so that it can be a step of a path. The empty name becomes %. In any other name,
// each % and dot, a leading $, and white space at the ends become % and two hexadecimal digits per byte.
func escapeName(name string) string {
	if name == "" {
		return "%"
	}
	if ordinary([]byte(name)) {
		return name
	}
	left := len(name) - len(strings.TrimLeftFunc(name, unicode.IsSpace))
	right := len(strings.TrimRightFunc(name, unicode.IsSpace))
	var escaped strings.Builder
	for i := range len(name) {
		if c := name[i]; c == '%' || c == '.' || c == '$' && i == 0 || i < left || i >= right {
			fmt.Fprintf(&escaped, "%%%02X", c)
		} else {
			escaped.WriteByte(c)
		}
	}
	return escaped.String()
}

// unescapeName reverses escapeName. It leaves anything that is not an escape unchanged.
func unescapeName(name []byte) []byte {
	percent := bytes.IndexByte(name, '%')
	switch {
	case percent < 0:
		return name
	case len(name) == 1:
		return nil
	}
	plain := bytes.Clone(name[:percent])
	for i := percent; i < len(name); i++ {
		if name[i] == '%' && i+2 < len(name) {
			if c, err := strconv.ParseUint(string(name[i+1:i+3]), 16, 8); err == nil {
				plain = append(plain, byte(c))
				i += 2
				continue
			}
		}
		plain = append(plain, name[i])
	}
	return plain
}

// decodeDocument appends a BSON document as a JSON object.
func decodeDocument(to, raw []byte) (json.RawMessage, error) {
	d := decoder{to: to}
	if err := d.elements(raw, '{', '}', 1); err != nil {
		return nil, err
	}
	return d.to, nil
}

// decoder writes JSON from BSON, which it does not trust.
type decoder struct {
	to []byte
}

var errBSON = errors.New("the document is no valid BSON")

// maxDecodedDepth is deeper than any server stores.
const maxDecodedDepth = 300

func (d *decoder) elements(raw []byte, open, end byte, depth int) error {
	if depth > maxDecodedDepth || len(raw) < 5 || int(binary.LittleEndian.Uint32(raw)) != len(raw) || raw[len(raw)-1] != 0 {
		return errBSON
	}
	d.to = append(d.to, open)
	for first, rest := true, raw[4:len(raw)-1]; len(rest) > 0; first = false {
		kind := rest[0]
		zero := bytes.IndexByte(rest[1:], 0)
		if zero < 0 {
			return errBSON
		}
		name := rest[1 : 1+zero]
		rest = rest[2+zero:]
		if !first {
			d.to = append(d.to, ',')
		}
		if open == '{' {
			d.to = domain.AppendText(d.to, unescapeName(name))
			d.to = append(d.to, ':')
		}
		size, err := d.value(kind, rest, depth)
		if err != nil {
			return err
		}
		rest = rest[size:]
	}
	d.to = append(d.to, end)
	return nil
}

// value writes the value that raw begins with, and returns its size.
func (d *decoder) value(kind byte, raw []byte, depth int) (size int, err error) {
	switch kind {
	case kindDouble, kindInt64:
		size = 8
	case kindInt32, kindText, kindObject, kindList:
		size = 4
	case kindBool:
		size = 1
	}
	if len(raw) < size {
		return 0, errBSON
	}
	switch kind {
	case kindNull:
		d.to = append(d.to, "null"...)
	case kindBool:
		d.to = strconv.AppendBool(d.to, raw[0] != 0)
	case kindInt32:
		d.to = strconv.AppendInt(d.to, int64(int32(binary.LittleEndian.Uint32(raw))), 10)
	case kindInt64:
		d.to = strconv.AppendInt(d.to, int64(binary.LittleEndian.Uint64(raw)), 10)
	case kindDouble:
		number := domain.Scalar{Kind: domain.ScalarDouble, Double: math.Float64frombits(binary.LittleEndian.Uint64(raw))}
		if math.IsNaN(number.Double) || math.IsInf(number.Double, 0) {
			return 0, fmt.Errorf("the document has a number that JSON has not: %v", number.Double)
		}
		d.to = append(d.to, number.JSON()...)
	case kindText:
		length := int(int32(binary.LittleEndian.Uint32(raw)))
		size += length
		if length < 1 || len(raw) < size {
			return 0, errBSON
		}
		d.to = domain.AppendText(d.to, raw[4:size-1])
	case kindObject, kindList:
		size = int(int32(binary.LittleEndian.Uint32(raw)))
		if size < 5 || len(raw) < size {
			return 0, errBSON
		}
		if kind == kindObject {
			err = d.elements(raw[:size], '{', '}', depth+1)
		} else {
			err = d.elements(raw[:size], '[', ']', depth+1)
		}
	default:
		return 0, fmt.Errorf("the document has a value that JSON has not: of BSON's kind 0x%02x", kind)
	}
	return size, err
}
