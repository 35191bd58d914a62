package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/pg"
)

// Load returns the existing documents among ids. Each id is one look-up in the primary key. "offset 0" keeps the
// planner from turning the look-ups into a join, which could start with all of the tenant's documents.
func (d *Driver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return nil, err
	}
	possible := drivers.PossibleIDs(ids)
	return d.documents(ctx, build, tenant, asked{statement: statement{
		sql: `select t.id, t.version, t.document from unnest($3::text[]) as w (id) cross join lateral (
			select t.id, t.version, t.document from ` + table + ` t where t.tenant_id = $1 and t.build = $2 and t.id = w.id offset 0) t`,
		args: func() [][]byte {
			return [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number), pg.TextsParam(possible)}
		},
	}})
}

// Get returns one document; ok is false if it does not exist.
func (d *Driver) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	documents, err := d.Load(ctx, build, tenant, []string{id})
	if err != nil || len(documents) == 0 {
		return domain.Document{}, false, err
	}
	return documents[0], true, nil
}

// Query returns a page of documents by keyset: the page starts where the last one ended. Without a predicate and an
// order it follows the primary key.
func (d *Driver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	asked, err := d.ask(build, tenant, query)
	if err != nil {
		return nil, err
	}
	return d.documents(ctx, build, tenant, asked)
}

// asked is a statement with what is needed to explain it.
type asked struct {
	statement
	shown []string // the arguments as text
	most  int      // maximum total bytes of the documents' data; 0: unlimited
	costs bool     // its duration is unknown, so it runs on the connections for queries
}

func (d *Driver) ask(build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (asked, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return asked{}, err
	}
	if err := query.Check(); err != nil {
		return asked{}, err
	}
	if query.Where != nil || len(query.Order) > 0 {
		q := newQuestion(build, tenant, query.Where)
		asked, err := q.asked(q.page(d.source(build), query))
		asked.most = query.MaxBytes
		return asked, err
	}
	after := ""
	if query.After != nil {
		after = query.After.ID
	}
	// Every document's id is greater than the empty one, which is the checkpoint's.
	return asked{
		statement: statement{
			sql: "select id, version, document from " + table + ` where tenant_id = $1 and build = $2 and id > $3 order by id limit $4`,
			args: func() [][]byte {
				return [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number), []byte(after), pg.Int8Param(int64(query.Limit))}
			},
		},
		shown: []string{literal(tenant.String()), strconv.FormatInt(build.Number, 10), literal(after), strconv.Itoa(query.Limit)},
		most:  query.MaxBytes,
	}, nil
}

// asked returns the question as a statement, or why it cannot be asked.
func (q *question) asked(sql string) (asked, error) {
	if q.err != nil {
		return asked{}, q.err
	}
	// It is not prepared: clients' queries have countless shapes, and each is planned for its values anyway.
	return asked{statement: statement{sql: sql, once: true, args: func() [][]byte { return q.args }}, shown: q.shown, costs: true}, nil
}

// Count returns how many documents of the tenant match. Without a predicate it reads the tenant's part of the primary
// key.
func (d *Driver) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return 0, err
	}
	question := asked{statement: statement{
		sql:  "select count(*) from " + table + ` where tenant_id = $1 and build = $2 and id > ''`,
		args: func() [][]byte { return [][]byte{pg.TenantParam(tenant), pg.Int8Param(build.Number)} },
	}}
	if where != nil {
		q := newQuestion(build, tenant, where)
		if question, err = q.asked("select count(*) " + q.from(d.source(build), where)); err != nil {
			return 0, err
		}
	}
	var count int64
	question.row = func(values [][]byte) { count = pg.Int8Value(values[0]) }
	err = d.answer(ctx, build, tenant, question)
	return count, drivers.BuildError("count the documents of", build, err)
}

// Explain reports how the database would execute the query: the statement as it is sent, and its plan, made on the
// connections that run queries.
func (d *Driver) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error) {
	question, err := d.ask(build, tenant, query)
	if err != nil {
		return domain.Explanation{}, err
	}
	explanation := domain.Explanation{Statement: question.sql}
	for i, value := range question.shown {
		explanation.Statement += fmt.Sprintf("\n-- $%d = %s", i+1, strings.ReplaceAll(value, "\n", `\n`))
	}
	question.sql, question.once = "explain (format json) "+question.sql, true
	question.row = func(values [][]byte) { explanation.Plan = bytes.Clone(values[0]) }
	if err := d.answer(ctx, build, tenant, question); err != nil {
		return domain.Explanation{}, drivers.BuildError("explain a query of", build, err)
	}
	return explanation, nil
}

// documents runs a statement whose rows are id, version and document.
func (d *Driver) documents(ctx context.Context, build domain.Build, tenant domain.TenantID, question asked) ([]domain.Document, error) {
	var documents []domain.Document
	taken := 0
	question.reset = func() { documents, taken = nil, 0 }
	question.row = func(values [][]byte) {
		if question.most > 0 && taken >= question.most {
			return // discard the remaining rows
		}
		data := bytes.Clone(pg.JSONValue(values[2]))
		taken += len(data)
		documents = append(documents, domain.Document{ID: string(values[0]), Version: pg.Int8Value(values[1]), Data: data})
	}
	err := d.answer(ctx, build, tenant, question)
	return documents, drivers.BuildError("read documents of", build, err)
}

// answer runs a statement in a read-only transaction of the tenant.
func (d *Driver) answer(ctx context.Context, build domain.Build, tenant domain.TenantID, question asked) error {
	if !question.costs {
		return d.read(ctx, tenant, question.statement)
	}
	ask := func() error {
		_, err := transact(ctx, d.queries, "begin read only", tenant, []statement{question.statement})
		return err
	}
	err := ask()
	if d.views && errors.Is(err, drivers.ErrNoTable) {
		// An older release may have created the table without its view.
		if err := d.mendSource(ctx, build); err != nil {
			return err
		}
		err = ask()
	}
	if native, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch native.Code {
		case queryCanceled:
			return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeTooCostly, "filter",
				"the documents' database has not answered within %s; ask for less, or for what a declared index can find", d.patience), err)
		case "54000", "54001", "54023", "2201B": // a limit on the statement; a pattern that is too complex
			return fmt.Errorf("%w: %w", domain.Errorf(domain.CodeUnsupported, "filter", "the documents' database cannot ask this: %s", native.Message), err)
		}
	}
	return err
}
