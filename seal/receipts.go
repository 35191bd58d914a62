package seal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/proof"
	"github.com/manifold-es/manifold/signing"
)

// receiptsPerBlock is how many receipts with different causes a block has. Those after it have one receipt of each kind
// together, whose cause is otherCauses. So a block has at most two more.
const (
	receiptsPerBlock = 64
	otherCauses      = "more causes than are listed"
)

const (
	// The receipts that may be extended, and how many there are.
	readReceipts = `
		select r.block, r.receipt_id, case when r.receipt_id = any ($3::uuid[]) then r.receipt end from seal_receipts as r
		where r.tenant_id = $1 and r.block = any ($2::bigint[])`

	insertReceipt = `
		insert into seal_receipts (tenant_id, block, receipt_id, receipt) values ($1::uuid, $2, $3, $4)
		on conflict (tenant_id, block, receipt_id) do nothing`

	replaceReceipt = `
		update seal_receipts as r set receipt = $4
		where r.tenant_id = $1 and r.block = $2 and r.receipt_id = $3 and r.receipt = $5`
)

// Receipts signs receipts about a log.
type Receipts struct {
	log  domain.TenantID
	keys *signing.Ring
	met  map[string]bool // stored receipts with unknown keys that were read before the keys were loaded
}

// receiptTries is how often WithReceipts calls do.
const receiptTries = 5

// errConcurrent makes WithReceipts call do again.
var errConcurrent = domain.Errorf(domain.CodeUnavailable, "",
	"the receipts of the log, or the keys that sign them, were just changed by another process; try again")

// WithReceipts calls do with what signs receipts about a log. do runs the transaction that needs it. If the transaction
// fails because of others, or because the keys were rotated, WithReceipts calls do again, at most four times. It loads
// the keys before each call, so that the transaction needs no second connection.
func (s *Postgres) WithReceipts(ctx context.Context, log domain.TenantID, do func(*Receipts) error) (err error) {
	receipts := &Receipts{log: log, met: make(map[string]bool)}
	for attempt := 1; ; attempt++ {
		// Older keys might not include the newest one: what that has signed would be replaced.
		if receipts.keys, err = s.keys.Reload(ctx); err != nil {
			return err
		}
		err = do(receipts)
		if !errors.Is(err, errConcurrent) && !pg.Busy(pg.SQLState(err)) || attempt == receiptTries {
			return err
		}
		pg.BackOff(ctx, attempt)
	}
}

// receiptKey identifies a stored receipt of a log.
type receiptKey struct {
	block int64
	id    [16]byte
}

// receiptID returns the id of a block's receipt for a cause.
func receiptID(kind proof.Kind, cause string) [16]byte {
	return [16]byte(domain.DeriveEventID(string(kind) + "\n" + cause))
}

// Queue queues signed receipts for events which the transaction of the batch removes or erases. cause says in one line
// what asked for that. A block has one receipt for each kind and cause: positions are added to it. The transaction
// needs the retention login. If another one changes the same receipt, the batch fails, and so does Queue if a receipt
// is signed with a key that is not known yet. WithReceipts repeats both.
func (r *Receipts) Queue(
	ctx context.Context, tx pgx.Tx, batch *pgx.Batch, kind proof.Kind, cause string, positions []int64,
) error {
	byBlock := make(map[int64][]int64)
	for _, position := range positions {
		block := (position - 1) / proof.BlockSize
		byBlock[block] = append(byBlock[block], position)
	}
	blocks := slices.Sorted(maps.Keys(byBlock)) // in this order, so that transactions do not block each other
	own, other := receiptID(kind, cause), receiptID(kind, otherCauses)
	stored, count, err := r.read(ctx, tx, blocks, [][16]byte{own, other})
	if err != nil {
		return err
	}
	mustReload := false
	for _, block := range blocks {
		receipt := proof.Receipt{
			Origin: originOf(r.keys, r.log), Kind: kind, Cause: cause, At: time.Now(), Positions: byBlock[block],
		}
		key := receiptKey{block, own}
		before, exists := stored[key]
		if !exists && count[block] >= receiptsPerBlock {
			key.id, receipt.Cause = other, otherCauses
			before, exists = stored[key]
		}
		// A receipt that cannot be read explains nothing, so it is replaced. But its key may be newer than this Ring's
		// keys, and what a Ring has verified must not be signed with another, so the transaction begins again once.
		text, err := r.keys.Open([]byte(before))
		if errors.Is(err, signing.ErrUnknownKey) && !r.met[before] {
			r.met[before], mustReload = true, true
			continue
		}
		earlier, parsed := proof.ParseReceipt(text)
		known := err == nil && parsed == nil && earlier.Origin == receipt.Origin && earlier.Kind == kind
		if known {
			receipt.Positions = append(receipt.Positions, earlier.Positions...)
		}
		receipt.Positions = slices.Compact(slices.Sorted(slices.Values(receipt.Positions)))
		if known && len(receipt.Positions) == len(earlier.Positions) {
			continue // it is a repetition
		}
		signed, err := r.keys.Sign(receipt.Text())
		if err != nil {
			return err
		}
		statement, args := insertReceipt, []any{r.log, block, key.id, string(signed)}
		if exists {
			statement, args = replaceReceipt, append(args, before)
		}
		batch.Queue(statement, args...).Exec(func(done pgconn.CommandTag) error {
			if done.RowsAffected() == 0 {
				return errConcurrent
			}
			return nil
		})
	}
	if mustReload {
		return errConcurrent
	}
	return nil
}

