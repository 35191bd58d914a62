package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// queryTime limits how long the database works on a query, a count or a plan.
const queryTime = 10 * time.Second

// Load returns the existing documents among ids, with one look-up in the primary key for each.
func (d *Driver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return nil, err
	}
	possible := drivers.PossibleIDs(ids)
	documents, err := try(ctx, d, func(ctx context.Context, conn *sql.Conn) ([]domain.Document, error) {
		size := 0
		documents, err := collect(ctx, conn, tableOf(build).load(d.server.locking, tenant, possible), scanDocument, func(document domain.Document) bool {
			size += len(document.Data)
			return size > drivers.MaxLoadBytes
		})
		if err == nil && size > drivers.MaxLoadBytes && len(documents) > 1 {
			return nil, drivers.ErrLoadTooLarge
		}
		return documents, err
	})
	return documents, drivers.BuildError("read documents of", build, err)
}

// Get returns one document; ok is false if it does not exist.
func (d *Driver) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return domain.Document{}, false, err
	}
	if domain.CheckDocumentID("", id) != nil {
		id = strings.Repeat("\x01", domain.MaxDocumentIDBytes+1) // no document's id; checks that the table exists
	}
	documents, err := read(ctx, d, tableOf(build).get(tenant, id), scanDocument)
	if err != nil || len(documents) == 0 {
		return domain.Document{}, false, drivers.BuildError("read a document of", build, err)
	}
	return documents[0], true, nil
}

func scanDocument(rows *sql.Rows) (document domain.Document, err error) {
	var id []byte
	var data string
	err = rows.Scan(&id, &document.Version, &data)
	document.ID, document.Data = string(id), json.RawMessage(data)
	return document, err
}

// Query returns a page of documents by keyset: the page starts where the last one ended.
func (d *Driver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	if err := errors.Join(drivers.CheckTenant(build, tenant), query.Check()); err != nil {
		return nil, err
	}
	documents, err := withQueryTimeout(ctx, func(ctx context.Context) ([]domain.Document, error) {
		return withColumns(ctx, d, build, func(table table) ([]domain.Document, error) {
			if documents, ok, err := d.queryByKeys(ctx, table, tenant, query); ok || err != nil {
				return documents, err
			}
			statement, err := table.query(d.server.locking, tenant, query)
			if err != nil {
				return nil, err
			}
			return try(ctx, d, func(ctx context.Context, conn *sql.Conn) ([]domain.Document, error) {
				size := 0
				return collect(ctx, conn, statement, scanDocument, func(document domain.Document) bool {
					size += len(document.Data)
					return query.MaxBytes > 0 && size >= query.MaxBytes
				})
			})
		})
	})
	return documents, drivers.BuildError("query documents of", build, err)
}

// Count returns how many of the tenant's documents match.
func (d *Driver) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return 0, err
	}
	count, err := withQueryTimeout(ctx, func(ctx context.Context) (int64, error) {
		return withColumns(ctx, d, build, func(table table) (int64, error) {
			if count, ok, err := d.countByKeys(ctx, table, tenant, where); ok || err != nil {
				return count, err
			}
			statement, err := table.count(d.server.locking, tenant, where)
			if err != nil {
				return 0, err
			}
			return try(ctx, d, func(ctx context.Context, conn *sql.Conn) (int64, error) { return number(ctx, conn, statement) })
		})
	})
	return count, drivers.BuildError("count the documents of", build, err)
}

// withQueryTimeout runs do with a time limit.
func withQueryTimeout[T any](ctx context.Context, do func(ctx context.Context) (T, error)) (T, error) {
	bounded, cancel := context.WithTimeout(ctx, queryTime)
	defer cancel()
	value, err := do(bounded)
	switch {
	case err != nil && bounded.Err() != nil && ctx.Err() == nil:
		err = domain.Errorf(domain.CodeTooCostly, "", "the query took longer than %s; ask for less, or filter and order by a path that a shared projection declares in indexes", queryTime)
	case tooComplex(numberOf(err)):
		err = fmt.Errorf("%w: %w", domain.Errorf(domain.CodeTooCostly, "filter", "it is too complex: SQL Server cannot make a plan for it"), err)
	}
	return value, err
}

