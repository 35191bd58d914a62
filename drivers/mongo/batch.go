package mongo

import (
	"encoding/binary"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// place is where a tenant's documents of a build are stored.
type place struct {
	table
	collection string
	shared     bool
	tenant     bson.RawValue // as rows hold it
	build      int64
	prefix     string // common prefix of all its documents' keys; also the checkpoint's key
	end        string // the first key after all of them
	only       string // the partition that is queried; empty: all
	byBuild    bool   // conditions on the documents include the build, for the indexes of keys
}

// placeOf returns the place in a table. Keys are strings, which MongoDB compares as bytes. So a tenant's rows are
// adjacent, within them those of a build, and within those the documents ordered by id.
func placeOf(build domain.Build, tenant domain.TenantID, table table) place {
	p := place{table: table, collection: collectionName(build), shared: build.Shared(), tenant: table.tenantValue(tenant), build: build.Number}
	head := tenant.String() + "/" + strconv.FormatInt(p.build, 10)
	p.prefix, p.end = head+"/", head+"0" // 0 is the character after the slash
	return p
}

// A part is the share of a batch that one command carries. It is large enough that the command's fixed cost vanishes,
// and small enough that the server finishes it long before its time limit.
const (
	partBytes  = 4 << 20
	partWrites = 2000
)

// part is a part of a batch with its documents encoded.
type part struct {
	bytes  []byte // the documents as MongoDB stores them, one after the other
	writes []write
}

// write is a change of one document.
type write struct {
	key        string
	version    int64
	start, end int // of the document in the part's bytes; equal: the document is removed
}

func (w write) removes() bool { return w.start == w.end }

// inserts splits the writes into those to try as inserts and the rest.
func (p part) inserts() (inserts, rest []write) {
	for _, write := range p.writes {
		if write.removes() {
			rest = append(rest, write)
		} else {
			inserts = append(inserts, write)
		}
	}
	return inserts, rest
}

// encodeBatch encodes all documents of a batch, in parts. It refuses documents that MongoDB cannot store.
func encodeBatch(place place, batch drivers.Batch) (parts []part, err error) {
	var now part
	cut := func() {
		if len(now.writes) > 0 {
			parts = append(parts, now)
			now = part{}
		}
	}
	rest := 0
	for i := range batch.Upserts {
		rest += len(batch.Upserts[i].Data) + 256
	}
	for i := range batch.Upserts {
		document := &batch.Upserts[i]
		if now.bytes == nil {
			now.bytes = make([]byte, 0, min(rest, partBytes)*5/4)
		}
		start := len(now.bytes)
		if now.bytes, err = encodeRow(now.bytes, place, document); err != nil {
			return nil, err
		}
		rest -= len(document.Data) + 256
		now.writes = append(now.writes, write{place.prefix + document.ID, document.Version, start, len(now.bytes)})
		// A document that would make the part too large to send goes alone.
		if last := len(now.writes) - 1; last > 0 && len(now.bytes) > 3*partBytes {
			alone := part{bytes: now.bytes[start:], writes: []write{{place.prefix + document.ID, document.Version, 0, len(now.bytes) - start}}}
			now.bytes, now.writes = now.bytes[:start:start], now.writes[:last]
			cut()
			parts = append(parts, alone)
			continue
		}
		if len(now.bytes) >= partBytes || len(now.writes) >= partWrites {
			cut()
		}
	}
	for _, deletion := range batch.Deletes {
		now.writes = append(now.writes, write{key: place.prefix + deletion.ID, version: deletion.Version})
		if len(now.writes) >= partWrites {
			cut()
		}
	}
	cut()
	return parts, nil
}

// encodeRow appends a document as it is stored: the key, the fields for people and indexes, and the data.
func encodeRow(to []byte, place place, saved *domain.Document) ([]byte, error) {
	start := len(to)
	to = openDocument(to)
	to = appendText(to, "_id", place.prefix, saved.ID)
	to = appendValue(to, "tenant", place.tenant)
	to = appendInt(to, "build", place.build)
	to = appendText(to, "id", saved.ID)
	to = appendInt(to, "version", saved.Version)
	to = appendName(to, kindObject, data)
	from := len(to)
	to, err := encodeDocument(to, saved.Data, "document "+saved.ID)
	if err != nil {
		return nil, err
	}
	if place.partition != nil {
		to = appendText(to, partition, partitionOf(to[from:], place.partition))
	}
	document := to[from:]
	to = appendNotOrderable(to, document, place.declared)
	to = appendKeys(to, document, place.keyed)
	return closeDocument(to, start), nil
}

// encodeInserts returns the command that inserts rows, in any order.
func encodeInserts(place place, part part, writes []write, concern bson.E) bson.Raw {
	to, start := openCommand("insert", place.collection, part, concern)
	to = appendName(to, kindList, "documents")
	list := len(to)
	to = openDocument(to)
	for i, write := range writes {
		to = appendIndex(to, i)
		to = append(to, part.bytes[write.start:write.end]...)
	}
	return closeDocument(closeDocument(to, list), start)
}

// encodeUpdates returns the command that upserts documents over older versions, in any order. A removed document
// becomes a tombstone: a row with a version and no data, dated by the server's clock.
func encodeUpdates(place place, part part, writes []write, concern bson.E) bson.Raw {
	to, start := openCommand("update", place.collection, part, concern)
	to = appendName(to, kindList, "updates")
	list := len(to)
	to = openDocument(to)
	for i, write := range writes {
		to = appendIndex(to, i)
		statement := len(to)
		to = openDocument(to)

		to = appendName(to, kindObject, "q")
		query := len(to)
		to = appendText(openDocument(to), "_id", write.key)
		to = appendName(to, kindObject, "version")
		below := len(to)
		to = appendInt(openDocument(to), "$lt", write.version)
		to = closeDocument(closeDocument(to, below), query)

		to = appendName(to, kindObject, "u")
		if write.removes() {
			to = appendTombstone(to, place, write)
		} else {
			to = append(to, part.bytes[write.start:write.end]...)
		}
		to = appendBool(to, "upsert", true)
		to = closeDocument(to, statement)
	}
	return closeDocument(closeDocument(to, list), start)
}

// appendTombstone appends the update that turns a row into a tombstone, or inserts one.
func appendTombstone(to []byte, place place, write write) []byte {
	change := len(to)
	to = appendName(openDocument(to), kindObject, "$set")
	set := len(to)
	to = appendValue(openDocument(to), "tenant", place.tenant)
	to = appendInt(to, "build", place.build)
	to = appendText(to, "id", strings.TrimPrefix(write.key, place.prefix))
	to = appendInt(to, "version", write.version)
	if len(place.keyed) > 0 {
		to = appendText(to, keyField(0), keyRemoved)
	}
	to = closeDocument(to, set)
	to = appendName(to, kindObject, "$unset")
	unset := len(to)
	to = appendText(appendText(appendText(openDocument(to), data, ""), partition, ""), notOrderable, "")
	for i := 1; i < len(place.keyed); i++ {
		to = appendText(to, keyField(i), "")
	}
	to = closeDocument(to, unset)
	to = appendName(to, kindObject, "$currentDate")
	date := len(to)
	to = closeDocument(appendBool(openDocument(to), "deletedAt", true), date)
	return closeDocument(to, change)
}

// encodeCheckpoint returns the command that inserts a checkpoint if there is none.
func encodeCheckpoint(place place, position int64, concern bson.E) bson.Raw {
	var row part
	row.bytes = openDocument(nil)
	row.bytes = appendText(row.bytes, "_id", place.prefix)
	row.bytes = appendValue(row.bytes, "tenant", place.tenant)
	row.bytes = appendInt(row.bytes, "build", place.build)
	row.bytes = appendText(row.bytes, "id", "")
	row.bytes = appendInt(row.bytes, "version", position)
	row.bytes = closeDocument(appendBool(row.bytes, "checkpoint", true), 0)
	row.writes = []write{{key: place.prefix, version: position, end: len(row.bytes)}}
	return encodeInserts(place, row, row.writes, concern)
}

// openCommand begins a command that writes in any order, up to its list of writes. concern is empty within a
// transaction.
func openCommand(command, collection string, part part, concern bson.E) (to []byte, start int) {
	const each = 300 // bytes that a write has besides its document, roughly
	to = openDocument(make([]byte, 0, len(part.bytes)+each*len(part.writes)+200))
	to = appendText(to, command, collection)
	to = appendBool(to, "ordered", false)
	if concern.Key == "" {
		return to, 0 // within a transaction, whose commit has the concern
	}
	kind, value, err := bson.MarshalValue(concern.Value)
	if err != nil {
		panic(err) // a document of strings and numbers can always be encoded
	}
	return appendValue(to, concern.Key, bson.RawValue{Type: kind, Value: value}), 0
}

// The elements of BSON that commands consist of.

func openDocument(to []byte) []byte { return append(to, 0, 0, 0, 0) }

// closeDocument ends the document that was opened at start.
func closeDocument(to []byte, start int) []byte {
	to = append(to, 0)
	binary.LittleEndian.PutUint32(to[start:], uint32(len(to)-start))
	return to
}

func appendName(to []byte, kind byte, name string) []byte {
	return append(append(append(to, kind), name...), 0)
}

// appendIndex begins an object that is an element of a list.
func appendIndex(to []byte, index int) []byte {
	return append(strconv.AppendInt(append(to, kindObject), int64(index), 10), 0)
}

func appendText(to []byte, name string, pieces ...string) []byte {
	to = appendName(to, kindText, name)
	start := len(to)
	to = append(to, 0, 0, 0, 0)
	for _, piece := range pieces {
		to = append(to, piece...)
	}
	to = append(to, 0)
	binary.LittleEndian.PutUint32(to[start:], uint32(len(to)-start-4))
	return to
}

func appendValue(to []byte, name string, value bson.RawValue) []byte {
	return append(appendName(to, byte(value.Type), name), value.Value...)
}

func appendInt(to []byte, name string, n int64) []byte {
	return binary.LittleEndian.AppendUint64(appendName(to, kindInt64, name), uint64(n))
}

func appendBool(to []byte, name string, b bool) []byte {
	to = append(appendName(to, kindBool, name), 0)
	if b {
		to[len(to)-1] = 1
	}
	return to
}