// read returns the stored receipts with some ids, and how many each block has.
func (r *Receipts) read(ctx context.Context, tx pgx.Tx, blocks []int64, ids [][16]byte) (
	stored map[receiptKey]string, count map[int64]int, err error,
) {
	stored, count = make(map[receiptKey]string), make(map[int64]int)
	rows, _ := tx.Query(ctx, readReceipts, r.log, blocks, ids)
	var key receiptKey
	var text *string
	_, err = pgx.ForEachRow(rows, []any{&key.block, &key.id, &text}, func() error {
		if count[key.block]++; text != nil {
			stored[key] = *text
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("read receipts: %w", err)
	}
	return stored, count, nil
}

// ForgetSalts erases the salts of events whose content was erased, and leaves signed receipts. The erasure must be
// committed already: then what is sealed later has its result, and what was sealed before loses its salt here. cause
// names the erasure in one line. It may be repeated, and should get at most a few thousand positions at a time. Without
// a log, it does nothing.
func (s *Postgres) ForgetSalts(ctx context.Context, log domain.TenantID, cause string, positions []int64) error {
	return s.WithReceipts(ctx, log, func(receipts *Receipts) error {
		return pg.Under(ctx, s.db.Retention, log, func(tx pgx.Tx) error {
			return forgetSalts(ctx, tx, log, receipts, cause, positions)
		})
	})
}

func forgetSalts(
	ctx context.Context, tx pgx.Tx, log domain.TenantID, receipts *Receipts, cause string, positions []int64,
) error {
	if _, exists, err := lockState(ctx, tx, log); err != nil || !exists {
		return err
	}
	byTile := make(map[int64][]int64)
	for _, p := range positions {
		byTile[(p-1)/tile] = append(byTile[(p-1)/tile], p)
	}
	var batch pgx.Batch
	for number, of := range byTile {
		if err := queueForgetting(ctx, tx, &batch, log, number, of); err != nil {
			return err
		}
	}
	if err := receipts.Queue(ctx, tx, &batch, proof.Erased, cause, positions); err != nil {
		return err
	}
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return fmt.Errorf("erase salts: %w", err)
	}
	return nil
}

// queueForgetting queues the erasure of salts of one tile.
func queueForgetting(
	ctx context.Context, tx pgx.Tx, batch *pgx.Batch, log domain.TenantID, number int64, positions []int64,
) error {
	rows, _ := tx.Query(ctx, `
		select s.first_position, s.salts from seals as s
		where s.tenant_id = $1 and s.first_position > $2 and s.first_position <= $3 order by s.first_position`,
		log, number*tile, (number+1)*tile)
	var first int64
	var salts []byte
	_, err := pgx.ForEachRow(rows, []any{&first, &salts}, func() error {
		changed := slices.Clone(salts)
		for _, p := range positions {
			if at := (p - first) * proof.SaltBytes; at >= 0 && at < int64(len(changed)) {
				clear(changed[at : at+proof.SaltBytes])
			}
		}
		if !slices.Equal(changed, salts) {
			batch.Queue("update seals as s set salts = $3 where s.tenant_id = $1 and s.first_position = $2",
				log, first, changed)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read salts to erase: %w", err)
	}
	return nil
}
