package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// statement is one step of a transaction. It may be sent more than once, if the transaction is retried.
type statement struct {
	sql        string
	unprepared bool                  // parsed each time
	args       [][]byte              // in binary format
	encodeArgs func() [][]byte       // returns large args when they are sent; nil: see args
	reset      func()                // called before each attempt; may be nil
	row        func(values [][]byte) // for each row, in binary format, valid during the call; nil: rows are ignored
}

// read runs one statement in a read-only transaction.
func (d *Driver) read(ctx context.Context, tenant domain.TenantID, step statement) error {
	_, err := d.transact(ctx, "begin read only", tenant, []statement{step})
	return err
}

// transact runs a transaction on the connections for everything but queries.
func (d *Driver) transact(ctx context.Context, begin string, tenant domain.TenantID, steps []statement) ([]int64, error) {
	return transact(ctx, d.pool, begin, tenant, steps)
}

// transact runs statements in a transaction of the tenant, or of none (domain.Everyone), and returns how many rows each
// affected. It sends everything, including begin and commit, before it reads the first result. It may retry: see
// relational.Dialect.
func transact(ctx context.Context, pool *pg.Pool, begin string, tenant domain.TenantID, steps []statement) (affected []int64, err error) {
	err = dialect.Retry(ctx, func() (err error) {
		affected, err = tryTransaction(ctx, pool, begin, tenant, steps)
		return err
	})
	return affected, err
}

func tryTransaction(ctx context.Context, pool *pg.Pool, begin string, tenant domain.TenantID, steps []statement) (affected []int64, err error) {
	lease, err := pool.Lease(ctx, tenant)
	if err != nil {
		return nil, err
	}
	defer func() { lease.End(err) }()
	return transactOn(ctx, lease.Conn, begin, tenant, steps)
}

func transactOn(ctx context.Context, conn *pgxpool.Conn, begin string, tenant domain.TenantID, steps []statement) (affected []int64, err error) {
	names := make([]string, len(steps))
	for i, step := range steps {
		if step.reset != nil {
			step.reset()
		}
		if step.unprepared {
			continue
		}
		// The connection knows the statement already, except the first time.
		description, err := conn.Conn().Prepare(ctx, step.sql, step.sql)
		if err != nil {
			return nil, err
		}
		names[i] = description.Name
	}
	defer func() {
		// The commit was skipped together with everything after the error.
		if pg := conn.Conn().PgConn(); err != nil && !pg.IsClosed() && pg.TxStatus() != 'I' {
			_, rollback := pg.Exec(ctx, "rollback").ReadAll()
			err = errors.Join(err, rollback)
		}
	}()
	return pipeline(ctx, conn, begin, tenant, steps, names)
}

// flushBytes is how much is collected before it is sent while more follows.
const flushBytes = 128 << 10

// binaryFormat marks all values as binary.
var binaryFormat = []int16{1}

func pipeline(ctx context.Context, conn *pgxpool.Conn, begin string, tenant domain.TenantID, steps []statement, names []string) (_ []int64, err error) {
	p := conn.Conn().PgConn().StartPipeline(ctx)
	defer func() {
		if closing := p.Close(); err == nil {
			err = closing
		}
	}()
	skipped, unsent := 1, 0 // results before those of the steps; bytes
	p.SendQueryParams(begin, nil, nil, nil, nil)
	if tenant != domain.Everyone {
		skipped++
		// SET takes no parameters; the canonical form of a UUID is hexadecimal digits and dashes only.
		p.SendQueryParams("set local manifold.tenant = '"+tenant.String()+"'", nil, nil, nil, nil)
	}
	for i, step := range steps {
		args := step.args
		if step.encodeArgs != nil {
			args = step.encodeArgs()
		}
		if step.unprepared {
			p.SendQueryParams(step.sql, args, nil, binaryFormat, binaryFormat)
			continue
		}
		p.SendQueryPrepared(names[i], args, binaryFormat, binaryFormat)
		for _, arg := range args {
			unsent += len(arg)
		}
		if unsent += 64; unsent >= flushBytes {
			// In a long save, the database works on this while the next part is encoded.
			if err := p.Flush(); err != nil {
				return nil, err
			}
			unsent = 0
		}
	}
	p.SendQueryParams("commit", nil, nil, nil, nil)
	if err := p.Sync(); err != nil {
		return nil, err
	}
	affected := make([]int64, len(steps))
	for i := range skipped + len(steps) + 1 {
		results, err := p.GetResults()
		if err != nil {
			return nil, err
		}
		reader, ok := results.(*pgconn.ResultReader)
		if !ok {
			return nil, fmt.Errorf("unexpected answer from the database: %T", results)
		}
		step := i - skipped
		for reader.NextRow() {
			if 0 <= step && step < len(steps) && steps[step].row != nil {
				steps[step].row(reader.Values())
			}
		}
		tag, err := reader.Close()
		if err != nil {
			return nil, err
		}
		if 0 <= step && step < len(steps) {
			affected[step] = tag.RowsAffected()
		}
	}
	return affected, nil
}

// transient reports whether the same transaction may well succeed when it is retried: it was rolled back in favor of
// another (serialization_failure, deadlock_detected), or the connection failed.
func transient(err error) bool {
	switch state := pg.SQLState(err); state {
	case "40001", pg.Deadlock:
		return true
	case "":
		// Any error that is not from the server is a connection failure, or a mistake of this package, which a few
		// attempts reveal.
		return true
	default:
		return cannotServe(state)
	}
}

// unavailable reports whether the database cannot be reached or cannot serve.
func unavailable(err error) bool {
	if state := pg.SQLState(err); state != "" {
		return cannotServe(state)
	}
	_, refused := errors.AsType[*pgconn.ConnectError](err)
	return refused || pg.Disconnected(err)
}

// cannotServe reports whether a SQLSTATE says that the server cannot serve: connection exceptions, operator
// intervention (except a cancelled statement), too many connections, and a standby.
func cannotServe(state string) bool {
	class := state[:min(2, len(state))]
	return class == "08" || class == "57" && state != queryCanceled || state == "53300" || state == pg.ReadOnly
}

// SQLSTATEs.
const (
	queryCanceled   = "57014"
	undefinedTable  = "42P01"
	lockUnavailable = "55P03"

	dependentObjects      = "2BP01"
	insufficientPrivilege = "42501"
)

// blameDocument finds the document that made a save fail, if the error says that a document did.
func blameDocument(err error, documents []domain.Document) error {
	native, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return err
	}
	switch native.Code {
	case "22P02", "22P05", "22021", "22003", "54001": // not JSON, characters or numbers that jsonb lacks, nesting
		for i := range documents {
			if wrong := domain.CheckJSON(documents[i].Data); wrong != nil {
				return domain.Errorf(domain.CodeInvalidJSON, "document "+documents[i].ID, "its data cannot be kept: %s", wrong)
			}
		}
	case "54000": // program_limit_exceeded: a string, array or object too large for jsonb, or an index entry
		return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeTooLarge, "", "a document is beyond what the database can keep: %s", native.Message), err)
	}
	return err
}
