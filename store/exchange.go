package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
)

// statement is one of the log's statements, or one that a driver has made for an append. It is prepared on a connection when that first needs it; parameters and
// results are binary.
type statement struct {
	name string // the same for the same sql, and for no other
	sql  string
}

// The transaction's own statements are prepared as well: it saves parsing them.
var (
	beginStatement    = statement{"manifold_begin", "begin"}
	snapshotStatement = statement{"manifold_snapshot", "begin isolation level repeatable read read only"}
	commitStatement   = statement{"manifold_commit", "commit"}
	rollbackStatement = statement{"manifold_rollback", "rollback"}
)

// binary is the format code of all parameters and of all results.
var binary = []int16{1}

// exchange is a conversation with one connection in pipeline mode: what is sent between two calls of run goes out in one
// write and comes back in one read. The transaction is always explicit (begin ... commit): the implicit one of a pipeline
// is not kept by a sharded database. It is for one goroutine and must be closed.
//
// pgx's own batches are not used here: they would prepare "set local manifold.tenant = ..." once for each tenant, and
// push everything else out of the connection's cache of statements.
type exchange struct {
	pooled   *pgxpool.Conn
	conn     *pgconn.PgConn
	pipeline *pgconn.Pipeline
	waiting  []answer
}

// answer is what is to be done with the result of a statement that was sent.
type answer struct {
	prepared *statement                  // the answer is to a Parse of this one
	row      func(values [][]byte) error // called for each row; values are valid until it returns
	done     func(tag pgconn.CommandTag) // called behind the last row
	reached  func()                      // nothing of its own: called when all before it are there
}

// exchange takes a connection of pool. Its end, and that of ctx, is the exchange's.
func (s *Store) exchange(ctx context.Context, pool *pgxpool.Pool) (*exchange, error) {
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	conn := pooled.Conn().PgConn()
	return &exchange{pooled: pooled, conn: conn, pipeline: conn.StartPipeline(ctx), waiting: make([]answer, 0, 8)}, nil
}

// begin opens a transaction under the tenant.
func (x *exchange) begin(tenant domain.TenantID) { x.beginBy(&beginStatement, tenant) }

func (x *exchange) beginBy(begin *statement, tenant domain.TenantID) {
	x.send(begin, nil, nil)
	// SET takes no parameters; the tenant's canonical form is hexadecimal digits and dashes only.
	x.pipeline.SendQueryParams("set local manifold.tenant = '"+tenant.String()+"'", nil, nil, nil, nil)
	x.waiting = append(x.waiting, answer{})
}

// commit ends the transaction.
func (x *exchange) commit() { x.send(&commitStatement, nil, nil) }

// send puts a statement into the pipeline. An error of row ends the connection, since what follows is not read.
func (x *exchange) send(st *statement, params [][]byte, row func(values [][]byte) error) {
	x.sendTagged(st, params, row, nil)
}

func (x *exchange) sendTagged(st *statement, params [][]byte, row func(values [][]byte) error, done func(pgconn.CommandTag)) {
	if _, known := x.conn.CustomData()[st.name]; !known {
		pending := false
		for i := range x.waiting {
			pending = pending || x.waiting[i].prepared != nil && x.waiting[i].prepared.name == st.name
		}
		if !pending {
			x.pipeline.SendPrepare(st.name, st.sql, nil)
			x.waiting = append(x.waiting, answer{prepared: st})
		}
	}
	x.pipeline.SendQueryPrepared(st.name, params, binary, binary)
	x.waiting = append(x.waiting, answer{row: row, done: done})
}

// reached has then called as soon as everything sent so far is answered, while PostgreSQL works on what is sent behind it.
// What then puts into the pipeline must be followed by sendOff.
func (x *exchange) reached(then func()) {
	x.pipeline.SendFlushRequest()
	x.waiting = append(x.waiting, answer{reached: then})
}

// run sends what was put into the pipeline and reads the answers. After an error of PostgreSQL the transaction is lost,
// and what stood behind the statement was not done; any other error leaves unknown what was done.
func (x *exchange) run() error {
	waiting, err := x.sendOff()
	if err != nil {
		return err
	}
	return x.receive(waiting)
}

// sendOff sends what was put into the pipeline, up to a synchronisation point, and returns the answers to wait for.
// Several may be under way; they are received in the order in which they were sent.
func (x *exchange) sendOff() ([]answer, error) {
	waiting := x.waiting
	x.waiting = waiting[len(waiting):]
	return waiting, x.pipeline.Sync()
}

