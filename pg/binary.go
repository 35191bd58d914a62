package pg

import (
	"bytes"
	bigendian "encoding/binary"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
)

// The binary forms of PostgreSQL's types, written and read without reflection. A parameter of an append is an array
// with one element per event. Encoding it takes a good part of the service's own time.

// epoch is 2000-01-01, from which PostgreSQL counts microseconds, in Unix seconds.
const epoch = 946684800

// AppendArrayHeader begins a one-dimensional array that may hold nulls; its elements follow.
func AppendArrayHeader(b []byte, element uint32, length int) []byte {
	if length == 0 {
		b = bigendian.BigEndian.AppendUint32(b, 0) // no dimension
		b = bigendian.BigEndian.AppendUint32(b, 0)
		return bigendian.BigEndian.AppendUint32(b, element)
	}
	b = bigendian.BigEndian.AppendUint32(b, 1)
	b = bigendian.BigEndian.AppendUint32(b, 1) // may hold nulls
	b = bigendian.BigEndian.AppendUint32(b, element)
	b = bigendian.BigEndian.AppendUint32(b, uint32(length))
	return bigendian.BigEndian.AppendUint32(b, 1) // subscripts begin at 1
}

func appendNullElement(b []byte) []byte {
	return bigendian.BigEndian.AppendUint32(b, 0xffffffff)
}

// AppendUUIDElement appends a uuid to an array.
func AppendUUIDElement(b []byte, id [16]byte) []byte {
	b = bigendian.BigEndian.AppendUint32(b, 16)
	return append(b, id[:]...)
}

// AppendInt8Element appends a bigint to an array.
func AppendInt8Element(b []byte, n int64) []byte {
	b = bigendian.BigEndian.AppendUint32(b, 8)
	return bigendian.BigEndian.AppendUint64(b, uint64(n))
}

// AppendTrueElement appends a boolean to an array: true, or null for false.
func AppendTrueElement(b []byte, is bool) []byte {
	if !is {
		return appendNullElement(b)
	}
	return append(bigendian.BigEndian.AppendUint32(b, 1), 1)
}

// AppendTextElement appends a text to an array.
func AppendTextElement(b []byte, text string) []byte {
	b = bigendian.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

// AppendJSONElement writes a jsonb: the version of its binary form, 1, followed by the text. A nil text is a null.
func AppendJSONElement(b, json []byte) []byte {
	if json == nil {
		return appendNullElement(b)
	}
	b = bigendian.BigEndian.AppendUint32(b, uint32(len(json)+1))
	return AppendJSON(b, json)
}

// AppendJSON appends a jsonb in its binary form.
func AppendJSON(b, json []byte) []byte {
	b = append(b, 1)
	return append(b, json...)
}

// AppendTimeElement writes a timestamptz; the zero time is a null.
func AppendTimeElement(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return appendNullElement(b)
	}
	return AppendInt8Element(b, micros(t))
}

func micros(t time.Time) int64 { return (t.Unix()-epoch)*1e6 + int64(t.Nanosecond()/1e3) }

// UUIDParam returns a parameter of type uuid. It shares no memory with the caller's id.
func UUIDParam(id [16]byte) []byte { return id[:] }

// Int8Param returns a parameter of type bigint.
func Int8Param(n int64) []byte { return bigendian.BigEndian.AppendUint64(nil, uint64(n)) }

// Int4Param returns a parameter of type integer. n must fit into 32 bits.
func Int4Param(n int) []byte { return bigendian.BigEndian.AppendUint32(nil, uint32(int32(n))) }

// Int8sParam returns a parameter of type bigint[].
func Int8sParam(numbers []int64) []byte {
	b := AppendArrayHeader(make([]byte, 0, 20+12*len(numbers)), pgtype.Int8OID, len(numbers))
	for _, n := range numbers {
		b = AppendInt8Element(b, n)
	}
	return b
}

// TimeParam returns a parameter of type timestamptz, to the microsecond.
func TimeParam(t time.Time) []byte { return Int8Param(micros(t)) }

// TextsParam returns a parameter of type text[].
func TextsParam(texts []string) []byte {
	size := 20
	for _, text := range texts {
		size += 4 + len(text)
	}
	b := AppendArrayHeader(make([]byte, 0, size), pgtype.TextOID, len(texts))
	for _, text := range texts {
		b = AppendTextElement(b, text)
	}
	return b
}

// Int8Value reads a bigint; a null is 0.
func Int8Value(b []byte) int64 {
	if len(b) != 8 {
		return 0 // a null
	}
	return int64(bigendian.BigEndian.Uint64(b))
}

// TimeValue reads a timestamptz as UTC; a null is the zero time.
func TimeValue(b []byte) time.Time {
	if len(b) != 8 {
		return time.Time{}
	}
	n := int64(bigendian.BigEndian.Uint64(b))
	return time.Unix(epoch+n/1e6, n%1e6*1e3).UTC()
}

// BytesValue copies a bytea; a null is nil.
func BytesValue(b []byte) []byte { return bytes.Clone(b) }

// JSONValue returns the text of a jsonb, which follows the version of its binary form. The text is valid as long as b
// is.
func JSONValue(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[1:]
}

// CleanText removes from a text for people what PostgreSQL cannot store.
func CleanText(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "�"), "\x00", "")
}

// UUIDValue reads a uuid; a null is the zero id.
func UUIDValue(b []byte) (id [16]byte) {
	copy(id[:], b)
	return id
}

// BoolValue reads a boolean; a null is false.
func BoolValue(b []byte) bool { return len(b) == 1 && b[0] == 1 }

// TenantParam returns a tenant's id as a parameter of type uuid.
func TenantParam(tenant domain.TenantID) []byte { return UUIDParam(tenant) }
