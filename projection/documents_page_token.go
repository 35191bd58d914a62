package projection

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// pageToken says where a page starts: after which place of which build's documents, in the order of which query. It
// contains values of a document: at most domain.MaxOrderTerms texts of domain.MaxOrderedCharacters each, and an id. So
// clients get it encrypted (tokenSeal).
//
//	byte         bit 0: the projection is shared; bit 1: the place is unordered; from bit 2 on: how many values
//	uvarint      the build's number
//	8 bytes      the query
//	values       a byte with the kind, then the value
//	the rest     the id
type pageToken struct {
	shared bool
	build  int64
	query  queryID
	after  domain.SortKey
}

// maxPageTokenBytes is the longest text of a token, as in the API's contract.
const maxPageTokenBytes = 5000

// queryID identifies a tenant's query to a projection, so that a token only works for the query that it was issued
// for. It is not secret and protects nothing: the key alone decides whose documents are read.
type queryID [8]byte

func queryIDOf(tenant domain.TenantID, name, filter, orderBy string) queryID {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q %q", tenant, name, filter, orderBy))
	return queryID(sum[:8])
}

// The kinds of values in a token. They are separate from domain's, whose numbers may change.
const (
	tokenNull byte = iota
	tokenInt
	tokenDouble
	tokenText
	tokenFalse
	tokenTrue
)

// encode writes the token.
func (t pageToken) encode() []byte {
	flags := byte(len(t.after.Values)) << 2
	if t.shared {
		flags |= 1
	}
	if t.after.Unordered {
		flags |= 2
	}
	raw := binary.AppendUvarint([]byte{flags}, uint64(t.build))
	raw = append(raw, t.query[:]...)
	for _, value := range t.after.Values {
		raw = appendTokenValue(raw, value)
	}
	return append(raw, t.after.ID...)
}

func appendTokenValue(raw []byte, value domain.Scalar) []byte {
	switch value.Kind {
	case domain.ScalarInt:
		return binary.AppendVarint(append(raw, tokenInt), value.Int)
	case domain.ScalarDouble:
		return binary.BigEndian.AppendUint64(append(raw, tokenDouble), math.Float64bits(value.Double))
	case domain.ScalarText:
		return append(binary.AppendUvarint(append(raw, tokenText), uint64(len(value.Text))), value.Text...)
	case domain.ScalarBool:
		if value.Bool {
			return append(raw, tokenTrue)
		}
		return append(raw, tokenFalse)
	}
	return append(raw, tokenNull)
}

var errPageToken = errors.New("not a page token")

// decodePageToken decodes the output of encode, and refuses everything else with errPageToken. The result is a place
// that a document can have.
func decodePageToken(raw []byte) (pageToken, error) {
	t, err := parsePageToken(raw)
	if err != nil || !bytes.Equal(t.encode(), raw) {
		return pageToken{}, errPageToken
	}
	return t, nil
}

func parsePageToken(raw []byte) (t pageToken, err error) {
	if len(raw) == 0 {
		return t, errPageToken
	}
	t.shared, t.after.Unordered = raw[0]&1 != 0, raw[0]&2 != 0
	values := int(raw[0] >> 2)
	build, n := binary.Uvarint(raw[1:])
	if n <= 0 || build == 0 || build > math.MaxInt64 || len(raw) < 1+n+len(t.query) {
		return t, errPageToken
	}
	t.build = int64(build)
	raw = raw[1+n:]
	t.query = queryID(raw[:len(t.query)])
	raw = raw[len(t.query):]
	if values > domain.MaxOrderTerms || values > 0 && t.after.Unordered {
		return t, errPageToken
	}
	for range values {
		var value domain.Scalar
		if value, raw, err = decodeTokenValue(raw); err != nil {
			return t, err
		}
		t.after.Values = append(t.after.Values, value)
	}
	t.after.ID = string(raw)
	return t, domain.CheckDocumentID("", t.after.ID)
}

func decodeTokenValue(raw []byte) (value domain.Scalar, rest []byte, err error) {
	if len(raw) == 0 {
		return value, nil, errPageToken
	}
	kind, raw := raw[0], raw[1:]
	switch kind {
	case tokenNull:
		return value, raw, nil
	case tokenFalse, tokenTrue:
		return domain.Scalar{Kind: domain.ScalarBool, Bool: kind == tokenTrue}, raw, nil
	case tokenInt:
		i, n := binary.Varint(raw)
		if n <= 0 {
			return value, nil, errPageToken
		}
		return domain.Scalar{Kind: domain.ScalarInt, Int: i}, raw[n:], nil
	case tokenDouble:
		if len(raw) < 8 {
			return value, nil, errPageToken
		}
		value = domain.Scalar{Kind: domain.ScalarDouble, Double: math.Float64frombits(binary.BigEndian.Uint64(raw))}
		if math.IsNaN(value.Double) || math.IsInf(value.Double, 0) || domain.ParseNumber(value.JSON()) != value {
			return value, nil, errPageToken // no document has such a number, or its kind differs
		}
		return value, raw[8:], nil
	case tokenText:
		length, n := binary.Uvarint(raw)
		if n <= 0 || length > uint64(len(raw)-n) {
			return value, nil, errPageToken
		}
		end := n + int(length)
		value = domain.Scalar{Kind: domain.ScalarText, Text: string(raw[n:end])}
		if !utf8.ValidString(value.Text) || strings.IndexByte(value.Text, 0) >= 0 || utf8.RuneCountInString(value.Text) > domain.MaxOrderedCharacters {
			return value, nil, errPageToken // no document has such a text, or it has no place in an order
		}
		return value, raw[end:], nil
	}
	return value, nil, errPageToken
}
