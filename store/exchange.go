package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
)

// statement is one of the log's statements, or one that a driver has made for an append. Each connection prepares it at
// first use. Parameters and results are binary.
type statement struct {
	name string // identifies the sql, one to one
	sql  string
}

// The transaction's own statements are prepared as well, which saves parsing them.
var (
	beginStatement    = statement{"manifold_begin", "begin"}
	snapshotStatement = statement{"manifold_snapshot", "begin isolation level repeatable read read only"}
	commitStatement   = statement{"manifold_commit", "commit"}
	rollbackStatement = statement{"manifold_rollback", "rollback"}
)

// binary is the format code of all parameters and of all results.
var binary = []int16{1}

// exchange is a conversation over one connection in pipeline mode. What is sent between two calls of run goes out in
// one write, and the answers come back in one read. The transaction is always explicit (begin ... commit), because a
// sharded database does not preserve a pipeline's implicit transaction. An exchange is not safe for concurrent use and
// must be closed.
//
// It does not use pgx's own batches: they would prepare "set local manifold.tenant = ..." for each tenant, and push
// everything else out of the connection's statement cache.
type exchange struct {
	pooled   *pgxpool.Conn
	conn     *pgconn.PgConn
	pipeline *pgconn.Pipeline
	waiting  []answer
}

// answer says how to handle the result of a statement that was sent.
type answer struct {
	prepared *statement                  // the result is that of a Parse of this statement
	row      func(values [][]byte) error // called for each row; values are valid until it returns
	done     func(tag pgconn.CommandTag) // called after the last row
	reached  func()                      // no result: called when all results before it have arrived
}

// exchange acquires a connection of pool. The exchange ends when ctx ends.
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
	// SET takes no parameters. The tenant's canonical form contains only hexadecimal digits and dashes.
	x.pipeline.SendQueryParams("set local manifold.tenant = '"+tenant.String()+"'", nil, nil, nil, nil)
	x.waiting = append(x.waiting, answer{})
}

// commit ends the transaction.
func (x *exchange) commit() { x.send(&commitStatement, nil, nil) }

// send puts a statement into the pipeline. An error of row ends the connection, because the remaining results are not
// read.
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

// reached calls then as soon as everything sent so far is answered, while PostgreSQL works on the statements after it.
// If then puts statements into the pipeline, it must call sendOff.
func (x *exchange) reached(then func()) {
	x.pipeline.SendFlushRequest()
	x.waiting = append(x.waiting, answer{reached: then})
}

// run sends the pipeline's content and reads the answers. After an error from PostgreSQL the transaction is lost, and
// the statements after the failed one were not executed. After any other error it is unknown what was executed.
func (x *exchange) run() error {
	waiting, err := x.sendOff()
	if err != nil {
		return err
	}
	return x.receive(waiting)
}

// sendOff sends the pipeline's content, up to a synchronisation point, and returns the answers to wait for. Several
// calls may be in flight; their answers are received in the order of sending.
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
	// The rest up to the synchronisation point is empty, unless PostgreSQL answered with an error.
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

// abandon breaks the connection, which is quicker than reading unwanted results to the end.
func (x *exchange) abandon() { x.conn.Conn().Close() }

// close returns the connection to the pool. It rolls an open transaction back.
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

// query is one statement of a transaction that takes one round trip.
type query struct {
	statement *statement
	params    [][]byte
	row       func(values [][]byte) error
}

// readRetries is how often a read is tried on different connections: after a restart of the database, every connection
// in the pool is broken.
const readRetries = 3

// read runs the queries in one transaction under the tenant, in one round trip. Each query sees a separate snapshot.
// reset is called before each attempt and must discard the rows of the previous one; it may be nil.
func (s *Store) read(ctx context.Context, tenant domain.TenantID, reset func(), queries ...query) error {
	return s.repeat(ctx, &beginStatement, tenant, reset, queries)
}

// readInTurn is read for potentially long queries: those that return events or look at many rows. At most half of the
// connections run such queries at the same time, and a quarter for one tenant. Waiting tenants take turns. A turn ends
// with the database's answer, however slow the client is.
func (s *Store) readInTurn(ctx context.Context, tenant domain.TenantID, reset func(), queries ...query) error {
	turn := s.reading.Account(tenant)
	if err := turn.Wait(ctx, 1, 0); err != nil {
		return err
	}
	defer turn.Close()
	return s.read(ctx, tenant, reset, queries...)
}

// readSnapshot is read with one snapshot for all queries. They must not lock anything.
func (s *Store) readSnapshot(ctx context.Context, tenant domain.TenantID, reset func(), queries ...query) error {
	return s.repeat(ctx, &snapshotStatement, tenant, reset, queries)
}

// repeat runs queries in one transaction and retries if a connection breaks, so running them twice must be harmless.
//
// If events cannot be read, it marks them and runs the queries again, which then skip them.
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
