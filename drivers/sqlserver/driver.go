// Package sqlserver is the driver that stores documents in Microsoft SQL Server, version 2019 or later, and in Azure
// SQL. Start with Config, Open and Driver.
//
// All tables are in the schema "manifold_documents" and have the same columns:
//
//	tenant_id uniqueidentifier
//	build     bigint
//	id_bytes  varbinary(512)   the document's id as UTF-8
//	id        nvarchar(512)    the same for people
//	version   bigint
//	document  varchar(max)     JSON as UTF-8; nvarchar(max) in tables of earlier releases
//	[key ...] varbinary(1001)  a sort key for each path that the definition declares: see sortkey.go
//	[partition ...] binary(16) a hash of the value at the path of partitionBy: see partition.go
//	primary key clustered (tenant_id, build, id_bytes)
//
// Each build of a shared projection has a table named after it, such as "order-summary.12". The builds of tenants' own
// projections share the table "documents", and the table "document_keys" is their index: see keys.go. A tenant's
// checkpoint in a build is the row with the empty id: its version is the position, and its document is null.
//
// The key holds ids as bytes because SQL Server ignores blanks at the end of a text, whatever its collation: "a" and "a
// " would be one key. It also pads the shorter of two binary values with 0x00, but no id contains that byte.
//
// # Reading and writing at the same time
//
// A save is one transaction at the isolation level read committed. It first takes the checkpoint's row by a
// compare-and-set and locks it until it ends. So two saves of one tenant never overlap, and the loser finds the
// checkpoint moved. That holds whether the database's setting read_committed_snapshot is on or off, because a row to be
// changed is always read as last committed, under a lock. A hint ensures that where optimized locking would omit the
// lock.
//
// A reader sees all of a save or nothing of it. With read_committed_snapshot on (recommended, and the default of Azure
// SQL) each statement reads what was committed when it began, and waits for nobody. With it off, a read first takes a
// shared lock on the checkpoint's row and keeps it until it ends: readers and savers of one tenant wait for one
// another. When it is opened, the driver asks which of the two applies, and for everything else that depends on the
// server: see abilities.
//
// Locks are on rows, and the tables never escalate them: escalation would stop all tenants because of one. A save never
// locks a range; if two find no checkpoint, the second one's insert is a duplicate key.
//
// # Limitations
//
// The statements separate the tenants: each names its tenant. The driver does not use the server's row-level security,
// because the login that owns the tables bypasses it anyway. matches() is refused below compatibility level 170 (SQL
// Server 2025): earlier versions have no regular expressions. Logging in by Microsoft Entra ID needs a client library
// that is not built in.
//
// # Behavior that only a server can confirm
//
// The tests that need a server run if MANIFOLD_TEST_SQLSERVER_URL names one. Without it, the statements are compared
// with testdata, and the following rests on documentation:
//   - that there is a plan for every statement with hints (else error 8622), and that it is the one look-up per row for
//     which fromBatch asks
//   - that OPENJSON returns a number as the text that was saved and a name without its escapes, and how it treats a
//     name of more than 4,000 characters, the length of its column key
//   - how deeply ISJSON accepts nested lists and objects, and by which error it refuses them: 547 and 13609 are
//     expected
//   - what happens to a transaction in which a statement cannot be compiled, which onConnection ends either way
//   - that REGEXP_LIKE reads a pattern as RE2 does, and how it treats a text of more than 2 MB
//   - that pages and counts by keys read the keys in order, and each document once
//   - that an index in descending order is used for a page in that order, and that an online build makes nobody wait
//   - how long savers and readers wait for one another with read_committed_snapshot off, and with optimized locking on
package sqlserver

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Config says how to reach the database.
type Config struct {
	URL      string // sqlserver://user:password@host:1433?database=name, with the parameters of go-mssqldb
	MaxConns int    // 0: 8
	Log      *slog.Logger
}

// Driver stores documents in one SQL Server database. It is a drivers.Driver.
type Driver struct {
	db      *sql.DB
	log     *slog.Logger
	server  abilities      // known when the driver is opened
	columns sync.Map       // table -> columns; see columnsOf
	calls   sync.WaitGroup // those in progress
}

var _ drivers.Driver = (*Driver)(nil)

// Open connects and ensures that the schema and the common table exist. The caller must close the driver.
func Open(ctx context.Context, config Config) (*Driver, error) {
	parsed, err := msdsn.Parse(config.URL)
	if err != nil {
		return nil, fmt.Errorf("the documents' database URL: %w", err)
	}
	if parsed.Database == "" {
		return nil, errors.New("the documents' database URL: no database is named; add ?database=name")
	}
	if _, named := parsed.Parameters[msdsn.AppName]; !named {
		parsed.AppName = "manifold-documents"
	}
	if !verified(parsed) && config.Log != nil {
		config.Log.WarnContext(ctx, "the connection to the documents' database does not verify the server's certificate: anyone on the network path can read and change everything; add encrypt=true and TrustServerCertificate=false to its URL", "host", parsed.Host)
	}
	db := sql.OpenDB(mssql.NewConnectorConfig(parsed))
	conns := cmp.Or(config.MaxConns, 8)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	d := &Driver{db: db, log: config.Log}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	if err := d.prepareDatabase(ctx); err != nil {
		d.Close()
		return nil, fmt.Errorf("prepare the documents' database: %w", err)
	}
	return d, nil
}

