package pg

import (
	"context"
	littleendian "encoding/binary"
	"fmt"
	"log/slog"
	"math/bits"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/domain"
)

// nodesReadEvery is how often a process reads again which node has which shard, and nodesTimeout limits one read.
const (
	nodesReadEvery = 30 * time.Second
	nodesTimeout   = 5 * time.Second
)

// Nodes knows on which node of a cluster the rows of tenants are, in one of the distributed tables and those that are
// colocated with it. It is safe for concurrent use. Without a cluster it is nil: then all are on node 0.
type Nodes struct {
	pool  *pgxpool.Pool // of the coordinator
	table string
	log   *slog.Logger

	mu     sync.Mutex
	shards []shard
	readAt time.Time
}

// NewNodes returns the Nodes for a table that is distributed by tenant. When it is asked, it reads through pool where
// the shards are, at most every 30 s.
func NewNodes(pool *pgxpool.Pool, table string, log *slog.Logger) *Nodes {
	return &Nodes{pool: pool, table: table, log: log}
}

// shard is a shard of the table, whose tenants have hashes from First to Last.
type shard struct {
	First, Last int32
	Group       int32 // of nodes: one, and its standbys
}

// Of returns the group of nodes with a tenant's rows, or -1 if that is not known yet, and for domain.Everyone. It does
// not wait for the database.
func (n *Nodes) Of(tenant domain.TenantID) int32 {
	switch {
	case n == nil:
		return 0
	case tenant == domain.Everyone:
		return -1
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.readAt) >= nodesReadEvery {
		n.readAt = time.Now()
		go func() {
			if err := n.read(); err != nil {
				n.log.Warn("where the cluster's shards are could not be read; what was read last is used", "error", err)
			}
		}()
	}
	hash := hashUUID(tenant)
	for _, s := range n.shards {
		if s.First <= hash && hash <= s.Last {
			return s.Group
		}
	}
	return -1
}

func (n *Nodes) read() error {
	ctx, cancel := context.WithTimeout(context.Background(), nodesTimeout)
	defer cancel()
	rows, _ := n.pool.Query(ctx, `
		select s.shardminvalue::int, s.shardmaxvalue::int, p.groupid from pg_dist_shard s join pg_dist_placement p using (shardid)
		where s.logicalrelid = to_regclass($1) and p.shardstate = 1`, n.table)
	shards, err := pgx.CollectRows(rows, pgx.RowToStructByPos[shard])
	if err != nil {
		return fmt.Errorf("read where the shards are: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.shards, n.readAt = shards, time.Now()
	return nil
}

// hashUUID is PostgreSQL's uuid_hash, by which Citus assigns tenants to shards. It is Bob Jenkins's lookup3
// (https://burtleburtle.net/bob/c/lookup3.c, hashlittle) of 16 bytes, with PostgreSQL's initial value.
func hashUUID(id domain.TenantID) int32 {
	word := func(i int) uint32 { return littleendian.LittleEndian.Uint32(id[4*i:]) }
	a := uint32(0x9e3779b9 + len(id) + 3923095)
	b, c := a, a
	a, b, c = a+word(0), b+word(1), c+word(2)
	mix := func(x, y, z *uint32, rotate int) {
		*x = (*x - *z) ^ bits.RotateLeft32(*z, rotate)
		*z += *y
	}
	mix(&a, &b, &c, 4)
	mix(&b, &c, &a, 6)
	mix(&c, &a, &b, 8)
	mix(&a, &b, &c, 16)
	mix(&b, &c, &a, 19)
	mix(&c, &a, &b, 4)
	a += word(3)
	final := func(x, y *uint32, rotate int) { *x = (*x ^ *y) - bits.RotateLeft32(*y, rotate) }
	final(&c, &b, 14)
	final(&a, &c, 11)
	final(&b, &a, 25)
	final(&c, &b, 16)
	final(&a, &c, 4)
	final(&b, &a, 14)
	final(&c, &b, 24)
	return int32(c)
}
