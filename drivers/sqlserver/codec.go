package sqlserver

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/relational"
)

// Batches go to the database as JSON, one parameter for hundreds of documents, which OPENJSON reads there. A document
// is a JSON string in it, not nested JSON. So the database reads it as text of any length, changes nothing in it, and
// does not count its nesting. Ids and sort keys are hexadecimal digits: this package produces their bytes, and no
// conversion between character sets is involved.
//
// Every text parameter has one type, nvarchar(max) or varchar(max), whatever its length. Otherwise the client would
// declare nvarchar(7) for a text of length 7, and the database would keep a plan for each length.

func hexadecimal(key []byte) mssql.VarCharMax { return mssql.VarCharMax(hex.EncodeToString(key)) }

// row is one row of a batch as the database reads it. The members' names are short, because each row repeats them.
type row struct {
	id       string
	version  int64
	document []byte   // normalized JSON; nil for a deletion
	keys     [][]byte // sort keys, in the order of the table's key columns

	partition []byte // the value of the partition's column; nil if there is none
}

// encodeRows writes rows as a JSON array: b is the id's bytes, i the id, v the version, d the document, k0, k1 ... the
// sort keys, p the partition.
func encodeRows(rows []row) mssql.NVarCharMax {
	size := 2
	for i := range rows {
		size += 80 + 4*len(rows[i].id) + len(rows[i].document) + len(rows[i].document)/4 + 64*len(rows[i].keys)
	}
	to := make([]byte, 0, size)
	to = append(to, '[')
	for i := range rows {
		row := &rows[i]
		if i > 0 {
			to = append(to, ',')
		}
		to = append(to, `{"b":"`...)
		to = hex.AppendEncode(to, []byte(row.id))
		to = append(to, `","v":`...)
		to = strconv.AppendInt(to, row.version, 10)
		if row.document != nil {
			to = append(to, `,"i":`...)
			to = domain.AppendText(to, row.id)
			to = append(to, `,"d":`...)
			to = domain.AppendText(to, row.document)
		}
		for n, key := range row.keys {
			to = append(to, `,"k`...)
			to = strconv.AppendInt(to, int64(n), 10)
			to = append(to, `":"`...)
			to = hex.AppendEncode(to, key)
			to = append(to, '"')
		}
		if row.partition != nil {
			to = append(to, `,"p":"`...)
			to = hex.AppendEncode(to, row.partition)
			to = append(to, '"')
		}
		to = append(to, '}')
	}
	return mssql.NVarCharMax(append(to, ']'))
}

// values returns the row's values in the order of table.staged, as they are copied into the stage.
func (r *row) values() []any {
	values := []any{[]byte(r.id), r.id, r.version, string(r.document)}
	for _, key := range r.keys {
		values = append(values, key)
	}
	if r.partition != nil {
		values = append(values, r.partition)
	}
	return values
}

// encodeIDs writes ids as a JSON array of hexadecimal texts.
func encodeIDs(ids []string) mssql.NVarCharMax {
	var to []byte
	for _, id := range ids {
		to = append(to, `,"`...)
		to = hex.AppendEncode(to, []byte(id))
		to = append(to, '"')
	}
	return mssql.NVarCharMax("[" + strings.TrimPrefix(string(to), ",") + "]")
}

// normal returns a JSON text that domain.CheckJSON has accepted in normal form. It has no white space, and each number
// in its shortest form. Of several members with the same name it keeps only the last; SQL Server would find the first.
// A number beyond the range of doubles is unchanged.
func normal(data []byte) []byte {
	n := normalizer{text: data, to: make([]byte, 0, len(data))}
	n.value()
	return n.to
}

type normalizer struct {
	text []byte
	pos  int
	to   []byte
}

// member is the position where a member of an object was written: its name, value and comma.
type member struct {
	name       string
	start, end int
}

func (n *normalizer) space() {
	for n.pos < len(n.text) && n.text[n.pos] <= ' ' {
		n.pos++
	}
}

func (n *normalizer) value() {
	n.space()
	switch n.text[n.pos] {
	case '{':
		n.object()
	case '[':
		n.list()
	case '"':
		n.to = append(n.to, n.token(n.stringEnd())...)
	default:
		end := n.pos
		for end < len(n.text) && n.text[end] > ' ' && n.text[end] != ',' && n.text[end] != ']' && n.text[end] != '}' {
			end++
		}
		n.to = append(n.to, normalWord(n.token(end))...)
	}
}

