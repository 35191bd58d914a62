package group

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/pg"
)

// Postgres reads and writes the tables of groups, and announces their changes to other processes. All methods may be
// called concurrently. An error that a client can act on is a *domain.Error. If the database cannot be reached, its
// code is domain.CodeUnavailable.
type Postgres struct {
	db         *pg.DB
	groups     *groupNotices
	announcing sync.WaitGroup
	stop       context.CancelFunc
}

// saveTimeout is how long saving a ledger may take, including all retries.
const saveTimeout = 10 * time.Second

// NewPostgres opens the group tables of a database. The caller must close it before the database.
func NewPostgres(db *pg.DB) *Postgres {
	s := &Postgres{db: db, groups: newGroupNotices()}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.announcing.Go(func() { s.groups.run(ctx, s) })
	return s
}

// Close sends pending announcements and stops.
func (s *Postgres) Close() {
	s.stop()
	s.announcing.Wait()
}
