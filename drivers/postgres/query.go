package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/pg"
)

// Load returns the existing documents among ids. Each id is one look-up in the primary key. "offset 0" keeps the
// planner from turning the look-ups into a join, which could start with all of the tenant's documents.
func (d *Driver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	return loadFrom(ctx, d.run, build, tenant, ids)
}

// runRead runs a statement in a read-only transaction of the tenant: of the primary, or of a replica.
type runRead func(ctx context.Context, build domain.Build, tenant domain.TenantID, read readStatement) error

func loadFrom(ctx context.Context, run runRead, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return nil, err
	}
	return documentsFrom(ctx, run, build, tenant, readStatement{maxBytes: drivers.MaxLoadBytes, whole: true, statement: statement{
		sql: `select t.id, t.version, t.document from unnest($3::text[]) as w (id) cross join lateral (
			select t.id, t.version, t.document from ` + table + ` t where t.tenant_id = $1 and t.build = $2 and t.id = w.id offset 0) t`,
		args: [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number), pg.TextsParam(drivers.PossibleIDs(ids))},
	}})
}

// Get returns one document; ok is false if it does not exist.
func (d *Driver) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	return getFrom(ctx, d.run, build, tenant, id)
}

func getFrom(ctx context.Context, run runRead, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	documents, err := loadFrom(ctx, run, build, tenant, []string{id})
	if err != nil || len(documents) == 0 {
		return domain.Document{}, false, err
	}
	return documents[0], true, nil
}

// Query returns a page of documents by keyset: the page starts where the last one ended. Without a predicate and an
// order it follows the primary key.
func (d *Driver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	statement, err := d.queryStatement(build, tenant, query)
	if err != nil {
		return nil, err
	}
	return documentsFrom(ctx, d.run, build, tenant, statement)
}

// readStatement is a statement that reads documents, with what is needed to explain it.
type readStatement struct {
	statement
	argTexts []string // the arguments as SQL
	maxBytes int      // maximum total bytes of the documents' data; 0: unlimited
	whole    bool     // with several documents of more than maxBytes, the error is ErrLoadTooLarge
	slow     bool     // its duration is unknown, so it runs on the connections for queries
}

func (d *Driver) queryStatement(build domain.Build, tenant domain.TenantID, asked domain.DocumentQuery) (readStatement, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return readStatement{}, err
	}
	if err := asked.Check(); err != nil {
		return readStatement{}, err
	}
	if asked.Where != nil || len(asked.Order) > 0 {
		q := newQuery(build, tenant, asked.Where)
		q.keyed = d.keepsKeys(build)
		read, err := q.statement(q.page(d.readFrom(build), asked))
		read.maxBytes = asked.MaxBytes
		return read, err
	}
	after := ""
	if asked.After != nil {
		after = asked.After.ID
	}
	// Every document's id is greater than the empty one, which is the checkpoint's.
	return readStatement{
		statement: statement{
			sql:  "select id, version, document from " + table + ` where tenant_id = $1 and build = $2 and id > $3 order by id limit $4`,
			args: [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number), []byte(after), pg.Int8Param(int64(asked.Limit))},
		},
		argTexts: []string{literal(tenant.String()), strconv.FormatInt(build.Number, 10), literal(after), strconv.Itoa(asked.Limit)},
		maxBytes: asked.MaxBytes,
	}, nil
}

// statement returns the query's statement with its parameters, or the reason why PostgreSQL cannot express it.
func (q *query) statement(sql string) (readStatement, error) {
	// It is not prepared: clients' queries have countless shapes, and each is planned for its values anyway.
	return readStatement{statement: statement{sql: sql, unprepared: true, args: q.args}, argTexts: q.argTexts, slow: true}, q.err
}

// Count returns how many documents of the tenant match. Without a predicate it reads the tenant's part of the primary
// key.
func (d *Driver) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	read, err := d.countStatement(build, tenant, where)
	if err != nil {
		return 0, err
	}
	return countFrom(ctx, d.run, build, tenant, read)
}

