package seal

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/proof"
)

// Checkpoint returns the newest signed checkpoint of a log. The error is domain.CodeNotFound if nothing is sealed yet.
func (s *Postgres) Checkpoint(ctx context.Context, log domain.TenantID) (string, error) {
	current, ok, err := pg.SelectOneUnder(ctx, s.db.App, log, "read a log's checkpoint", scanState, readState, log)
	if err == nil && (!ok || current.size == 0) {
		err = domain.Errorf(domain.CodeNotFound, "", "nothing of the log is sealed yet; new events are sealed within seconds")
	}
	return current.checkpoint, err
}

// Leaves returns the leaves of a block (proof.Block) as far as it is sealed, and the receipts about it, which are
// signed.
func (s *Postgres) Leaves(ctx context.Context, log domain.TenantID, block int64) (
	found proof.Block, receipts []string, err error,
) {
	err = pg.Under(ctx, s.db.App, log, func(tx pgx.Tx) error {
		found.Leaves, err = readLeaves(ctx, tx, log, block*proof.BlockSize+1, (block+1)*proof.BlockSize)
		if err != nil {
			return err
		}
		found.Tiles, err = readSubtrees(ctx, tx, log, tileLevel, block*proof.BlockSize/tile, (block+1)*proof.BlockSize/tile)
		if err != nil {
			return err
		}
		// After the leaves: whoever erases a salt has saved the receipt.
		rows, _ := tx.Query(ctx, `
			select r.receipt from seal_receipts as r where r.tenant_id = $1 and r.block = $2 order by r.receipt_id limit $3`,
			log, block, receiptsPerBlock+2)
		if receipts, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			return fmt.Errorf("read receipts: %w", err)
		}
		return nil
	})
	return found, receipts, err
}

