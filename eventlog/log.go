// Package eventlog appends events to the tenants' logs and reads them. Start with New, Config and Log: Log.Append and
// Log.ReadLog write and read a log, and Log.Listen reports what was appended.
//
// Appends of one tenant are committed in groups: a writer per tenant collects the waiting requests and writes them in
// one transaction. Positions are 1, 2, 3 ... in commit order, without gaps.
package eventlog

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Config configures a Log. All fields have defaults.
type Config struct {
	// QueueBytes limits the appends of one tenant that are waiting or being written (0: 32 MiB), and TotalQueueBytes
	// those of all tenants (0: 256 MiB). A request that is alone is always accepted.
	QueueBytes, TotalQueueBytes int64
	// AppendTimeout is how long an append may take, including all retries; 0: 10 s.
	AppendTimeout time.Duration
	// Inline folds appended events into inline builds. If it is nil, inline builds lag behind until another process
	// catches them up.
	Inline Inline
	// Observer receives metrics about the log's work.
	Observer Observer
	// ReplicaLag is how old the state of a replica may be that answers reads; 0: 5 s.
	ReplicaLag time.Duration
	// Tracer records spans of appends and commits. Nil: none.
	Tracer *tracing.Tracer
}

// Observer has callbacks for metrics; each may be nil. They are called concurrently and must return at once.
type Observer struct {
	// Appended is called for each committed batch. took is the time from sending the batch to the database's answer.
	Appended func(events, requests int, took time.Duration)
	// ReadEvents is called for each read of events, with their number.
	ReadEvents func(n int)
	// HistoryRead is called for each page that a replica may answer, with the replica's name, or "primary". It is
	// called only if there are replicas.
	HistoryRead func(source string)
	// ReplicaRefused is called if a replica does not answer a page that it was asked for: it is behind, has failed, or
	// is busy.
	ReplicaRefused func(replica, reason string)
}

// Log accesses the tenants' logs. All methods may be called concurrently. An error that a client can act on is a
// *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Log struct {
	db *pg.DB

	observer                    Observer
	tracer                      *tracing.Tracer // may be nil
	queueBytes, totalQueueBytes int64
	appendTimeout               time.Duration
	writers                     writers
	shared                      sharedCommits
	inline                      Inline // may be nil
	heads                       *heads
	replicas                    *replicas // nil: none
	gaps                        gapSearches
	appending                   context.Context // the writers' context; ends after they have written what waits
	stopAppending               context.CancelFunc
	announcing                  sync.WaitGroup // the goroutines that notify other processes of moved heads, search for gaps and watch replicas
}

// New returns the Log of a database. The caller must close it before the database. A database has at most one Log.
func New(db *pg.DB, config Config) *Log {
	s := &Log{
		db:              db,
		observer:        config.Observer,
		tracer:          config.Tracer,
		inline:          config.Inline,
		queueBytes:      cmp.Or(config.QueueBytes, defaultQueueBytes),
		totalQueueBytes: cmp.Or(config.TotalQueueBytes, defaultTotalQueueBytes),
		appendTimeout:   cmp.Or(config.AppendTimeout, defaultAppendTimeout),
		heads:           newHeads(),
		shared:          newSharedCommits(int(db.App.Config().MaxConns), db.Distributed),
		gaps:            gapSearches{running: make(map[domain.TenantID]*gapSearch), places: make(chan struct{}, gapSearchesAtOnce)},
	}
	s.appending, s.stopAppending = context.WithCancel(context.Background())
	s.replicas = newReplicas(db, config.ReplicaLag, s.observer)
	db.Unprintable = s.markGaps
	s.announcing.Go(func() { s.heads.run(s.appending, s) })
	if s.replicas != nil {
		s.announcing.Go(func() { s.replicas.Run(s.appending) })
	}
	return s
}

// Close refuses new appends, and waits for those in progress.
func (s *Log) Close() {
	s.writers.close()
	s.stopAppending()
	s.announcing.Wait()
}
