package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"runtime"
	"sync"

	"github.com/FerretDB/wire/wirebson"
)

// relay forwards between clients and FerretDB 1.24, and adds what a driver must be able to rely on:
//
//   - An update of one document is atomic. FerretDB reads, decides and writes in separate steps, so the relay forwards
//     one write of a document at a time.
//   - The updates of one command are independent, and each has a separate error. FerretDB ends the command at the first
//     error, so the relay sends them one by one.
//   - An upsert is two atomic steps, not one: it updates what matches its filter and, if nothing does, inserts. MongoDB
//     retries only the insert. So another writer may come in between, and the upsert fails with a duplicate key
//     although the stored document matches its filter by now. The relay lets others write between the two steps.
//   - A list may contain lists. FerretDB does not store nested lists, so the relay wraps them in an object when it
//     writes, and unwraps them when it reads.
//
// It forwards everything else unchanged. As a replica set or a sharded cluster, the relay also has transactions and
// snapshots: see transaction.go.
type relay struct {
	socket string
	as     deployment

	dropping sync.RWMutex     // locked for reading by writes, and for writing by the drop of a collection
	writing  sync.Mutex       // for writes other than updates
	updated  [1024]sync.Mutex // for updates, by a hash of the document's key
}

// lock locks a document for one atomic step of an update.
func (r *relay) lock(key any) (unlock func()) {
	document := &r.updated[maphash.String(hashSeed, fmt.Sprint(key))%uint64(len(r.updated))]
	r.dropping.RLock()
	document.Lock()
	return func() {
		document.Unlock()
		r.dropping.RUnlock()
	}
}

var hashSeed = maphash.MakeSeed()

func (r *relay) serve(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close()
			if err := r.connection(conn); err != nil && err != io.EOF {
				slog.Error("relay", "error", err)
			}
		}()
	}
}

func (r *relay) connection(client net.Conn) error {
	server, err := net.Dial("unix", r.socket)
	if err != nil {
		return err
	}
	defer server.Close()
	defer r.abandon(client, server)
	for {
		request, err := read(client)
		if err != nil {
			return err
		}
		reply, err := r.reply(client, server, request)
		if err != nil {
			return err
		}
		if _, err := client.Write(unwrap(reply)); err != nil {
			return nil // the client has disconnected
		}
	}
}

// A message has a header of four int32: its length, its id, the id of the message that it answers, and its kind. In a
// message of kind OP_MSG, flags follow, and then sections. The driver always sends the command as the first section.
const (
	headerBytes  = 16
	kindMessage  = 2013
	sectionStart = headerBytes + 4
	maxMessage   = 48_000_000
)

func read(from io.Reader) ([]byte, error) {
	header := make([]byte, headerBytes)
	if _, err := io.ReadFull(from, header); err != nil {
		return nil, io.EOF // closed, or cut off
	}
	length := int(binary.LittleEndian.Uint32(header))
	if length < headerBytes || length > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes", length)
	}
	message := append(make([]byte, 0, length), header...)[:length]
	if _, err := io.ReadFull(from, message[headerBytes:]); err != nil {
		return nil, io.EOF
	}
	return message, nil
}

func exchange(server net.Conn, request []byte) ([]byte, error) {
	if _, err := server.Write(request); err != nil {
		return nil, err
	}
	return read(server)
}

// command returns the document of a message that consists of only a command, else nil.
func command(message []byte) []byte {
	if len(message) < sectionStart+6 || binary.LittleEndian.Uint32(message[12:]) != kindMessage || message[sectionStart] != 0 {
		return nil
	}
	document := message[sectionStart+1:]
	if size := int(binary.LittleEndian.Uint32(document)); size != len(document) {
		return nil
	}
	return document
}

// withCommand returns the message with another command in it.
func withCommand(message, document []byte) []byte {
	message = append(append(make([]byte, 0, sectionStart+1+len(document)), message[:sectionStart+1]...), document...)
	binary.LittleEndian.PutUint32(message, uint32(len(message)))
	return message
}

// name returns a command's name, which is that of its first element.
func name(document []byte) string {
	if len(document) < 7 {
		return ""
	}
	name, _, _ := bytes.Cut(document[5:], []byte{0})
	return string(name)
}

func (r *relay) answer(server net.Conn, request []byte) ([]byte, error) {
	document := command(request)
	switch name(document) {
	case "insert":
		request = withCommand(request, rewriteLists(nil, document, false, wrapList))
	case "update":
		return r.updates(server, request, rewriteLists(nil, document, false, wrapList))
	case "drop", "dropDatabase":
		r.dropping.Lock()
		defer r.dropping.Unlock()
		return exchange(server, request)
	case "delete", "findAndModify", "create", "createIndexes":
	default:
		return exchange(server, request)
	}
	r.dropping.RLock()
	defer r.dropping.RUnlock()
	r.writing.Lock()
	defer r.writing.Unlock()
	return exchange(server, request)
}