// bounds limit a query that may have to sort. With more processors, or more than a tenth of the memory for queries, it
// would delay the other tenants.
const bounds = "maxdop 2, max_grant_percent = 10"

// recompile requests a plan for the actual values: a filter may match a tenth of a tenant's documents with one
// constant, and a few with another. Queries without filter and order do not need that: they have one plan.
const recompile = "option (recompile, " + bounds + ");\n"

// orderedRecompile is recompile for a page whose ids are found first; each document is then one look-up.
const orderedRecompile = "option (recompile, loop join, force order, " + bounds + ");\n"

// query builds the select of a page. A page with an order first finds its ids, so that whole documents are not moved
// while they are sorted.
func (t table) query(locking bool, tenant domain.TenantID, request domain.DocumentQuery) (statement, error) {
	q := newQuery(t, tenant)
	text, err := q.page(request)
	if err != nil {
		return statement{}, err
	}
	return statement{sql: t.consistent(locking, text), args: q.args}, nil
}

// page builds the select without settings.
func (q *query) page(request domain.DocumentQuery) (string, error) {
	request = withoutRepetitions(request)
	q.args = append(q.args, sql.Named("limit", int64(request.Limit)))
	conditions, err := q.pageConditions(request, byKeys{})
	if err != nil {
		return "", err
	}
	if len(request.Order) == 0 {
		text := "select top (@limit) " + documentColumns + "\nfrom " + q.source + q.sources.String() +
			"where " + conditions + "\norder by t.id_bytes\n"
		if request.Where != nil {
			return text + recompile, nil
		}
		return strings.TrimSuffix(text, "\n") + ";\n", nil
	}
	ids, order := q.pageIDs(request, conditions)
	return "select " + documentColumns + "\nfrom (\n" + ids + ") as o\n" +
		"inner join " + q.table.name + " as t with (forceseek) on " + where + " and t.id_bytes = o.id_bytes\n" +
		"order by " + order + "o.id_bytes\n" + orderedRecompile, nil
}

// pageConditions returns the conditions on the documents of all pages, and without an order on their ids. way is how
// they are found, if by keys.
func (q *query) pageConditions(request domain.DocumentQuery, way byKeys) (string, error) {
	after := "0x" // the checkpoint's id
	if len(request.Order) == 0 && request.After != nil {
		after = q.id(request.After.ID)
	}
	conditions := where + " and " + q.idColumn + " > " + after
	if request.Where == nil {
		return conditions, nil
	}
	if way.ranged() { // the range is in the source
		defer func(path domain.Path) { q.keyPath = path }(q.keyPath)
		q.keyPath = nil
	}
	condition, err := q.condition(request.Where)
	return conditions + "\nand " + condition, err
}

// pageIDs builds the select of a page's ids, with columns for their order, and the terms of that order outside of it.
func (q *query) pageIDs(request domain.DocumentQuery, conditions string) (ids, order string) {
	if len(request.Order) == 0 {
		return "select top (@limit) " + q.idColumn + "\nfrom " + q.source + q.sources.String() +
			"where " + conditions + "\norder by " + q.idColumn + "\n", ""
	}
	if len(request.Order) == 1 && request.Order[0].Descending {
		if column, ok := q.keyColumn(request.Order[0].Path); ok {
			return q.descending(request, column, conditions), "o.s0, o.s1 desc, "
		}
	}
	keys := make([]string, len(request.Order))
	for i, part := range request.Order {
		keys[i] = q.sortKey(part.Path)
	}
	if request.After != nil {
		conditions += "\nand (" + q.afterPlace(request, keys) + ")"
	}
	columns, inner, outer := orderTerms(keys, request.Order)
	return "select top (@limit) " + q.idColumn + columns + "\nfrom " + q.source + q.sources.String() +
		"where " + conditions + "\norder by " + inner + ", " + q.idColumn + "\n", outer + ", "
}

