package pg

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
)

// Statement is one of the log's statements, or one that a driver has made for an append. Each connection prepares it at
// first use. Parameters and results are binary.
type Statement struct {
	Name string // identifies the sql, one to one
	SQL  string
}

// The transaction's own statements are prepared as well, which saves parsing them.
var (
	BeginStatement    = Statement{"manifold_begin", "begin"}
	snapshotStatement = Statement{"manifold_snapshot", "begin isolation level repeatable read read only"}
	commitStatement   = Statement{"manifold_commit", "commit"}
	rollbackStatement = Statement{"manifold_rollback", "rollback"}
)

// binary is the format code of all parameters and of all results.
var binary = []int16{1}

// Pipeline is a connection in pipeline mode. The statements between two calls of Run go out in one write, and the
// answers come back in one read. The transaction is always explicit (begin ... commit), because a sharded database does
// not preserve a pipeline's implicit transaction. A Pipeline is not safe for concurrent use and must be closed.
//
// It does not use pgx's own batches: they would prepare "set local manifold.tenant = ..." for each tenant, and evict
// everything else from the connection's statement cache.
type Pipeline struct {
	pooled   *pgxpool.Conn
	lease    *Lease // nil: of a replica's pool
	failed   error  // how the last Run or Receive has ended
	conn     *pgconn.PgConn
	pipeline *pgconn.Pipeline
	waiting  []Sent
	// Names of statements whose preparation is not answered yet. It may be in an earlier SendOff than the statement. If
	// that one fails, so do all that are in flight.
	preparing []string
}

// Sent says how to handle the result of a statement that was sent.
type Sent struct {
	prepared *Statement                  // the result is that of a Parse of this statement
	row      func(values [][]byte) error // called for each row; values are valid until it returns
	done     func(tag pgconn.CommandTag) // called after the last row
	reached  func()                      // no result: called when all results before it have arrived
}

// Pipeline waits for the tenant's turn, and for a connection. The pipeline ends when ctx ends.
func (p *Pool) Pipeline(ctx context.Context, tenant domain.TenantID) (*Pipeline, error) {
	l, err := p.Lease(ctx, tenant)
	if err != nil {
		return nil, err
	}
	x := startPipeline(ctx, l.Conn)
	x.lease = l
	return x, nil
}

func startPipeline(ctx context.Context, pooled *pgxpool.Conn) *Pipeline {
	conn := pooled.Conn().PgConn()
	return &Pipeline{pooled: pooled, conn: conn, pipeline: conn.StartPipeline(ctx), waiting: make([]Sent, 0, 8)}
}

// Begin opens a transaction under the tenant.
func (x *Pipeline) Begin(tenant domain.TenantID) { x.beginBy(&BeginStatement, tenant) }

func (x *Pipeline) beginBy(begin *Statement, tenant domain.TenantID) {
	x.Send(begin, nil, nil)
	x.Under(tenant)
}

// BeginShared opens a transaction for several tenants: Under must precede the statements of each. A statement that
// waits for a lock longer than lockTimeout fails.
func (x *Pipeline) BeginShared(lockTimeout time.Duration) {
	x.Send(&BeginStatement, nil, nil)
	x.set(fmt.Sprintf("lock_timeout = %d", lockTimeout.Milliseconds()))
}

// Under makes the tenant that of the transaction's next statements.
func (x *Pipeline) Under(tenant domain.TenantID) {
	// The tenant's canonical form contains only hexadecimal digits and dashes.
	x.set("manifold.tenant = '" + tenant.String() + "'")
}

// set changes a setting for the rest of the transaction. SET takes no parameters.
func (x *Pipeline) set(setting string) {
	x.pipeline.SendQueryParams("set local "+setting, nil, nil, nil, nil)
	x.waiting = append(x.waiting, Sent{})
}

// Commit ends the transaction.
func (x *Pipeline) Commit() { x.Send(&commitStatement, nil, nil) }

// Send puts a statement into the pipeline. An error of row ends the connection, because the remaining results are not
// read.
func (x *Pipeline) Send(st *Statement, params [][]byte, row func(values [][]byte) error) {
	x.SendTagged(st, params, row, nil)
}

// SendTagged is Send, and calls done with the command's tag after the last row; done may be nil.
func (x *Pipeline) SendTagged(st *Statement, params [][]byte, row func(values [][]byte) error, done func(pgconn.CommandTag)) {
	if _, known := x.conn.CustomData()[st.Name]; !known {
		if !slices.Contains(x.preparing, st.Name) {
			x.pipeline.SendPrepare(st.Name, st.SQL, nil)
			x.waiting, x.preparing = append(x.waiting, Sent{prepared: st}), append(x.preparing, st.Name)
		}
	}
	x.pipeline.SendQueryPrepared(st.Name, params, binary, binary)
	x.waiting = append(x.waiting, Sent{row: row, done: done})
}

// Reached calls then as soon as everything sent so far is answered, while PostgreSQL works on the statements after it.
// If then puts statements into the pipeline, it must call SendOff.
func (x *Pipeline) Reached(then func()) {
	x.pipeline.SendFlushRequest()
	x.waiting = append(x.waiting, Sent{reached: then})
}

// Run sends the pipeline's content and reads the answers. After an error from PostgreSQL the transaction is lost, and
// the statements after the failed one were not executed. After any other error it is unknown what was executed.
func (x *Pipeline) Run() error {
	waiting, err := x.SendOff()
	if err != nil {
		return err
	}
	return x.Receive(waiting)
}

