package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/migrations"
)

// CheckSchema says what keeps this program from working on the database's schema: it is not there, older than what the
// program needs, or left half-way by a migration that failed or is still running. Absence knows these errors. A newer one is no obstacle: the previous release runs on
// the next one's schema.
func (s *Store) CheckSchema(ctx context.Context) error {
	var version int64
	var dirty bool
	// The table is where the migrator's own search path put it, which is the schema public unless somebody changed that.
	err := s.system.QueryRow(ctx, "select version, dirty from public.manifold_schema").Scan(&version, &dirty)
	const (
		undefinedTable        = "42P01"
		insufficientPrivilege = "42501"
	)
	switch state := sqlState(err); {
	case errors.Is(err, pgx.ErrNoRows), state == undefinedTable, state == insufficientPrivilege:
		return &schemaError{"the database has no schema yet: run `manifold migrate up` with the same configuration"}
	case err != nil:
		return fmt.Errorf("check the schema: %w", unavailable(err))
	case dirty:
		return &schemaError{fmt.Sprintf("a migration to version %d of the schema is under way, or was cut off half-way: `manifold migrate up` says what to do", version)}
	case version < int64(migrations.Latest()):
		return &schemaError{fmt.Sprintf("the schema is at version %d, and this program needs %d: run `manifold migrate up`", version, migrations.Latest())}
	}
	return nil
}

// Synced reports whether the database has a commit on disk before it answers. Where it has not, a crash of its machine
// can lose what was acknowledged.
func (s *Store) Synced(ctx context.Context) (bool, error) {
	var fsync, commit string
	err := s.app.QueryRow(ctx, "select current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit)
	if err != nil {
		return false, fmt.Errorf("ask whether commits are synced: %w", unavailable(err))
	}
	return fsync == "on" && commit != "off", nil
}
