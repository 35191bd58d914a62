package postgres

import (
	"encoding/binary"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// encodeDocuments returns three arrays: ids, versions, data. Arrays of tens of thousands of elements are the hot path,
// and are written from the documents straight into one buffer each.
func encodeDocuments(documents []domain.Document) [][]byte {
	n, idBytes, dataBytes := len(documents), 0, 0
	for i := range documents {
		idBytes += len(documents[i].ID)
		dataBytes += len(documents[i].Data)
	}
	ids := pg.AppendArrayHeader(make([]byte, 0, 20+4*n+idBytes), pgtype.TextOID, n)
	versions := pg.AppendArrayHeader(make([]byte, 0, 20+12*n), pgtype.Int8OID, n)
	data := pg.AppendArrayHeader(make([]byte, 0, 20+5*n+dataBytes), pgtype.JSONBOID, n)
	for i := range documents {
		ids = pg.AppendTextElement(ids, documents[i].ID)
		versions = pg.AppendInt8Element(versions, documents[i].Version)
		data = appendJSONB(data, documents[i].Data)
	}
	return [][]byte{ids, versions, data}
}

// encodeJSONBs returns an array of JSON texts.
func encodeJSONBs(texts []string) []byte {
	to := pg.AppendArrayHeader(nil, pgtype.JSONBOID, len(texts))
	for _, text := range texts {
		to = appendJSONB(to, []byte(text))
	}
	return to
}

// appendJSONB appends an element to an array. Unlike pg.AppendJSONElement it never writes a null, so that the database
// refuses a document without data.
func appendJSONB(to, data []byte) []byte {
	return pg.AppendJSON(binary.BigEndian.AppendUint32(to, uint32(1+len(data))), data)
}