// updates sends the updates of a command one by one, and combines their replies.
func (r *relay) updates(server net.Conn, request, document []byte) ([]byte, error) {
	whole, err := wirebson.RawDocument(document).Decode()
	if err != nil {
		return nil, err
	}
	raw, ok := whole.Get("updates").(wirebson.RawArray)
	if !ok {
		return exchange(server, request)
	}
	list, err := raw.Decode()
	if err != nil {
		return nil, err
	}
	var matched, modified int32
	upserted, failed := wirebson.MakeArray(0), wirebson.MakeArray(0)
	var last []byte
	for i := range list.Len() {
		if last, err = r.update(server, request, whole, list.Get(i)); err != nil {
			return nil, err
		}
		answer, err := wirebson.RawDocument(command(last)).DecodeDeep()
		if err != nil {
			return nil, err
		}
		if ok, _ := answer.Get("ok").(float64); ok != 1 {
			return last, nil
		}
		n, _ := answer.Get("n").(int32)
		changed, _ := answer.Get("nModified").(int32)
		matched, modified = matched+n, modified+changed
		for field, to := range map[string]*wirebson.Array{"upserted": upserted, "writeErrors": failed} {
			found, _ := answer.Get(field).(*wirebson.Array)
			if found == nil {
				continue
			}
			for k := range found.Len() {
				element, _ := found.Get(k).(*wirebson.Document)
				if element == nil {
					continue
				}
				if err := element.Replace("index", int32(i)); err != nil {
					return nil, err
				}
				if err := to.Add(element); err != nil {
					return nil, err
				}
			}
		}
	}
	if last == nil {
		return exchange(server, request) // a command without updates is an error, which the server reports
	}
	sum := wirebson.MustDocument("n", matched, "nModified", modified)
	for field, from := range map[string]*wirebson.Array{"upserted": upserted, "writeErrors": failed} {
		if from.Len() > 0 {
			if err := sum.Add(field, from); err != nil {
				return nil, err
			}
		}
	}
	if err := sum.Add("ok", float64(1)); err != nil {
		return nil, err
	}
	raws, err := sum.Encode()
	if err != nil {
		return nil, err
	}
	return withCommand(last, raws), nil
}

// update sends one update of a command; an upsert in its two steps.
func (r *relay) update(server net.Conn, request []byte, whole *wirebson.Document, update any) ([]byte, error) {
	raw, _ := update.(wirebson.RawDocument)
	one, err := raw.Decode()
	if err != nil {
		return nil, err
	}
	filter, _ := one.Get("q").(wirebson.RawDocument)
	query, err := filter.Decode()
	if err != nil {
		return nil, err
	}
	key := query.Get("_id")
	if upsert, _ := one.Get("upsert").(bool); !upsert {
		return r.writeUpdate(server, request, whole, one, key)
	}
	if err := one.Replace("upsert", false); err != nil {
		return nil, err
	}
	updated, err := r.writeUpdate(server, request, whole, one, key)
	if err != nil {
		return nil, err
	}
	answer, err := wirebson.RawDocument(command(updated)).Decode()
	if err != nil {
		return nil, err
	}
	if n, _ := answer.Get("n").(int32); n > 0 || answer.Get("writeErrors") != nil {
		return updated, nil
	}
	runtime.Gosched() // a writer that waits for the lock may write now
	defer r.lock(key)()
	if key != nil { // otherwise the server generates a key
		found, err := exists(server, request, whole, key)
		if err != nil {
			return nil, err
		}
		if found {
			return duplicateKey(request)
		}
	}
	if err := one.Replace("upsert", true); err != nil {
		return nil, err
	}
	return send(server, request, whole, one)
}

// writeUpdate is one atomic step.
func (r *relay) writeUpdate(server net.Conn, request []byte, whole, one *wirebson.Document, key any) ([]byte, error) {
	defer r.lock(key)()
	return send(server, request, whole, one)
}

// send sends a command with a single update.
func send(server net.Conn, request []byte, whole, one *wirebson.Document) ([]byte, error) {
	if err := whole.Replace("updates", wirebson.MustArray(one)); err != nil {
		return nil, err
	}
	raw, err := whole.Encode()
	if err != nil {
		return nil, err
	}
	return exchange(server, withCommand(request, raw))
}