// receive reads the answers of a sendOff.
func (x *exchange) receive(waiting []answer) error {
	var failed error
	for _, a := range waiting {
		if a.reached != nil {
			a.reached()
			continue
		}
		result, err := x.pipeline.GetResults()
		if err == nil {
			err = x.read(a, result)
		}
		if err != nil {
			failed = err
			break
		}
	}
	// The rest up to the synchronisation point: nothing but it, unless PostgreSQL answered with an error.
	for {
		result, err := x.pipeline.GetResults()
		if err != nil {
			if failed == nil {
				failed = err
			}
			if _, native := errors.AsType[*pgconn.PgError](err); !native || x.conn.IsClosed() {
				return failed
			}
			continue
		}
		if _, end := result.(*pgconn.PipelineSync); end || result == nil {
			return failed
		}
		if reader, ok := result.(*pgconn.ResultReader); ok && failed != nil {
			reader.Close()
		}
	}
}

func (x *exchange) read(a answer, result any) error {
	switch result := result.(type) {
	case *pgconn.StatementDescription:
		x.conn.CustomData()[a.prepared.name] = true
		return nil
	case *pgconn.ResultReader:
		for result.NextRow() {
			if a.row == nil {
				continue
			}
			if err := a.row(result.Values()); err != nil {
				x.abandon()
				return err
			}
		}
		tag, err := result.Close()
		if err == nil && a.done != nil {
			a.done(tag)
		}
		return err
	default:
		return fmt.Errorf("PostgreSQL answered out of turn with %T", result)
	}
}

// abandon breaks the connection: it is quicker than reading to the end what is not wanted.
func (x *exchange) abandon() { x.conn.Conn().Close() }

// close gives the connection back, rolled back where its transaction is still open.
func (x *exchange) close() {
	if !x.conn.IsClosed() && x.conn.TxStatus() != 'I' {
		x.waiting = x.waiting[:0]
		x.send(&rollbackStatement, nil, nil)
		if x.run() != nil {
			x.abandon()
		}
	}
	if x.pipeline.Close() != nil {
		x.abandon()
	}
	x.pooled.Release()
}

// query is one statement of a transaction that is made in one round trip.
type query struct {
	statement *statement
	params    [][]byte
	row       func(values [][]byte) error
}

// readRetries is how often a read is made again on another connection: after a restart of the database every connection
// of the pool is a broken one.
const readRetries = 3

// read runs the queries in one transaction under the tenant, in one round trip; each sees a snapshot of its own. reset is
// called before each attempt, and has to forget what the last one's rows brought; it may be nil.
func (s *Store) read(ctx context.Context, tenant domain.TenantID, reset func(), queries ...query) error {
	return s.repeat(ctx, &beginStatement, tenant, reset, queries)
}

// readInTurn is read for what may be long: events, and what has to look at many rows. At most half of the connections do
// that at the same time, and a quarter for one tenant; those who wait get their turns tenant by tenant. The turn ends with
// the answer of the database, however slow the client is that it is for.
func (s *Store) readInTurn(ctx context.Context, tenant domain.TenantID, reset func(), queries ...query) error {
	turn := s.reading.Account(tenant)
	if err := turn.Wait(ctx, 1, 0); err != nil {
		return err
	}
	defer turn.Close()
	return s.read(ctx, tenant, reset, queries...)
}

// readSnapshot is read where all queries see the same snapshot. They must not lock anything.
func (s *Store) readSnapshot(ctx context.Context, tenant domain.TenantID, reset func(), queries ...query) error {
	return s.repeat(ctx, &snapshotStatement, tenant, reset, queries)
}

// repeat runs queries in one transaction, once more where a connection breaks: what they do must be harmless to do twice.
//
// Where events cannot be read they are marked, and the queries run once more and step over them.
func (s *Store) repeat(ctx context.Context, begin *statement, tenant domain.TenantID, reset func(), queries []query) error {
	for attempt, gaps := 1, 0; ; attempt++ {
		if reset != nil {
			reset()
		}
		err := s.once(ctx, begin, tenant, queries)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if unprintable(err) && gaps < gapRounds {
			gaps++
			found, failed := s.markGaps(ctx, tenant, queries)
			if found > 0 {
				attempt = 0
				continue
			}
			err = errors.Join(err, failed)
		}
		if _, connecting := errors.AsType[*pgconn.ConnectError](err); connecting || !disconnected(err) {
			return unavailable(err)
		}
		if attempt == readRetries {
			return cannotServe("the connection to the database broke again and again; try again later", err)
		}
	}
}

func (s *Store) once(ctx context.Context, begin *statement, tenant domain.TenantID, queries []query) error {
	x, err := s.exchange(ctx, s.app)
	if err != nil {
		return err
	}
	defer x.close()
	x.beginBy(begin, tenant)
	for _, q := range queries {
		x.send(q.statement, q.params, q.row)
	}
	x.commit()
	return x.run()
}
