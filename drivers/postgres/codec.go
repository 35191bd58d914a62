package postgres

import (
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/manifold-es/manifold/domain"
)

// Parameters and results are in PostgreSQL's binary format, and this package encodes and decodes them itself. Arrays of
// tens of thousands of elements are the hot path, and are written from the documents straight into one buffer.

// The types of array elements (pg_type.dat).
const (
	oidInt8  = 20
	oidText  = 25
	oidJSONB = 3802
)

// jsonbVersion is the byte that precedes the text in the binary format of jsonb.
const jsonbVersion = 1

func encodeTenant(tenant domain.TenantID) []byte { return tenant[:] }

func encodeInt(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func encodeTexts(texts []string) []byte {
	return encodeArray(oidText, len(texts), func(i int) int { return len(texts[i]) },
		func(to []byte, i int) []byte { return append(to, texts[i]...) })
}

// encodeDocuments returns three arrays: ids, versions, data.
func encodeDocuments(documents []domain.Document) [][]byte {
	ids := encodeArray(oidText, len(documents), func(i int) int { return len(documents[i].ID) },
		func(to []byte, i int) []byte { return append(to, documents[i].ID...) })
	versions := encodeArray(oidInt8, len(documents), func(int) int { return 8 },
		func(to []byte, i int) []byte { return binary.BigEndian.AppendUint64(to, uint64(documents[i].Version)) })
	data := encodeArray(oidJSONB, len(documents), func(i int) int { return 1 + len(documents[i].Data) },
		func(to []byte, i int) []byte { return append(append(to, jsonbVersion), documents[i].Data...) })
	return [][]byte{ids, versions, data}
}

// encodeArray writes a one-dimensional array without nulls (array_recv in PostgreSQL's arrayfuncs.c).
func encodeArray(element uint32, n int, size func(i int) int, write func(to []byte, i int) []byte) []byte {
	total := 20
	for i := range n {
		total += 4 + size(i)
	}
	to := make([]byte, 0, total)
	dimensions := uint32(1)
	if n == 0 {
		dimensions = 0
	}
	to = binary.BigEndian.AppendUint32(to, dimensions)
	to = binary.BigEndian.AppendUint32(to, 0) // no nulls
	to = binary.BigEndian.AppendUint32(to, element)
	if n == 0 {
		return to
	}
	to = binary.BigEndian.AppendUint32(to, uint32(n))
	to = binary.BigEndian.AppendUint32(to, 1) // the first index
	for i := range n {
		to = binary.BigEndian.AppendUint32(to, uint32(size(i)))
		to = write(to, i)
	}
	return to
}

func decodeInt(value []byte) (int64, error) {
	if len(value) != 8 {
		return 0, fmt.Errorf("a bigint of %d bytes", len(value))
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

func decodeTenant(value []byte) (tenant domain.TenantID, err error) {
	if len(value) != len(tenant) {
		return tenant, fmt.Errorf("a uuid of %d bytes", len(value))
	}
	copy(tenant[:], value)
	return tenant, nil
}

// decodeJSON returns the text of a jsonb, as a part of value.
func decodeJSON(value []byte) []byte {
	if len(value) > 0 && value[0] == jsonbVersion {
		return value[1:]
	}
	return value
}

// One statement's share of a batch. It is large enough that the statement's fixed cost vanishes (measured: 250 to 1,000
// documents of 200 bytes are alike). It is small enough that the database works on one part while the next is encoded,
// and holds no more than one in memory.
const (
	partBytes = 4 << 20
	partRows  = 1000
)

// parts splits documents into runs of at most partRows. A run also ends with the document that reaches partBytes.
func parts(documents []domain.Document) iter.Seq[[]domain.Document] {
	return func(yield func([]domain.Document) bool) {
		start, bytes := 0, 0
		for i := range documents {
			bytes += len(documents[i].ID) + len(documents[i].Data)
			if bytes >= partBytes || i+1-start >= partRows || i+1 == len(documents) {
				if !yield(documents[start : i+1 : i+1]) {
					return
				}
				start, bytes = i+1, 0
			}
		}
	}
}