// descending builds the ids of the page that descends by one key column. Documents that can be ordered are read from
// the descending index. The others, which come last, are read separately by their ids.
func (q *query) descending(request domain.DocumentQuery, column, conditions string) string {
	part := func(last, condition, order string) string {
		return "select s.id_bytes, s.s0, s.s1 from (\nselect top (@limit) " + q.idColumn + ", " + last + " as s0, " + column + " as s1\nfrom " + q.source + q.sources.String() +
			"where " + conditions + "\nand " + condition + "\norder by " + order + q.idColumn + "\n) as s\n"
	}
	unordered := column + " = 0xff"
	ordered := part("0", column+" < 0xff", column+" desc, ") + "union all\n"
	if after := request.After; after != nil && after.Unordered {
		ordered, unordered = "", unordered+" and "+q.idColumn+" > "+q.id(after.ID)
	} else if after != nil {
		place := q.key(columnKey(after.Values[0]))
		ordered = part("0", column+" <= "+place+" and ("+column+" < "+place+" or "+q.idColumn+" > "+q.id(after.ID)+")", column+" desc, ") + "union all\n"
	}
	return "select top (@limit) u.id_bytes, u.s0, u.s1 from (\n" +
		ordered + part("1", unordered, "") +
		") as u\norder by u.s0, u.s1 desc, u.id_bytes\n"
}

// withoutRepetitions removes from a query's order every repetition of an earlier path. A repetition does not affect the
// order, and the server refuses to order by the same expression twice (169).
func withoutRepetitions(request domain.DocumentQuery) domain.DocumentQuery {
	var order []domain.Order
	var values []domain.Scalar
	for i, part := range request.Order {
		if slices.ContainsFunc(order, func(earlier domain.Order) bool { return slices.Equal(earlier.Path, part.Path) }) {
			continue
		}
		order = append(order, part)
		if request.After != nil && !request.After.Unordered {
			values = append(values, request.After.Values[i])
		}
	}
	request.Order = order
	if request.After != nil {
		request.After = &domain.SortKey{Unordered: request.After.Unordered, Values: values, ID: request.After.ID}
	}
	return request
}

// orderTerms returns the order of a page's ids, as columns to select, and as terms within and outside. The documents
// that cannot be ordered come after all others, and are sorted only by their ids. For one ascending path that is simply
// the order of its keys, which an index may have.
func orderTerms(keys []string, order []domain.Order) (columns, inner, outer string) {
	if len(keys) == 1 && !order[0].Descending {
		return ", " + keys[0] + " as s1", keys[0], "o.s1"
	}
	last := "case when " + unordered(keys) + " then 1 else 0 end"
	columns, inner, outer = ", "+last+" as s0", last, "o.s0"
	for i, key := range keys {
		direction := ""
		if order[i].Descending {
			direction = " desc"
		}
		term := "case when " + unordered(keys) + " then 0xff else " + key + " end"
		columns += fmt.Sprintf(", %s as s%d", term, i+1)
		inner += ", " + term + direction
		outer += fmt.Sprintf(", o.s%d%s", i+1, direction)
	}
	return columns, inner, outer
}

func unordered(keys []string) string { return "0xff in (" + strings.Join(keys, ", ") + ")" }

// afterPlace is true for the documents that come after a place.
func (q *query) afterPlace(request domain.DocumentQuery, keys []string) string {
	id := q.idColumn + " > " + q.id(request.After.ID)
	if request.After.Unordered {
		return unordered(keys) + " and " + id
	}
	var alternatives []string
	same := ""
	for i, key := range keys {
		place := q.key(columnKey(request.After.Values[i]))
		operator := " > "
		if request.Order[i].Descending {
			operator = " < "
		}
		alternatives = append(alternatives, same+key+operator+place)
		same += key + " = " + place + " and "
	}
	alternatives = append(alternatives, same+id)
	if len(keys) == 1 && !request.Order[0].Descending {
		// 0xff, the key of documents that cannot be ordered, is after every place already. The bound only serves the
		// index.
		return keys[0] + " >= " + q.key(columnKey(request.After.Values[0])) + " and (" + strings.Join(alternatives, " or ") + ")"
	}
	return unordered(keys) + "\nor not " + unordered(keys) + " and (" + strings.Join(alternatives, "\nor ") + ")"
}

