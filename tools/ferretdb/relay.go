package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"

	"github.com/FerretDB/wire/wirebson"
)

// relay stands between clients and FerretDB 1.24, and makes up for what a driver must be able to rely on:
//
//   - An update of one document is atomic. FerretDB reads, decides and writes on its own; so the relay lets one command that
//     writes through at a time.
//   - The updates of one command are done each for itself, and each has its error. FerretDB ends the command at the first
//     error; so the relay sends them one by one.
//   - A list may have lists as elements. FerretDB does not store such ones; so the relay wraps them in an object, in what is
//     written, and unwraps them in what is read.
//
// Everything else goes through as it is.
type relay struct {
	socket  string
	writing sync.Mutex
}

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
	for {
		request, err := read(client)
		if err != nil {
			return err
		}
		reply, err := r.answer(server, request)
		if err != nil {
			return err
		}
		if _, err := client.Write(unwrap(reply)); err != nil {
			return nil // the client is gone
		}
	}
}

// A message has a header of four int32: its length, its id, the id of what it answers, and its kind. A message of kind
// OP_MSG has flags behind that, and sections, the first of which is the command in all that the driver sends.
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

// command is the document of a message that is a command and nothing else.
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

// with is the message with another command in it.
func with(message, document []byte) []byte {
	message = append(append(make([]byte, 0, sectionStart+1+len(document)), message[:sectionStart+1]...), document...)
	binary.LittleEndian.PutUint32(message, uint32(len(message)))
	return message
}

// name is a command's name: that of its first element.
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
		request = with(request, rewriteLists(nil, document, false, wrapList))
	case "update":
		r.writing.Lock()
		defer r.writing.Unlock()
		return updates(server, request, rewriteLists(nil, document, false, wrapList))
	case "delete", "findAndModify", "create", "drop", "dropDatabase", "createIndexes":
	default:
		return exchange(server, request)
	}
	r.writing.Lock()
	defer r.writing.Unlock()
	return exchange(server, request)
}

// updates sends the updates of a command one by one, and makes one answer of the answers.
func updates(server net.Conn, request, document []byte) ([]byte, error) {
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
		if err := whole.Replace("updates", wirebson.MustArray(list.Get(i))); err != nil {
			return nil, err
		}
		one, err := whole.Encode()
		if err != nil {
			return nil, err
		}
		if last, err = exchange(server, with(request, one)); err != nil {
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
		return exchange(server, request) // no updates are a mistake, which the server names
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
	return with(last, raws), nil
}

// listName is the member under which a list within a list is stored. The driver writes no such name: behind a "%" it has
// digits.
const listName = "%list"

// unwrap undoes wrapList in an answer.
func unwrap(reply []byte) []byte {
	document := command(reply)
	if document == nil || !bytes.Contains(document, []byte(listName+"\x00")) {
		return reply
	}
	return with(reply, rewriteLists(nil, document, false, unwrapList))
}

// rewriter gives the value that stands for an element of a list, and what kind it is; ok is false where it stays.
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

// rewriteLists appends a document or list with its values rewritten. What it cannot read, it leaves: the server will not
// read it either.
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

// valueSize is the size of the value that rest begins with; below zero where it cannot be told.
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