// SendOff sends the pipeline's content, up to a synchronisation point, and returns the answers to wait for. Several
// calls may be in flight; their answers are received in the order of sending.
func (x *Pipeline) SendOff() ([]Sent, error) {
	waiting := x.waiting
	x.waiting = waiting[len(waiting):]
	x.failed = x.pipeline.Sync()
	return waiting, x.failed
}

// Receive reads the answers of a SendOff.
func (x *Pipeline) Receive(waiting []Sent) error {
	x.failed = x.receive(waiting)
	if x.failed == nil && x.lease != nil {
		x.lease.answered()
	}
	return x.failed
}

func (x *Pipeline) receive(waiting []Sent) error {
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
			failed, x.preparing = err, x.preparing[:0]
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

func (x *Pipeline) read(a Sent, result any) error {
	switch result := result.(type) {
	case *pgconn.StatementDescription:
		x.conn.CustomData()[a.prepared.Name] = true
		x.preparing = slices.DeleteFunc(x.preparing, func(name string) bool { return name == a.prepared.Name })
		return nil
	case *pgconn.ResultReader:
		for result.NextRow() {
			if a.row == nil {
				continue
			}
			if err := a.row(result.Values()); err != nil {
				x.Abandon()
				return err
			}
		}
		tag, err := result.Close()
		if err == nil && a.done != nil {
			a.done(tag)
		}
		return err
	default:
		return fmt.Errorf("unexpected answer from PostgreSQL: %T", result)
	}
}

// Abandon breaks the connection, which is quicker than reading unwanted results to the end.
func (x *Pipeline) Abandon() { x.conn.Conn().Close() }

// Close returns the connection to the pool. It rolls an open transaction back.
func (x *Pipeline) Close() {
	failed := x.failed
	if !x.conn.IsClosed() && x.conn.TxStatus() != 'I' {
		x.waiting = x.waiting[:0]
		x.Send(&rollbackStatement, nil, nil)
		if x.Run() != nil {
			x.Abandon()
		}
	}
	if x.pipeline.Close() != nil {
		x.Abandon()
	}
	if x.lease == nil {
		x.pooled.Release()
		return
	}
	x.lease.End(failed)
}

// Query is one statement of a transaction that takes one round trip.
type Query struct {
	Statement *Statement
	Params    [][]byte
	Row       func(values [][]byte) error
}

// gapRounds is how often one read calls Unprintable. Each call finds all rows that it can.
const gapRounds = 3

// readRetries is how often a read is tried on different connections: after a restart of the database, every connection
// in the pool is broken.
const readRetries = 3

// Read runs the queries in one transaction under the tenant, in one round trip. Each query sees a separate snapshot.
// reset is called before each attempt and must discard the rows of the previous one; it may be nil.
func (db *DB) Read(ctx context.Context, tenant domain.TenantID, reset func(), queries ...Query) error {
	return db.repeat(ctx, &BeginStatement, tenant, reset, queries)
}

// ReadInTurn is Read for potentially long queries: those that return events or look at many rows. At most half of the
// connections run such queries at the same time, and a quarter for one tenant. Waiting tenants take turns. A turn ends
// with the database's answer, however slow the client is.
func (db *DB) ReadInTurn(ctx context.Context, tenant domain.TenantID, reset func(), queries ...Query) error {
	turn := db.reading.Account(tenant)
	if err := turn.Wait(ctx, 1, 0); err != nil {
		return err
	}
	defer turn.Close()
	return db.Read(ctx, tenant, reset, queries...)
}

// ReadSnapshot is Read with one snapshot for all queries. They must not lock anything.
func (db *DB) ReadSnapshot(ctx context.Context, tenant domain.TenantID, reset func(), queries ...Query) error {
	return db.repeat(ctx, &snapshotStatement, tenant, reset, queries)
}

// repeat runs queries in one transaction and retries if a connection breaks, so running them twice must be harmless.
//
// If rows cannot be printed, it runs the queries again after Unprintable has made them readable.
func (db *DB) repeat(ctx context.Context, begin *Statement, tenant domain.TenantID, reset func(), queries []Query) error {
	for attempt, gaps := 1, 0; ; attempt++ {
		if reset != nil {
			reset()
		}
		err := db.Once(ctx, begin, tenant, queries)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if db.Unprintable != nil && Unprintable(err) && gaps < gapRounds {
			gaps++
			found, failed := db.Unprintable(ctx, tenant, queries)
			if found > 0 {
				attempt = 0
				continue
			}
			err = errors.Join(err, failed)
		}
		if _, connecting := errors.AsType[*pgconn.ConnectError](err); connecting || !Disconnected(err) {
			return Unavailable(err)
		}
		if attempt == readRetries {
			return CannotServe("the connection to the database broke repeatedly; try again later", err)
		}
	}
}

// Once runs the queries in one transaction under the tenant, on one connection of the app login, without retries.
func (db *DB) Once(ctx context.Context, begin *Statement, tenant domain.TenantID, queries []Query) error {
	x, err := db.App.Pipeline(ctx, tenant)
	if err != nil {
		return err
	}
	return x.runOnce(begin, tenant, queries)
}

// runOnce runs the queries in one transaction, and closes the pipeline.
func (x *Pipeline) runOnce(begin *Statement, tenant domain.TenantID, queries []Query) error {
	defer x.Close()
	x.beginBy(begin, tenant)
	for _, q := range queries {
		x.Send(q.Statement, q.Params, q.Row)
	}
	x.Commit()
	return x.Run()
}

// BackOff waits before another attempt, longer each time, because the cause of a broken connection may last.
func BackOff(ctx context.Context, failures int) {
	if failures <= 1 {
		return
	}
	timer := time.NewTimer(min(5*time.Millisecond<<min(failures, 10), 500*time.Millisecond))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
