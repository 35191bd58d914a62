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

// nodes knows on which node of a cluster the logs of tenants are. It is safe for concurrent use.
type nodes struct {
	pool *pgxpool.Pool // of the coordinator
	log  *slog.Logger

	mu     sync.Mutex
	shards []shard
	readAt time.Time
}

// shard is a shard of the logs, whose tenants have hashes from First to Last.
type shard struct {
	First, Last int32
	Group       int32 // of nodes: one, and its standbys
}

// of returns the group of nodes with a tenant's log, or -1 if that is not known yet. It does not wait for the database.
func (n *nodes) of(tenant domain.TenantID) int32 {
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

func (n *nodes) read() error {
	ctx, cancel := context.WithTimeout(context.Background(), nodesTimeout)
	defer cancel()
	rows, _ := n.pool.Query(ctx, `
		select s.shardminvalue::int, s.shardmaxvalue::int, p.groupid from pg_dist_shard s join pg_dist_placement p using (shardid)
		where s.logicalrelid = 'manifold.logs'::regclass and p.shardstate = 1`)
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
