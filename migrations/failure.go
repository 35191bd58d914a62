package migrations

import (
	"errors"
	"fmt"
	"os"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5/pgconn"
)

// up brings the schema to the newest version, one migration after the other: golang-migrate would read the next ones
// ahead, and leave them half read where one fails. A newer schema stays: the release before runs on it.
func up(m *migrate.Migrate) error {
	for {
		version, dirty, err := m.Version()
		if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
			return err
		}
		if version > Latest() || version == Latest() && !dirty {
			return nil
		}
		err = m.Steps(1)
		if errors.Is(err, os.ErrNotExist) {
			continue // another process was at it, and has done the last one
		}
		if halfWay, ok := errors.AsType[migrate.ErrDirty](err); ok {
			return fmt.Errorf("a migration to version %[1]d was cut off half-way: look whether what %04[1]d makes is there; then set dirty to false in the table manifold_schema, and version to the one before where it is not", halfWay.Version)
		}
		if native, ok := errors.AsType[database.Error](err); ok && answered(native.OrigErr) {
			return takenBack(m, native.OrigErr)
		}
		if err != nil {
			return err
		}
	}
}

// takenBack notes that a migration that PostgreSQL has refused left nothing behind: a file is sent as one query, which is
// one transaction, so that it is there whole or not at all. The next attempt begins with it again.
func takenBack(m *migrate.Migrate, cause error) error {
	version, dirty, err := m.Version()
	if err != nil || !dirty {
		return errors.Join(cause, err)
	}
	previous, err := before(version)
	if err == nil {
		err = m.Force(previous)
	}
	return errors.Join(fmt.Errorf("the migration to version %d was refused, and nothing of it is left: %w", version, cause), err)
}

// before is the version before another one, as Force takes it: -1 before the first.
func before(version uint) (int, error) {
	source, err := iofs.New(files, ".")
	if err != nil {
		return 0, err
	}
	defer source.Close()
	first, err := source.First()
	if err != nil || version <= first {
		return -1, err
	}
	previous, err := source.Prev(version)
	return int(previous), err
}

// answered reports whether PostgreSQL has answered with the error, so that nothing is uncertain.
func answered(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok
}

// plain leaves away what golang-migrate puts around an error of the database: the whole text of the query.
func plain(err error) error {
	const insufficientPrivilege = "42501"
	cause := err
	if e, ok := errors.AsType[database.Error](err); ok {
		cause = e.OrigErr
	} else if e, ok := errors.AsType[*database.Error](err); ok {
		cause = e.OrigErr
	}
	if native, ok := errors.AsType[*pgconn.PgError](cause); ok && native.Code == insufficientPrivilege {
		return fmt.Errorf("%w; the migrator must own the database (alter database ... owner to ...), and have CREATEROLE or find the roles made: see docs/guides/operations.md", cause)
	}
	return cause
}