func (d *Driver) countStatement(build domain.Build, tenant domain.TenantID, where domain.Predicate) (readStatement, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return readStatement{}, err
	}
	if where != nil {
		q := newQuery(build, tenant, where)
		q.keyed = d.keepsKeys(build)
		source, matches := d.readFrom(build), q.where(where)
		sql := "select count(*) " + q.fromCondition(source, matches)
		if tables, ok := q.rangeOf(where); ok {
			sql = q.countRange(tables, source, matches)
		}
		return q.statement(sql)
	}
	return readStatement{statement: statement{
		sql:  "select count(*) from " + table + ` where tenant_id = $1 and build = $2 and id > ''`,
		args: [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number)},
	}}, nil
}

func countFrom(ctx context.Context, run runRead, build domain.Build, tenant domain.TenantID, read readStatement) (int64, error) {
	var count int64
	read.row = func(values [][]byte) { count = pg.Int8Value(values[0]) }
	err := run(ctx, build, tenant, read)
	return count, drivers.BuildError("count the documents of", build, err)
}

// Explain reports how the database would execute the query: the statement as it is sent, and its plan, made on the
// connections that run queries.
func (d *Driver) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error) {
	read, err := d.queryStatement(build, tenant, query)
	if err != nil {
		return domain.Explanation{}, err
	}
	explanation := domain.Explanation{Statement: read.sql}
	for i, value := range read.argTexts {
		explanation.Statement += fmt.Sprintf("\n-- $%d = %s", i+1, strings.ReplaceAll(value, "\n", `\n`))
	}
	read.sql, read.unprepared = "explain (format json) "+read.sql, true
	read.row = func(values [][]byte) { explanation.Plan = bytes.Clone(values[0]) }
	if err := d.run(ctx, build, tenant, read); err != nil {
		return domain.Explanation{}, drivers.BuildError("explain a query of", build, err)
	}
	return explanation, nil
}

// documentsFrom runs a statement whose rows are id, version and document.
func documentsFrom(ctx context.Context, run runRead, build domain.Build, tenant domain.TenantID, read readStatement) ([]domain.Document, error) {
	var documents []domain.Document
	size, tooLarge := 0, false
	reading, stop := context.WithCancel(ctx)
	defer stop()
	read.reset = func() { documents, size = nil, 0 }
	read.row = func(values [][]byte) {
		if tooLarge || !read.whole && read.maxBytes > 0 && size >= read.maxBytes {
			return // discard the remaining rows
		}
		data := bytes.Clone(pg.JSONValue(values[2]))
		size += len(data)
		documents = append(documents, domain.Document{ID: string(values[0]), Version: pg.Int8Value(values[1]), Data: data})
		if read.whole && size > read.maxBytes && len(documents) > 1 {
			documents, tooLarge = nil, true
			stop() // what follows may be many times as much; this costs the connection
		}
	}
	err := run(reading, build, tenant, read)
	if tooLarge {
		err = drivers.ErrLoadTooLarge
	}
	return documents, drivers.BuildError("read documents of", build, err)
}

// run runs a statement in a read-only transaction of the tenant.
func (d *Driver) run(ctx context.Context, build domain.Build, tenant domain.TenantID, read readStatement) error {
	if !read.slow {
		return d.read(ctx, tenant, read.statement)
	}
	steps := []statement{read.statement}
	if d.becomeViews {
		steps = slices.Insert(steps, 0, statement{sql: "set local role " + viewsRole, unprepared: true})
	}
	try := func() error {
		_, err := transact(ctx, d.queries, "begin read only", tenant, steps)
		return err
	}
	err := try()
	if d.views && errors.Is(err, drivers.ErrNoTable) {
		// An older release may have created the table without its view.
		if err := d.ensureTenantView(ctx, build); err != nil {
			return err
		}
		err = try()
	}
	if known := queryError(err, d.queryTimeout); known != nil {
		return known
	}
	return err
}

// queryError returns the error for a query that the database has refused; nil: it is another error.
func queryError(err error, timeout time.Duration) error {
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch native.Code {
		case queryCanceled:
			return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeTooCostly, "filter",
				"the documents' database has not answered within %s; ask for less, or for what a declared index can find", timeout), err)
		case "54000", "54001", "54023", "2201B": // a limit on the statement; a pattern that is too complex
			return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnsupported, "filter", "the documents' database cannot run this: %s", native.Message), err)
		}
	}
	return nil
}
