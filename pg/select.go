package pg

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
)

// The functions here run a single statement. In their errors, what says what the statement does: "list the faults".

// Select returns the rows of a query across tenants, with a login that may see them.
func Select[T any](ctx context.Context, pool *pgxpool.Pool, what string, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := pool.Query(ctx, sql, args...)
	found, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, Unavailable(fmt.Errorf("%s: %w", what, err))
	}
	return found, nil
}

// SelectUnder returns the rows of a query in a transaction under the tenant.
func SelectUnder[T any](ctx context.Context, pool *Pool, tenant domain.TenantID, what string, scan pgx.RowToFunc[T], sql string, args ...any) (found []T, err error) {
	err = Under(ctx, pool, tenant, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, sql, args...)
		if found, err = pgx.CollectRows(rows, scan); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
	return found, err
}

// SelectOneUnder returns the only row of a query in a transaction under the tenant; ok is false if there is none.
func SelectOneUnder[T any](ctx context.Context, pool *Pool, tenant domain.TenantID, what string, scan pgx.RowToFunc[T], sql string, args ...any) (found T, ok bool, err error) {
	err = Under(ctx, pool, tenant, func(tx pgx.Tx) error {
		found, ok, err = SelectOne(ctx, tx, what, scan, sql, args...)
		return err
	})
	return found, ok && err == nil, err
}

// SelectOne is SelectOneUnder in a transaction under way.
func SelectOne[T any](ctx context.Context, tx pgx.Tx, what string, scan pgx.RowToFunc[T], sql string, args ...any) (found T, ok bool, err error) {
	rows, _ := tx.Query(ctx, sql, args...)
	found, err = pgx.CollectExactlyOneRow(rows, scan)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return found, false, nil
	case err != nil:
		return found, false, fmt.Errorf("%s: %w", what, err)
	}
	return found, true, nil
}

// ExecUnder executes a statement in a transaction under the tenant, and returns how many rows it has changed.
func ExecUnder(ctx context.Context, pool *Pool, tenant domain.TenantID, what, sql string, args ...any) (changed int64, err error) {
	err = Under(ctx, pool, tenant, func(tx pgx.Tx) error {
		changed, err = Exec(ctx, tx, what, sql, args...)
		return err
	})
	return changed, err
}

// Exec executes a statement in a transaction under way, and returns how many rows it has changed.
func Exec(ctx context.Context, tx pgx.Tx, what, sql string, args ...any) (changed int64, err error) {
	done, err := tx.Exec(ctx, sql, args...)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return done.RowsAffected(), nil
}
