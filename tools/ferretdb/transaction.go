package main

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/FerretDB/wire/wirebson"
)

// deployment is what the relay claims that the server is.
type deployment int

const (
	standalone deployment = iota
	replicaSet            // of one member, the set "rs0"
	sharded
)

// transaction emulates a transaction, because FerretDB 1.24 has none. As a replica set or a sharded cluster, the relay
// gives a transaction exclusive use of the documents of its tenant's build. It records what each write replaces, and
// restores that if the transaction is aborted or its connection ends. A command that reads these documents waits, so it
// reads a snapshot, as long as its cursor is FerretDB's. Commands are refused as MongoDB refuses them: with a write
// concern within a transaction, and after a write in it has failed.
type transaction struct {
	id      string // the session's and the transaction's number
	client  net.Conn
	request []byte // one of its requests, whose header is reused for other commands
	unlock  func()

	timer  *time.Timer // ends it
	mu     sync.Mutex  // one command at a time
	failed bool        // or ended: it accepts no more commands
	undo   []replaced
}

// replaced is a document before a write.
type replaced struct {
	database, collection string
	key                  any
	document             wirebson.AnyDocument // nil: there was none
}

// transactions are the open transactions of all databases.
type transactions struct {
	mu     sync.Mutex
	locks  map[string]*sync.RWMutex // by tenant and build
	open   map[string]*transaction  // by id
	number uint32                   // of the last snapshot
}

var running = transactions{locks: make(map[string]*sync.RWMutex), open: make(map[string]*transaction)}