// verified reports whether the server's certificate is verified, or the server is on this machine.
func verified(c msdsn.Config) bool {
	if address, err := netip.ParseAddr(c.Host); c.Host == "localhost" || err == nil && address.IsLoopback() {
		return true
	}
	encrypts := c.Encryption == msdsn.EncryptionRequired || c.Encryption == msdsn.EncryptionStrict
	return encrypts && !c.TrustServerCertificate
}

// Close waits for calls in progress and closes all connections.
func (d *Driver) Close() {
	d.calls.Wait()
	if err := d.db.Close(); err != nil {
		d.log.Warn("closing the connections to the documents' database", "error", err)
	}
}

// Ping reports whether the database answers.
func (d *Driver) Ping(ctx context.Context) error {
	_, err := try(ctx, d, func(ctx context.Context, conn *sql.Conn) (struct{}, error) { return struct{}{}, conn.PingContext(ctx) })
	if err != nil {
		return fmt.Errorf("ping the documents' database: %w", err)
	}
	return nil
}

// Save stores a batch in one transaction. A batch of one part, as is usual while a projection follows its log, is one
// round trip. The documents of a larger batch, as in a rebuild, are copied in bulk, part by part.
//
// Save retries a transaction a few times if it was rolled back, or if a lost connection hides its outcome. The
// compare-and-set makes that safe: if the transaction had been committed after all, the result is ErrStale.
func (d *Driver) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	if err := errors.Join(drivers.CheckTenant(build, tenant), batch.Check()); err != nil {
		return err
	}
	for i := range batch.Upserts {
		if err := domain.CheckJSON(batch.Upserts[i].Data); err != nil {
			return domain.Errorf(domain.CodeInvalidJSON, "document "+batch.Upserts[i].ID, "its data cannot be kept: %s", err)
		}
	}
	borrowed := &borrowedBatch{batch: batch}
	defer borrowed.revoke()
	stale, err := withColumns(ctx, d, build, func(table table) (bool, error) {
		return try(ctx, d, func(ctx context.Context, conn *sql.Conn) (bool, error) {
			return save(ctx, conn, table, tenant, borrowed)
		})
	})
	switch number := numberOf(err); {
	case batch.From == 0 && (number == errorDuplicateKey || number == errorDuplicateRow):
		// Another first save was faster.
		return drivers.ErrStale
	case number == errorCheck || number == errorNestedTooDeep:
		err = fmt.Errorf("%w: %w", domain.Errorf(domain.CodeInvalidJSON, "batch", "the database refuses a document's data as JSON; it may be nested too deep"), err)
	}
	if err == nil && stale {
		return drivers.ErrStale
	}
	return drivers.BuildError("save to", build, err)
}

// borrowedBatch is a batch that belongs to the caller again when Save returns. A cancelled save may then still be
// waiting for the server, and must no longer read the batch.
type borrowedBatch struct {
	mutex   sync.Mutex
	batch   drivers.Batch
	revoked bool
}

// revoke waits until nobody reads the batch.
func (b *borrowedBatch) revoke() {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.revoked = true
}

// use lets read examine the batch. It returns an error if the batch was revoked.
func (b *borrowedBatch) use(read func(batch drivers.Batch) error) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.revoked {
		return context.Canceled
	}
	return read(b.batch)
}