// readLeaves reads the leaves from a position that begins a tile to one that ends a tile.
func readLeaves(ctx context.Context, tx pgx.Tx, log domain.TenantID, first, last int64) (
	found []proof.Leaf, err error,
) {
	rows, _ := tx.Query(ctx, `
		select s.first_position, s.leaves, s.contents, s.salts from seals as s
		where s.tenant_id = $1 and s.first_position >= $2 and s.first_position <= $3 order by s.first_position`,
		log, first, last)
	var position int64
	var leaves, contents, salts []byte
	_, err = pgx.ForEachRow(rows, []any{&position, &leaves, &contents, &salts}, func() error {
		n := len(leaves) / tlog.HashSize
		if position != first+int64(len(found)) || len(leaves) != n*tlog.HashSize || len(contents) != len(leaves) ||
			len(salts) != n*proof.SaltBytes {
			return fmt.Errorf("the leaves from position %d on are incomplete", first+int64(len(found)))
		}
		for i := range n {
			found = append(found, proof.Leaf{
				Hash: proof.Hash(leaves[i*tlog.HashSize:]), Content: proof.Hash(contents[i*tlog.HashSize:]),
				Salt: proof.Salt(salts[i*proof.SaltBytes:]),
			})
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the leaves from position %d on: %w", first, err)
	}
	return found, nil
}

// readSubtrees reads the roots of complete subtrees of a level, from one number up to, but not including, another.
func readSubtrees(ctx context.Context, tx pgx.Tx, log domain.TenantID, level int, from, to int64) (
	roots []proof.Hash, err error,
) {
	rows, _ := tx.Query(ctx, `
		select u.hash from seal_subtrees as u
		where u.tenant_id = $1 and u.level = $2 and u.number >= $3 and u.number < $4 order by u.number`, log, level, from, to)
	var root []byte
	_, err = pgx.ForEachRow(rows, []any{&root}, func() error {
		if len(root) != tlog.HashSize {
			return fmt.Errorf("the root of a subtree has %d bytes", len(root))
		}
		roots = append(roots, proof.Hash(root))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the roots of subtrees: %w", err)
	}
	return roots, nil
}

// Inclusion proves that a position's leaf is part of the tree of a size. It returns the leaf and the hashes of RFC
// 9162, section 2.1.3.
func (s *Postgres) Inclusion(ctx context.Context, log domain.TenantID, position, size int64) (
	leaf proof.Hash, hashes []proof.Hash, err error,
) {
	err = s.prove(ctx, log, func(sealed int64, reader tlog.HashReader) error {
		switch {
		case size > sealed:
			return domain.Errorf(domain.CodeInvalidRequest, "size", "the log is sealed up to position %d", sealed)
		case position > size:
			return domain.Errorf(domain.CodeInvalidRequest, "position", "the tree has %d leaves, one for each position", size)
		}
		of, err := reader.ReadHashes([]int64{tlog.StoredHashIndex(0, position-1)})
		if err != nil {
			return err
		}
		leaf = of[0]
		hashes, err = tlog.ProveRecord(size, position-1, reader)
		return err
	})
	return leaf, hashes, err
}

// Consistency proves that the tree of a size begins with that of a smaller one. It returns the hashes of RFC 9162,
// section 2.1.4.
func (s *Postgres) Consistency(ctx context.Context, log domain.TenantID, from, to int64) (
	hashes []proof.Hash, err error,
) {
	err = s.prove(ctx, log, func(sealed int64, reader tlog.HashReader) error {
		switch {
		case to > sealed:
			return domain.Errorf(domain.CodeInvalidRequest, "to", "the log is sealed up to position %d", sealed)
		case from > to:
			return domain.Errorf(domain.CodeInvalidRequest, "from", "it must not exceed to, which is %d", to)
		}
		hashes, err = tlog.ProveTree(to, from, reader)
		return err
	})
	return hashes, err
}

// prove calls do with the size of the sealed log and a reader of its hashes, which compares what it reads with the
// root.
func (s *Postgres) prove(
	ctx context.Context, log domain.TenantID, do func(sealed int64, reader tlog.HashReader) error,
) error {
	return pg.Under(ctx, s.db.App, log, func(tx pgx.Tx) error {
		current, _, err := pg.SelectOne(ctx, tx, "read a log's seal", scanState, readState, log)
		if err != nil {
			return err
		}
		tree, err := proof.NewTree(current.size, current.edge)
		if err != nil {
			return err
		}
		// What is sealed later is not in the tree, and what is sealed does not change.
		return do(tree.Size(), hashReader(ctx, tx, log, tree))
	})
}

// hashReader reads the stored hashes of a log, and compares them with the root of its tree.
func hashReader(ctx context.Context, tx pgx.Tx, log domain.TenantID, tree *proof.Tree) tlog.HashReader {
	return tlog.TileHashReader(tlog.Tree{N: tree.Size(), Hash: tree.Root()}, &tiles{ctx, tx, log})
}

// tiles reads a log's tiles. It is a tlog.TileReader.
type tiles struct {
	ctx context.Context
	tx  pgx.Tx
	log domain.TenantID
}

func (t *tiles) Height() int                     { return tileLevel }
func (t *tiles) SaveTiles([]tlog.Tile, [][]byte) {}

func (t *tiles) ReadTiles(tiles []tlog.Tile) (data [][]byte, err error) {
	for _, wanted := range tiles {
		hashes, err := t.readTile(wanted)
		if err != nil {
			return nil, err
		}
		data = append(data, hashes)
	}
	return data, nil
}

func (t *tiles) readTile(wanted tlog.Tile) (data []byte, err error) {
	first := wanted.N * tile
	if wanted.L > 0 {
		roots, err := readSubtrees(t.ctx, t.tx, t.log, wanted.L*tileLevel, first, first+int64(wanted.W))
		for _, root := range roots {
			data = append(data, root[:]...)
		}
		return data, err
	}
	leaves, err := readLeaves(t.ctx, t.tx, t.log, first+1, first+tile)
	for _, leaf := range leaves[:min(len(leaves), wanted.W)] {
		data = append(data, leaf.Hash[:]...)
	}
	return data, err
}