// token consumes the text up to end.
func (n *normalizer) token(end int) []byte {
	text := n.text[n.pos:end]
	n.pos = end
	return text
}

func (n *normalizer) stringEnd() int {
	end := n.pos + 1
	for n.text[end] != '"' {
		if n.text[end] == '\\' {
			end++
		}
		end++
	}
	return end + 1
}

func normalWord(word []byte) []byte {
	if c := word[0]; c != '-' && (c < '0' || c > '9') {
		return word // true, false, null
	}
	if len(word) <= 18 && word[0] != '-' && !bytes.ContainsAny(word, ".eE") {
		return word
	}
	if _, err := strconv.ParseFloat(string(word), 64); err != nil {
		return word
	}
	return []byte(domain.ParseNumber(string(word)).JSON())
}

// separated consumes the items of a list or object, and its brackets.
func (n *normalizer) separated(item func()) {
	open := n.text[n.pos]
	end := open + 2 // "[" and "]", and "{" and "}", are two code points apart
	n.to = append(n.to, open)
	n.pos++
	n.space()
	for n.text[n.pos] != end {
		item()
		n.space()
		if n.text[n.pos] == ',' {
			n.pos++
			n.space()
		}
	}
	n.pos++
	if last := len(n.to) - 1; n.to[last] == ',' {
		n.to[last] = end
	} else {
		n.to = append(n.to, end)
	}
}

func (n *normalizer) list() {
	n.separated(func() {
		n.value()
		n.to = append(n.to, ',')
	})
}

func (n *normalizer) object() {
	var members []member
	n.separated(func() {
		start := len(n.to)
		name := n.token(n.stringEnd())
		n.to = append(n.to, name...)
		n.space()
		n.pos++ // the colon
		n.to = append(n.to, ':')
		n.value()
		n.to = append(n.to, ',')
		members = append(members, member{domain.UnquoteJSON(name), start, len(n.to)})
	})
	n.dropRepeated(members)
}

// dropRepeated keeps the last of the members that share a name. The members are the last part of the output. The last
// member of all always stays, and with it the bracket that has replaced its comma.
func (n *normalizer) dropRepeated(members []member) {
	const few = 16 // up to this number, comparing all pairs is faster than a map
	if len(members) <= few {
		distinct := true
		for i, m := range members {
			distinct = distinct && !slices.ContainsFunc(members[i+1:], func(later member) bool { return later.name == m.name })
		}
		if distinct {
			return
		}
	}
	last := make(map[string]int, len(members))
	for i, m := range members {
		last[m.name] = i
	}
	if len(last) == len(members) {
		return
	}
	end := members[0].start
	for i, m := range members {
		if last[m.name] == i {
			end += copy(n.to[end:], n.to[m.start:m.end])
		}
	}
	n.to = n.to[:end]
}

// part is one statement's share of a batch, as rows.
type part struct{ upserts, deletes []row }

// nextPart cuts the first part off a batch: see relational.Part. It has at most relational.PartRows, and upserts come
// before deletes. The part of an empty batch is empty.
func nextPart(batch drivers.Batch) (first, rest drivers.Batch) {
	first, rest = batch, batch
	n, size := relational.Part(batch.Upserts)
	first.Upserts, rest.Upserts = batch.Upserts[:n], batch.Upserts[n:]
	deletes := 0
	if len(rest.Upserts) == 0 && size < relational.PartBytes {
		deletes = min(len(batch.Deletes), relational.PartRows-n)
	}
	first.Deletes, rest.Deletes = batch.Deletes[:deletes], batch.Deletes[deletes:]
	return first, rest
}

// encodePart creates the rows of a part: documents in normal form, with their sort keys for the table's key columns,
// and the partition.
func encodePart(batch drivers.Batch, table table) (part, error) {
	var p part
	paths := table.paths()
	for i := range batch.Upserts {
		document := &batch.Upserts[i]
		data := normal(document.Data)
		keys, err := columnKeys(data, paths)
		if err != nil {
			return part{}, domain.Errorf(domain.CodeInvalidJSON, "document "+document.ID, "its data is no JSON object")
		}
		one := row{id: strings.Clone(document.ID), version: document.Version, document: data, keys: keys}
		if table.partition != "" {
			last := len(keys) - 1
			one.keys, one.partition = keys[:last], partitionHash(keys[last])
		}
		p.upserts = append(p.upserts, one)
	}
	for _, deletion := range batch.Deletes {
		p.deletes = append(p.deletes, row{id: deletion.ID, version: deletion.Version})
	}
	return p, nil
}
