package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/relational"
)

// viewShows returns 1 if the view exists and its text names the table, 0 if it does not name it, and -1 if there is no
// view. This package wrote the text, and a quoted name occurs in it only as that name. The database's own collation
// might ignore a hyphen.
func viewShows(view, table string) statement {
	return statement{
		sql:  "select case when object_id(@view) is null then -1 when charindex(@table" + binary2 + ", object_definition(object_id(@view))) > 0 then 1 else 0 end;\n",
		args: []any{sql.Named("view", view), sql.Named("table", table+" ")},
	}
}

// viewText returns 1 and the text of the view's definition, or 0 and an empty text if there is no view.
func viewText(view string) statement {
	return statement{
		sql:  "select case when object_id(@view) is null then 0 else 1 end, coalesce(object_definition(object_id(@view)), N'');\n",
		args: []any{sql.Named("view", view)},
	}
}

// viewSQL creates or changes a projection's view. "alter" keeps the privileges that were granted on it. A statement
// that creates a view must be a separate batch.
func viewSQL(view, query string, exists bool) string {
	verb := "create"
	if exists {
		verb = "alter"
	}
	return verb + " view " + view + " as " + query + ";\n"
}

// showsQuery reports whether the text of a view is what viewSQL builds from the query. The server stores the text as it
// was sent, except for the verb.
func showsQuery(text, query string) bool {
	return strings.HasSuffix(strings.TrimRight(text, "\r\n "), " as "+query+";")
}

// SwapTable points the projection's view at the build, and at the overrides' builds for their tenants. A view that is
// already correct is left alone, so that nobody waits for it.
func (d *Driver) SwapTable(ctx context.Context, build domain.Build, overrides []drivers.Override) error {
	return dialect.SwapTable(build, overrides, func(view relational.View) error {
		return d.defineShortly(ctx, relational.SwapPatience, view.Name, func(tx *sql.Tx) error { return swapView(ctx, tx, view) })
	})
}

func swapView(ctx context.Context, tx *sql.Tx, view relational.View) error {
	for _, name := range view.Tables {
		if err := mustExist(ctx, tx, name); err != nil {
			return err
		}
	}
	type definition struct {
		exists bool
		text   string
	}
	found, err := collect(ctx, tx, viewText(view.Name), func(rows *sql.Rows) (found definition, err error) {
		err = rows.Scan(&found.exists, &found.text)
		return found, err
	}, nil)
	switch {
	case err != nil:
		return err
	case len(found) != 1:
		return errors.New("the database does not say whether there is a view")
	case showsQuery(found[0].text, view.Query):
		return nil
	}
	_, err = tx.ExecContext(ctx, viewSQL(view.Name, view.Query, found[0].exists))
	return err
}