// count builds the select of a count.
func (t table) count(locking bool, tenant domain.TenantID, predicate domain.Predicate) (statement, error) {
	q := newQuery(t, tenant)
	conditions := where + " and t.id_bytes > 0x"
	end := ";\n"
	if predicate != nil {
		condition, err := q.condition(predicate)
		if err != nil {
			return statement{}, err
		}
		conditions += "\nand " + condition
		end = "\n" + recompile
	}
	text := "select count_big(*)\nfrom " + q.source + q.sources.String() + "where " + conditions + end
	return statement{sql: t.consistent(locking, text), args: q.args}, nil
}

// Explain returns the query and the server's estimated plan. The query has its parameters declared before it, ready to
// be run manually. The plan is a JSON string with the XML of SHOWPLAN_XML. There is no plan if the login lacks the
// right to see it (grant showplan).
func (d *Driver) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error) {
	if err := errors.Join(drivers.CheckTenant(build, tenant), query.Check()); err != nil {
		return domain.Explanation{}, err
	}
	explanation, err := withQueryTimeout(ctx, func(ctx context.Context) (domain.Explanation, error) {
		return withColumns(ctx, d, build, func(table table) (domain.Explanation, error) {
			statement, err := table.explained(tenant, query)
			if err != nil {
				return domain.Explanation{}, err
			}
			text := declarations(statement.args) + statement.sql
			plan, err := d.plan(ctx, table, text)
			return domain.Explanation{Statement: text, Plan: plan}, err
		})
	})
	if err != nil {
		return domain.Explanation{}, drivers.BuildError("explain a query of", build, err)
	}
	return explanation, nil
}

// explained returns the statement that is tried first for a page, without settings.
func (t table) explained(tenant domain.TenantID, request domain.DocumentQuery) (statement, error) {
	if ways := t.waysByKeys(request.Where, withoutRepetitions(request).Order); len(ways) > 0 {
		statement, err := t.pageByKeys(false, tenant, ways[0], request)
		statement.sql = strings.TrimPrefix(statement.sql, readSettings)
		return statement, err
	}
	q := newQuery(t, tenant)
	text, err := q.page(request)
	return statement{sql: text, args: q.args}, err
}

// plan returns the plan of a batch without running it, or nil if the server returns none.
func (d *Driver) plan(ctx context.Context, table table, text string) (json.RawMessage, error) {
	return try(ctx, d, func(ctx context.Context, conn *sql.Conn) (json.RawMessage, error) {
		if err := mustExist(ctx, conn, table.name); err != nil {
			return nil, err
		}
		if _, err := conn.ExecContext(ctx, "set showplan_xml on"); err != nil {
			return nil, ignoreRefusal(err)
		}
		plans, err := collect(ctx, conn, statement{sql: text}, func(rows *sql.Rows) (plan string, err error) {
			if columns, err := rows.Columns(); err != nil || len(columns) != 1 {
				return "", err // a server that ignores the setting returns the query's own result
			}
			err = rows.Scan(&plan)
			return plan, err
		}, nil)
		if _, off := conn.ExecContext(ctx, "set showplan_xml off"); off != nil {
			_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // it must not go back to the pool
			err = errors.Join(err, off)
		}
		plan := strings.TrimSpace(strings.Join(plans, "\n"))
		if err != nil || plan == "" {
			return nil, ignoreRefusal(err)
		}
		return json.Marshal(plan)
	})
}

// ignoreRefusal returns nil for an error by which the server reports that it returns no plan.
func ignoreRefusal(err error) error {
	if number := numberOf(err); number != 0 && !cannotServe(number) {
		return nil
	}
	return err
}

// declarations declares a statement's parameters as variables, with the types that the client would use.
func declarations(args []any) string {
	var text strings.Builder
	for _, arg := range args {
		named, ok := arg.(sql.NamedArg)
		if !ok {
			continue
		}
		switch value := named.Value.(type) {
		case int64:
			fmt.Fprintf(&text, "declare @%s bigint = %d;\n", named.Name, value)
		case mssql.VarChar:
			fmt.Fprintf(&text, "declare @%s varchar(%d) = %s;\n", named.Name, len(value), literal(string(value)))
		case mssql.VarCharMax:
			fmt.Fprintf(&text, "declare @%s varchar(max) = %s;\n", named.Name, literal(string(value)))
		case mssql.NVarCharMax:
			fmt.Fprintf(&text, "declare @%s nvarchar(max) = %s;\n", named.Name, literal(string(value)))
		}
	}
	return text.String()
}