// prefix matches the beginning of a driver's keys: the tenant and the build.
var prefix = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/[0-9]+`)

// lock returns the lock of the documents that a command names first.
func (t *transactions) lock(raw []byte) *sync.RWMutex {
	key := string(prefix.Find(raw))
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.locks[key] == nil || key == "" {
		t.locks[key] = new(sync.RWMutex) // a command that names none gets an unshared lock
	}
	return t.locks[key]
}

func (t *transactions) get(id string) *transaction {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[id]
}

func (t *transactions) end(one *transaction) {
	t.mu.Lock()
	delete(t.open, one.id)
	t.mu.Unlock()
	one.unlock()
}

// patience is how long a transaction waits for another one before it reports a conflict.
const patience = 20 * time.Millisecond

// lifetime is how long a transaction may be idle. MongoDB's transactionLifetimeLimitSeconds, which is 60, counts from
// the start. But what takes a server milliseconds may take this one seconds.
const lifetime = 3 * time.Second

// expire aborts a transaction that is still open at the end of its lifetime.
func (r *relay) expire(one *transaction) {
	if running.get(one.id) != one {
		return
	}
	server, err := net.Dial("unix", r.socket)
	if err != nil {
		slog.Error("relay: a transaction is not rolled back", "error", err)
		return
	}
	defer server.Close()
	r.finish(one, server, false)
}

// begin waits for the documents that a command names. It returns nil if another transaction is using them.
func (t *transactions) begin(id string, raw []byte, client net.Conn) *transaction {
	lock := t.lock(raw)
	for deadline := time.Now().Add(patience); !lock.TryLock(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return nil
		}
	}
	one := &transaction{id: id, client: client, unlock: lock.Unlock}
	t.mu.Lock()
	t.open[id] = one
	t.mu.Unlock()
	return one
}

// sessionFields have no meaning to FerretDB.
var sessionFields = []string{"lsid", "txnNumber", "startTransaction", "autocommit", "readConcern", "$clusterTime", "recoveryToken"}

// reply replies to a request as the deployment does.
func (r *relay) reply(client, server net.Conn, request []byte) ([]byte, error) {
	raw := command(request)
	if raw == nil {
		reply, err := r.answer(server, request)
		if err != nil || r.as == standalone {
			return reply, err
		}
		return r.hello(reply, client)
	}
	if r.as == standalone {
		return r.answer(server, request)
	}
	document, err := wirebson.RawDocument(raw).Decode()
	if err != nil {
		return nil, err
	}
	database, _ := document.Get("$db").(string)
	snapshot := false
	if concern, err := decoded(document.Get("readConcern")); err == nil {
		snapshot = concern.Get("level") == "snapshot"
	}
	id := fmt.Sprint(document.Get("lsid"), document.Get("txnNumber"))
	inTransaction := document.Get("autocommit") != nil
	_, starts := document.Get("startTransaction").(bool)
	concerned := document.Get("writeConcern") != nil
	plain := wirebson.MakeDocument(document.Len())
	for name, value := range document.All() {
		if !slices.Contains(sessionFields, name) {
			if err := plain.Add(name, value); err != nil {
				return nil, err
			}
		}
	}
	encoded, err := plain.Encode()
	if err != nil {
		return nil, err
	}
	request = withCommand(request, encoded)
	switch name(raw) {
	case "hello", "isMaster", "ismaster":
		reply, err := r.answer(server, request)
		if err != nil {
			return nil, err
		}
		return r.hello(reply, client)
	case "endSessions", "killSessions":
		return ownReply(request, wirebson.MustDocument("ok", float64(1)))
	case "shardCollection":
		return r.shard(server, request, plain)
	case "commitTransaction", "abortTransaction":
		one := running.get(id)
		if one == nil {
			return failure(request, 251, "NoSuchTransaction", "TransientTransactionError")
		}
		if !r.finish(one, server, name(raw) == "commitTransaction") {
			return failure(request, 251, "NoSuchTransaction", "TransientTransactionError")
		}
		return ownReply(request, wirebson.MustDocument("ok", float64(1)))
	}
	if inTransaction {
		return r.replyInTransaction(client, server, request, plain, id, database, starts, concerned)
	}
	if name(raw) != "getMore" {
		lock := running.lock(raw)
		lock.RLock()
		defer lock.RUnlock()
	}
	reply, err := r.answer(server, request)
	if err != nil || !snapshot {
		return reply, err
	}
	return withSnapshotTime(reply)
}

// replyInTransaction replies to a command of a transaction.
func (r *relay) replyInTransaction(client, server net.Conn, request []byte, document *wirebson.Document, id, database string, starts, concerned bool) ([]byte, error) {
	one := running.get(id)
	switch {
	case concerned:
		return failure(request, 72, "writeConcern is not allowed within a multi-statement transaction")
	case starts && one != nil:
		return failure(request, 117, "the transaction has begun already")
	case starts:
		if one = running.begin(id, command(request), client); one == nil {
			return failure(request, 112, "WriteConflict", "TransientTransactionError")
		}
		one.timer = time.AfterFunc(lifetime, func() { r.expire(one) })
	case one == nil:
		return failure(request, 251, "NoSuchTransaction", "TransientTransactionError")
	}
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.failed {
		return failure(request, 251, "NoSuchTransaction", "TransientTransactionError")
	}
	one.request = request
	one.timer.Reset(lifetime)
	defer one.timer.Reset(lifetime)
	if err := r.remember(one, server, document, database); err != nil {
		return nil, err
	}
	reply, err := r.answer(server, request)
	if err != nil {
		return nil, err
	}
	answer, err := wirebson.RawDocument(command(reply)).Decode()
	if err != nil {
		return nil, err
	}
	if ok, _ := answer.Get("ok").(float64); ok != 1 || answer.Get("writeErrors") != nil {
		one.failed = true // MongoDB aborts it at once
		if err := r.rollback(one, server); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// finish ends a transaction once. It reports whether the transaction was open, so that it could be ended in this way.
func (r *relay) finish(one *transaction, server net.Conn, commit bool) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	if running.get(one.id) != one {
		return false
	}
	defer running.end(one)
	succeeded := !one.failed
	one.failed = true
	if commit && succeeded {
		return true
	}
	if err := r.rollback(one, server); err != nil {
		slog.Error("relay: a transaction is not rolled back", "error", err)
	}
	return !commit
}

// remember records what a command's writes will replace.
func (r *relay) remember(one *transaction, server net.Conn, document *wirebson.Document, database string) error {
	for _, kind := range []struct{ command, list, key string }{{"insert", "documents", ""}, {"update", "updates", "q"}, {"delete", "deletes", "q"}} {
		collection, _ := document.Get(kind.command).(string)
		raw, _ := document.Get(kind.list).(wirebson.RawArray)
		if collection == "" || raw == nil {
			continue
		}
		list, err := raw.Decode()
		if err != nil {
			return err
		}
		keys, stored := wirebson.MakeArray(list.Len()), make(map[any]wirebson.AnyDocument)
		for i := range list.Len() {
			write, err := decoded(list.Get(i))
			if err == nil && kind.key != "" {
				write, err = decoded(write.Get(kind.key))
			}
			if err != nil {
				return err
			}
			if err := keys.Add(write.Get("_id")); err != nil {
				return err
			}
		}
		find := wirebson.MustDocument("find", collection, "filter", wirebson.MustDocument("_id", wirebson.MustDocument("$in", keys)),
			"batchSize", int32(keys.Len()+1), "singleBatch", true, "$db", database)
		answer, err := ask(server, one.request, find)
		if err != nil {
			return err
		}
		cursor, err := decoded(answer.Get("cursor"))
		if err != nil {
			return err
		}
		batch, _ := cursor.Get("firstBatch").(wirebson.RawArray)
		found, err := batch.Decode()
		if err != nil {
			return err
		}
		for i := range found.Len() {
			document, err := decoded(found.Get(i))
			if err != nil {
				return err
			}
			stored[document.Get("_id")], _ = found.Get(i).(wirebson.AnyDocument)
		}
		for i := range keys.Len() {
			key := keys.Get(i)
			one.undo = append(one.undo, replaced{database: database, collection: collection, key: key, document: stored[key]})
		}
	}
	return nil
}

// rollback restores what a transaction has replaced.
func (r *relay) rollback(one *transaction, server net.Conn) error {
	for _, before := range slices.Backward(one.undo) {
		commands := []*wirebson.Document{wirebson.MustDocument("delete", before.collection, "deletes",
			wirebson.MustArray(wirebson.MustDocument("q", wirebson.MustDocument("_id", before.key), "limit", int32(1))), "$db", before.database)}
		if before.document != nil {
			commands = append(commands, wirebson.MustDocument("insert", before.collection, "documents", wirebson.MustArray(before.document), "$db", before.database))
		}
		for _, command := range commands {
			if _, err := ask(server, one.request, command); err != nil {
				return err
			}
		}
	}
	one.undo = nil
	return nil
}

// abandon aborts the transactions of a connection that has ended.
func (r *relay) abandon(client, server net.Conn) {
	running.mu.Lock()
	var abandoned []*transaction
	for _, one := range running.open {
		if one.client == client {
			abandoned = append(abandoned, one)
		}
	}
	running.mu.Unlock()
	for _, one := range abandoned {
		r.finish(one, server, false)
	}
}

// shard records that a collection is sharded, where a cluster does.
func (r *relay) shard(server net.Conn, request []byte, document *wirebson.Document) ([]byte, error) {
	if r.as != sharded {
		return failure(request, 59, "no such command: 'shardCollection'")
	}
	find := wirebson.MustDocument("find", "collections", "filter", wirebson.MustDocument("_id", document.Get("shardCollection")), "limit", int32(1), "singleBatch", true, "$db", "config")
	found, err := ask(server, request, find)
	if err != nil {
		return nil, err
	}
	cursor, err := decoded(found.Get("cursor"))
	if err != nil {
		return nil, err
	}
	if batch, ok := cursor.Get("firstBatch").(wirebson.RawArray); ok && len(batch) > 5 { // it is not empty
		return ownReply(request, wirebson.MustDocument("ok", float64(1)))
	}
	insert := wirebson.MustDocument("insert", "collections", "documents",
		wirebson.MustArray(wirebson.MustDocument("_id", document.Get("shardCollection"), "key", document.Get("key"))), "$db", "config")
	if _, err := ask(server, request, insert); err != nil {
		return nil, err
	}
	return ownReply(request, wirebson.MustDocument("ok", float64(1)))
}

// hello adds to the reply to a hello what the deployment is.
func (r *relay) hello(reply []byte, client net.Conn) ([]byte, error) {
	start := sectionStart + 1
	if binary.LittleEndian.Uint32(reply[12:]) == 1 { // OP_REPLY: flags, cursor, start and number precede the document
		start = headerBytes + 20
	}
	document, err := wirebson.RawDocument(reply[start:]).Decode()
	if err != nil || document.Get("maxWireVersion") == nil {
		return reply, nil // it is the reply to something else
	}
	address := client.LocalAddr().String()
	changedReply := wirebson.MakeDocument(document.Len() + 6)
	for name, value := range document.All() {
		if name == "msg" || name == "setName" || name == "hosts" || name == "me" || name == "logicalSessionTimeoutMinutes" {
			continue
		}
		if err := changedReply.Add(name, value); err != nil {
			return nil, err
		}
	}
	add := map[string]any{"logicalSessionTimeoutMinutes": int32(30)}
	if r.as == sharded {
		add["msg"] = "isdbgrid"
	} else {
		add["setName"], add["hosts"], add["me"], add["primary"], add["setVersion"] = "rs0", wirebson.MustArray(address), address, address, int32(1)
	}
	for name, value := range add {
		if err := changedReply.Add(name, value); err != nil {
			return nil, err
		}
	}
	raw, err := changedReply.Encode()
	if err != nil {
		return nil, err
	}
	changed := append(slices.Clone(reply[:start]), raw...)
	binary.LittleEndian.PutUint32(changed, uint32(len(changed)))
	return changed, nil
}

// withSnapshotTime returns the reply with the time of its snapshot.
func withSnapshotTime(reply []byte) ([]byte, error) {
	answer, err := wirebson.RawDocument(command(reply)).Decode()
	if err != nil {
		return nil, err
	}
	cursor, err := decoded(answer.Get("cursor"))
	if err != nil {
		return reply, nil // an error
	}
	running.mu.Lock()
	running.number++
	at := wirebson.Timestamp(uint64(time.Now().Unix())<<32 | uint64(running.number))
	running.mu.Unlock()
	if err := cursor.Add("atClusterTime", at); err != nil {
		return nil, err
	}
	if err := answer.Replace("cursor", cursor); err != nil {
		return nil, err
	}
	raw, err := answer.Encode()
	if err != nil {
		return nil, err
	}
	return withCommand(reply, raw), nil
}

// decoded returns a document within another.
func decoded(value any) (*wirebson.Document, error) {
	document, ok := value.(wirebson.AnyDocument)
	if !ok {
		return nil, fmt.Errorf("%T is no document", value)
	}
	return document.Decode()
}

// ask sends a command that the relay itself needs.
func ask(server net.Conn, request []byte, document *wirebson.Document) (*wirebson.Document, error) {
	raw, err := document.Encode()
	if err != nil {
		return nil, err
	}
	reply, err := exchange(server, withCommand(request, raw))
	if err != nil {
		return nil, err
	}
	answer, err := wirebson.RawDocument(command(reply)).Decode()
	if err != nil {
		return nil, err
	}
	if ok, _ := answer.Get("ok").(float64); ok != 1 {
		return nil, fmt.Errorf("the server refuses the relay's %s: %v", document.Command(), answer)
	}
	return answer, nil
}

// ownReply returns the relay's own reply to a request.
func ownReply(request []byte, document *wirebson.Document) ([]byte, error) {
	raw, err := document.Encode()
	if err != nil {
		return nil, err
	}
	reply := withCommand(request, raw)
	copy(reply[8:12], request[4:8]) // the id of the request
	return reply, nil
}

// failure returns the relay's own error reply.
func failure(request []byte, code int32, message string, labels ...string) ([]byte, error) {
	document := wirebson.MustDocument("ok", float64(0), "code", code, "codeName", message, "errmsg", message)
	if len(labels) > 0 {
		all := wirebson.MakeArray(len(labels))
		for _, label := range labels {
			if err := all.Add(label); err != nil {
				return nil, err
			}
		}
		if err := document.Add("errorLabels", all); err != nil {
			return nil, err
		}
	}
	return ownReply(request, document)
}