// save reports whether the batch is stale. It builds each part's statement, which shares no memory with the batch,
// before it sends it.
func save(ctx context.Context, conn *sql.Conn, table table, tenant domain.TenantID, batch *borrowedBatch) (stale bool, err error) {
	var single *statement // saves the whole batch
	var move statement
	var end *statement // the last of a save in parts
	err = batch.use(func(batch drivers.Batch) error {
		if part, rest := nextPart(batch); len(rest.Upserts)+len(rest.Deletes) == 0 {
			rows, err := encodePart(part, table)
			all := table.saveInOneTrip(tenant, batch, rows)
			single = &all
			return err
		}
		move = table.moveCheckpoint(tenant, batch)
		switch {
		case batch.To == 0:
			unmark := table.removeMark(tenant)
			end = &unmark
		case table.keyed() && !batch.IsRepair():
			keys := table.moveKeys(tenant, batch)
			end = &keys
		}
		return nil
	})
	if err != nil {
		return false, err
	}
	if single != nil {
		moved, err := number(ctx, conn, *single)
		return moved == 0, err
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() {
		if err != nil || stale {
			_ = tx.Rollback() // the server may have ended the transaction already
		}
	}()
	moved, err := number(ctx, tx, move)
	if err != nil || moved == 0 {
		return moved == 0, err
	}
	staged := false
	var remaining drivers.Batch
	for first := true; first || len(remaining.Upserts)+len(remaining.Deletes) > 0; first = false {
		var rows part
		err := batch.use(func(batch drivers.Batch) (err error) {
			if first {
				remaining = batch
			}
			part, rest := nextPart(remaining)
			remaining = rest
			rows, err = encodePart(part, table)
			return err
		})
		if err == nil && len(rows.upserts) > 0 {
			err = copyPart(ctx, tx, table, tenant, rows.upserts, staged)
			staged, rows.upserts = true, nil
		}
		if err == nil && len(rows.deletes) > 0 {
			deletes := table.savePart(tenant, rows)
			_, err = tx.ExecContext(ctx, deletes.sql, deletes.args...)
		}
		if err != nil {
			return false, err
		}
	}
	if end != nil {
		if _, err := tx.ExecContext(ctx, end.sql, end.args...); err != nil {
			return false, err
		}
	}
	return false, tx.Commit()
}

// copyPart copies documents to the server in bulk, and writes them from there. staged: the stage exists.
func copyPart(ctx context.Context, tx *sql.Tx, table table, tenant domain.TenantID, rows []row, staged bool) (err error) {
	if !staged {
		if _, err := tx.ExecContext(ctx, table.createStage().sql); err != nil {
			return err
		}
	}
	names, _ := table.staged()
	bulk, err := tx.PrepareContext(ctx, mssql.CopyIn(stage, mssql.BulkOptions{RowsPerBatch: len(rows)}, names...))
	if err != nil {
		return err
	}
	for i := range rows {
		if _, err := bulk.ExecContext(ctx, rows[i].values()...); err != nil {
			return errors.Join(err, bulk.Close())
		}
	}
	if _, err := bulk.ExecContext(ctx); err != nil {
		return errors.Join(err, bulk.Close())
	}
	if err := bulk.Close(); err != nil {
		return err
	}
	save := table.saveStage(tenant)
	_, err = tx.ExecContext(ctx, save.sql, save.args...)
	return err
}

// Checkpoint returns the stored checkpoint, or 0 if there is none.
func (d *Driver) Checkpoint(ctx context.Context, build domain.Build, tenant domain.TenantID) (int64, error) {
	if err := drivers.CheckTenant(build, tenant); err != nil {
		return 0, err
	}
	positions, err := read(ctx, d, tableOf(build).checkpoint(tenant), func(rows *sql.Rows) (position int64, err error) {
		err = rows.Scan(&position)
		return position, err
	})
	if err != nil || len(positions) == 0 {
		return 0, drivers.BuildError("read the checkpoint of", build, err)
	}
	return positions[0], nil
}

// Checkpoints yields every tenant's stored checkpoint.
func (d *Driver) Checkpoints(ctx context.Context, build domain.Build) iter.Seq2[drivers.Checkpoint, error] {
	return drivers.AllCheckpoints(ctx, d, build, func() ([]drivers.Checkpoint, error) {
		return read(ctx, d, tableOf(build).checkpoints(), func(rows *sql.Rows) (checkpoint drivers.Checkpoint, err error) {
			err = rows.Scan((*mssql.UniqueIdentifier)(&checkpoint.Tenant), &checkpoint.Position)
			return checkpoint, err
		})
	})
}

// OwnCheckpoints yields the stored checkpoint of every build of tenants' own projections.
func (d *Driver) OwnCheckpoints(ctx context.Context) iter.Seq2[drivers.OwnCheckpoint, error] {
	return drivers.AllOwnCheckpoints(func() ([]drivers.OwnCheckpoint, error) {
		return read(ctx, d, ownCheckpoints(), func(rows *sql.Rows) (checkpoint drivers.OwnCheckpoint, err error) {
			err = rows.Scan((*mssql.UniqueIdentifier)(&checkpoint.Tenant), &checkpoint.Build, &checkpoint.Position)
			return checkpoint, err
		})
	})
}

// DropTenant removes one tenant's documents and checkpoint from the build.
func (d *Driver) DropTenant(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	return drivers.DropTenant(build, tenant, func() error { return d.dropRows(ctx, build, tenant) })
}

func (d *Driver) dropRows(ctx context.Context, build domain.Build, tenant domain.TenantID) error {
	table := tableOf(build)
	checkpoint := func() error {
		first := table.dropCheckpoint(tenant)
		_, err := try(ctx, d, func(ctx context.Context, conn *sql.Conn) (sql.Result, error) {
			return conn.ExecContext(ctx, first.sql, first.args...)
		})
		return err
	}
	err := drivers.DropRows(checkpoint, func(after []byte) (last []byte, err error) {
		found, err := read(ctx, d, table.dropSlice(tenant, after), func(rows *sql.Rows) (last []byte, err error) {
			err = rows.Scan(&last)
			return last, err
		})
		if err != nil || len(found) == 0 {
			return nil, err
		}
		return found[0], nil
	})
	if err != nil || build.Shared() {
		return err
	}
	return d.dropKeys(ctx, build, tenant)
}
