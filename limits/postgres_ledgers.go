package limits

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// ledgerName identifies the ledger of a tenant, or of one of its keys.
type ledgerName struct {
	tenant domain.TenantID
	key    domain.UUID // zero: the tenant's own
}

// question is a process's demand of one ledger, and what the database answers.
type question struct {
	ledgerName
	limits     domain.Limits
	demand     demand
	wantStored bool // the tenant has a quota for stored events

	ledger  ledger
	found   bool
	locked  bool // another process has locked the ledger: there is no answer
	stored  stored
	grant   grant
	settled bool
}

// stored is what a tenant has stored.
type stored struct {
	events, bytes int64 // counted so far
	uncounted     int64 // events that are not counted yet
	complete      bool  // all events from before there was a quota are counted
}

// Statements about the ledger of a tenant $1 and a key $2, and about a tenant's stored events.
const (
	lockLedger   = "select l.state from limit_ledgers l where l.tenant_id = $1 and l.key_id = $2 for update skip locked"
	findLedger   = "select count(*) > 0 from limit_ledgers l where l.tenant_id = $1 and l.key_id = $2"
	updateLedger = "update limit_ledgers l set state = $3, updated_at = now() where l.tenant_id = $1 and l.key_id = $2"
	insertLedger = "insert into limit_ledgers (tenant_id, key_id, state) values ($1, $2, $3) on conflict do nothing"
	readStored   = `
		select coalesce(max(s.events), 0), coalesce(max(s.bytes), 0), coalesce(max(l.head), 0) - coalesce(max(s.counted_to), 0),
			coalesce(bool_or(s.complete), false)
		from logs l left join stored_events s on s.tenant_id = l.tenant_id
		where l.tenant_id = $1::uuid`
)

// node returns the node of a cluster with a tenant's ledgers.
func (s *Postgres) node(tenant domain.TenantID) int32 { return s.db.Node(tenant) }

// settle answers the questions of a process in one transaction, but leaves out ledgers that are locked: a process that
// stops while it has some locked does not delay others. The questions must be about tenants of one node, and in the
// order of their ledgers, so that concurrent processes create them in the same order.
func (s *Postgres) settle(ctx context.Context, process string, questions []*question) error {
	return pg.InTurn(ctx, s.db.Foreground, questions[0].tenant, func(tx pgx.Tx) error { return settle(ctx, tx, process, questions) })
}

func settle(ctx context.Context, tx pgx.Tx, process string, questions []*question) error {
	// The time is that of the beginning, before the locks: a lease ends earlier rather than later, and a bucket gets
	// fewer tokens rather than more.
	var now time.Time
	var read pgx.Batch
	read.Queue("select now()").QueryRow(func(row pgx.Row) error { return row.Scan((*pg.Moment)(&now)) })
	for _, q := range questions {
		q.queueRead(&read)
	}
	if err := tx.SendBatch(ctx, &read).Close(); err != nil {
		return fmt.Errorf("read ledgers of limits: %w", err)
	}
	var find pgx.Batch
	for _, q := range questions {
		if !q.found {
			find.Queue(findLedger, q.tenant, q.key).
				QueryRow(func(row pgx.Row) error { return row.Scan(&q.locked) })
		}
	}
	if find.Len() > 0 {
		if err := tx.SendBatch(ctx, &find).Close(); err != nil {
			return fmt.Errorf("look for locked ledgers of limits: %w", err)
		}
	}
	var write pgx.Batch
	for _, q := range questions {
		if q.locked {
			continue
		}
		if q.grant, q.settled = q.ledger.settle(now.UnixMicro(), &q.limits, process, q.demand); !q.settled {
			continue
		}
		state, err := json.Marshal(q.ledger)
		if err != nil {
			return fmt.Errorf("encode a ledger of limits: %w", err)
		}
		if q.found {
			write.Queue(updateLedger, q.tenant, q.key, state)
		} else {
			// Another process may have created it in the meantime: then this one has nothing, and asks again.
			write.Queue(insertLedger, q.tenant, q.key, state).
				Exec(func(done pgconn.CommandTag) error {
					q.settled = done.RowsAffected() == 1
					return nil
				})
		}
	}
	if write.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &write).Close(); err != nil {
		return fmt.Errorf("write ledgers of limits: %w", err)
	}
	return nil
}

func (q *question) queueRead(batch *pgx.Batch) {
	batch.Queue(lockLedger, q.tenant, q.key).
		QueryRow(func(row pgx.Row) error {
			var state []byte
			err := row.Scan(&state)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			q.found = true
			return json.Unmarshal(state, &q.ledger)
		})
	if q.wantStored {
		q.queueStored(batch)
	}
}

func (q *question) queueStored(batch *pgx.Batch) {
	batch.Queue(readStored, q.tenant).
		QueryRow(func(row pgx.Row) error {
			return row.Scan(&q.stored.events, &q.stored.bytes, &q.stored.uncounted, &q.stored.complete)
		})
}

// forgetLedgers deletes ledgers that no process has used for a day. By then their buckets are full.
func (s *Postgres) forgetLedgers(ctx context.Context) error {
	if _, err := s.db.System.Exec(ctx, "delete from limit_ledgers l where l.updated_at < now() - interval '1 day'"); err != nil {
		return pg.Unavailable(fmt.Errorf("delete unused ledgers of limits: %w", err))
	}
	return nil
}
