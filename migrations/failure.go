package migrations

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/source"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/jackc/pgx/v5/pgconn"
)

// up brings the schema to the newest version, one migration at a time. golang-migrate would read the next migrations
// ahead, and leave them half read when one fails. A newer schema stays, since the previous release can run on it.
func up(ctx context.Context, m *migrate.Migrate) error {
	interrupted := 0 // how often in a row
	for end := time.Now().Add(lockPatience); ; {
		version, dirty, err := m.Version()
		if err != nil && !errors.Is(err, migrate.ErrNilVersion) {
			return err
		}
		if !dirty {
			interrupted = 0
		}
		if version > Latest() || version == Latest() && !dirty {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = m.Steps(1)
		if errors.Is(err, os.ErrNotExist) {
			continue // another process is migrating, and has applied the last migration
		}
		if interruption, ok := errors.AsType[migrate.ErrDirty](err); ok {
			// Another process may be about to roll its migration back.
			if interrupted++; interrupted < dirtyTries {
				if err := pause(ctx, dirtyPause); err != nil {
					return err
				}
				continue
			}
			return fmt.Errorf("a migration to version %[1]d was interrupted: check whether the objects that %04[1]d creates exist; then set dirty to false in the table manifold_schema, and if they do not exist, version to the previous one", interruption.Version)
		}
		if native, ok := errors.AsType[database.Error](err); ok && isServerError(native.OrigErr) {
			err = recordRollback(m, native.OrigErr)
			if !isLockTimeout(err) {
				return err
			}
			if time.Now().After(end) {
				return fmt.Errorf("%w; a long transaction, such as a backup, or a vacuum of the table is in progress: migrate again when it has ended", err)
			}
			if ended := pause(ctx, lockPause); ended != nil {
				return errors.Join(ended, err)
			}
			continue
		}
		if err != nil {
			return err
		}
	}
}

const (
	// lockTimeout is how long a migration waits for a lock. Appends and reads queue after it meanwhile, so it is
	// shorter than the lock timeout of the service's own statements.
	lockTimeout = "2s"
	// lockPause is the pause before the next attempt, and lockPatience the time after which there is none.
	lockPause    = 3 * time.Second
	lockPatience = 5 * time.Minute
	// dirtyTries is how often a migration must look interrupted, with dirtyPause between, before it counts as such.
	dirtyTries = 10
	dirtyPause = 300 * time.Millisecond
)

// pause waits. It returns the error of ctx if that ends first.
func pause(ctx context.Context, length time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(length):
		return nil
	}
}

// lockTimeoutSource is a source whose migrations give up when they wait too long for a lock.
type lockTimeoutSource struct{ source.Driver }

// ReadUp returns a migration that begins with its lock timeout. It holds for the file's own transaction.
func (y lockTimeoutSource) ReadUp(version uint) (io.ReadCloser, string, error) {
	file, name, err := y.Driver.ReadUp(version)
	if err != nil {
		return nil, "", err
	}
	text := io.MultiReader(strings.NewReader("set local lock_timeout = '"+lockTimeout+"';\n"), file)
	return struct {
		io.Reader
		io.Closer
	}{text, file}, name, nil
}

func isLockTimeout(err error) bool {
	const lockNotAvailable = "55P03"
	native, ok := errors.AsType[*pgconn.PgError](err)
	return ok && native.Code == lockNotAvailable
}

// recordRollback records that a migration refused by PostgreSQL left nothing in place. A file is one transaction,
// so it is applied completely or not at all. The next attempt starts with that migration.
func recordRollback(m *migrate.Migrate, cause error) error {
	version, dirty, err := m.Version()
	if err != nil || !dirty {
		return errors.Join(cause, err)
	}
	previous, err := previousVersion(version)
	if err == nil {
		err = m.Force(previous)
	}
	return errors.Join(fmt.Errorf("the migration to version %d was refused, and nothing of it is left: %w", version, cause), err)
}

// previousVersion returns the version before the given one, as Force expects it: -1 before the first.
func previousVersion(version uint) (int, error) {
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

// isServerError reports whether the error is PostgreSQL's own answer, so that the outcome is certain.
func isServerError(err error) bool {
	_, ok := errors.AsType[*pgconn.PgError](err)
	return ok
}

const insufficientPrivilege = "42501"

// plain removes what golang-migrate adds to a database error: the whole text of the query. For a missing permission,
// it adds what to do.
func plain(err error) error {
	cause := err
	if e, ok := errors.AsType[database.Error](err); ok {
		cause = e.OrigErr
	} else if e, ok := errors.AsType[*database.Error](err); ok {
		cause = e.OrigErr
	}
	if native, ok := errors.AsType[*pgconn.PgError](cause); ok && native.Code == insufficientPrivilege {
		return fmt.Errorf("%w; the migrator must own the database (alter database ... owner to ...), and have CREATEROLE unless the roles exist: see docs/guides/operations.md", cause)
	}
	return cause
}