// exists reports whether the collection has a document with the key.
func exists(server net.Conn, request []byte, whole *wirebson.Document, key any) (bool, error) {
	find, err := wirebson.MustDocument("find", whole.Get("update"), "filter", wirebson.MustDocument("_id", key), "limit", int32(1), "singleBatch", true, "$db", whole.Get("$db")).Encode()
	if err != nil {
		return false, err
	}
	reply, err := exchange(server, withCommand(request, find))
	if err != nil {
		return false, err
	}
	answer, err := wirebson.RawDocument(command(reply)).DecodeDeep()
	if err != nil {
		return false, err
	}
	cursor, _ := answer.Get("cursor").(*wirebson.Document)
	if cursor == nil {
		return false, fmt.Errorf("the server does not answer the find: %v", answer)
	}
	batch, _ := cursor.Get("firstBatch").(*wirebson.Array)
	return batch != nil && batch.Len() > 0, nil
}

// duplicateKey replies to a command whose single update failed on its key.
func duplicateKey(request []byte) ([]byte, error) {
	failed := wirebson.MustDocument("index", int32(0), "code", int32(11000), "errmsg", "E11000 duplicate key error")
	return ownReply(request, wirebson.MustDocument("n", int32(0), "nModified", int32(0), "writeErrors", wirebson.MustArray(failed), "ok", float64(1)))
}

// listName is the member that stores a list within a list. The driver writes no such name: it writes digits after a
// "%".
const listName = "%list"

// unwrap reverses wrapList in a reply.
func unwrap(reply []byte) []byte {
	document := command(reply)
	if document == nil || !bytes.Contains(document, []byte(listName+"\x00")) {
		return reply
	}
	return withCommand(reply, rewriteLists(nil, document, false, unwrapList))
}

// rewriter returns the replacement for an element of a list, and its kind; ok is false if the element stays.
type rewriter func(inList bool, kind byte, value []byte) (newKind byte, newValue []byte, ok bool)

func wrapList(inList bool, kind byte, value []byte) (byte, []byte, bool) {
	if !inList || kind != 0x04 {
		return 0, nil, false
	}
	wrapped := append([]byte{0, 0, 0, 0, 0x04}, listName...)
	wrapped = append(append(append(wrapped, 0), rewriteLists(nil, value, true, wrapList)...), 0)
	binary.LittleEndian.PutUint32(wrapped, uint32(len(wrapped)))
	return 0x03, wrapped, true
}

func unwrapList(_ bool, kind byte, value []byte) (byte, []byte, bool) {
	const before = 4 + 1 + len(listName) + 1
	if kind != 0x03 || len(value) < before || value[4] != 0x04 || string(value[5:before]) != listName+"\x00" {
		return 0, nil, false
	}
	return 0x04, rewriteLists(nil, value[before:len(value)-1], true, unwrapList), true
}

// rewriteLists appends a document or list with its values rewritten. It leaves what it cannot read unchanged; the
// server cannot read that either.
func rewriteLists(to, raw []byte, inList bool, rewrite rewriter) []byte {
	start := len(to)
	to = append(to, 0, 0, 0, 0)
	for rest := raw[4 : len(raw)-1]; len(rest) > 0; {
		kind := rest[0]
		end := bytes.IndexByte(rest, 0) + 1
		size := valueSize(kind, rest[max(end, 0):])
		if end == 0 || size < 0 || end+size > len(rest) {
			return append(to[:start], raw...)
		}
		value := rest[end : end+size]
		at := len(to)
		to = append(to, rest[:end]...)
		switch newKind, newValue, ok := rewrite(inList, kind, value); {
		case ok:
			to[at] = newKind
			to = append(to, newValue...)
		case kind == 0x03, kind == 0x04:
			to = rewriteLists(to, value, kind == 0x04, rewrite)
		default:
			to = append(to, value...)
		}
		rest = rest[end+size:]
	}
	to = append(to, 0)
	binary.LittleEndian.PutUint32(to[start:], uint32(len(to)-start))
	return to
}

// valueSize returns the size of the value that rest begins with; it is negative if the size cannot be determined.
func valueSize(kind byte, rest []byte) int {
	length := func() int {
		if len(rest) < 4 {
			return -1 << 20
		}
		return int(int32(binary.LittleEndian.Uint32(rest)))
	}
	switch kind {
	case 0x0a: // null
		return 0
	case 0x08: // bool
		return 1
	case 0x10: // int32
		return 4
	case 0x01, 0x09, 0x11, 0x12: // double, date, timestamp, int64
		return 8
	case 0x07: // object id
		return 12
	case 0x02: // text
		return 4 + length()
	case 0x03, 0x04: // object, list
		if size := length(); size >= 5 {
			return size
		}
	case 0x05: // binary
		return 5 + length()
	case 0x0b: // pattern and options
		first := bytes.IndexByte(rest, 0) + 1
		return first + bytes.IndexByte(rest[first:], 0) + 1
	}
	return -1
}
