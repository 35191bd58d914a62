package seal

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/proof"
)

const insertReceipt = `
	insert into seal_receipts (tenant_id, block, receipt_id, receipt) values ($1::uuid, $2, $3, $4)
	on conflict (tenant_id, block, receipt_id) do nothing`

// QueueReceipts queues signed receipts for events of a log, which the transaction of the batch removes or erases. cause says
// in one line what asked for that. The batch needs the retention login.
func (s *Postgres) QueueReceipts(ctx context.Context, batch *pgx.Batch, log domain.TenantID, kind proof.Kind, cause string, positions []int64) error {
	origin, err := s.origin(ctx, log)
	if err != nil {
		return err
	}
	positions = slices.Compact(slices.Sorted(slices.Values(positions)))
	for len(positions) > 0 {
		block := (positions[0] - 1) / proof.BlockSize
		end := 1
		for end < len(positions) && (positions[end]-1)/proof.BlockSize == block {
			end++
		}
		receipt := proof.Receipt{Origin: origin, Kind: kind, Cause: cause, At: time.Now(), Positions: positions[:end]}
		signed, err := s.keys.Sign(ctx, receipt.Text())
		if err != nil {
			return err
		}
		receipt.At = time.Time{} // a repeated call has the same id
		batch.Queue(insertReceipt, log, block, [16]byte(domain.DeriveEventID(receipt.Text())), string(signed))
		positions = positions[end:]
	}
	return nil
}

// ForgetSalts erases the salts of events whose content was erased, and leaves signed receipts. The erasure must be
// committed already: then what is sealed later has its result, and what was sealed before loses its salt here. cause names
// the erasure in one line. It may be repeated, and should get at most a few thousand positions at a time.
func (s *Postgres) ForgetSalts(ctx context.Context, log domain.TenantID, cause string, positions []int64) error {
	return pg.Under(ctx, s.db.Retention, log, func(tx pgx.Tx) error {
		if _, err := pg.Exec(ctx, tx, "lock a log's seal", "select from sealed_logs as s where s.tenant_id = $1 for update", log); err != nil {
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
		if err := s.QueueReceipts(ctx, &batch, log, proof.Erased, cause, positions); err != nil {
			return err
		}
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return fmt.Errorf("erase salts: %w", err)
		}
		return nil
	})
}

// queueForgetting queues the erasure of salts of one tile.
func queueForgetting(ctx context.Context, tx pgx.Tx, batch *pgx.Batch, log domain.TenantID, number int64, positions []int64) error {
	rows, _ := tx.Query(ctx, `
		select s.first_position, s.salts from seals as s
		where s.tenant_id = $1 and s.first_position > $2 and s.first_position <= $3 order by s.first_position`, log, number*tile, (number+1)*tile)
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
			batch.Queue("update seals as s set salts = $3 where s.tenant_id = $1 and s.first_position = $2", log, first, changed)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read salts to erase: %w", err)
	}
	return nil
}
