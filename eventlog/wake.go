package eventlog

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// headsChannel is the channel on which processes notify one another of moved heads. The payload is a comma-separated
// list of tenant:head, or headsMany if that would be long. NOTIFY inside an append would make the commits of the whole
// database queue up. So one goroutine sends the notices for all tenants, separately.
const (
	headsChannel = "manifold_heads"
	headsMany    = "poll"
)

const (
	headsPause  = 50 * time.Millisecond // between two notices of this process
	headsListed = 130                   // heads in a notice at most, which keeps it below 8,000 bytes
	headsPoll   = time.Second           // between two checks of the heads without a notice
	headsRecent = 30 * time.Second      // how far a poll looks back; longer than any append takes
	headsWait   = 10 * time.Second      // for the answer to a notice or a poll, because a connection may die silently
)

// heads notifies waiting readers that a log has moved: readers in this process at once, and other processes by notices.
// Its method run must be running.
type heads struct {
	here pg.Subscribers[domain.Head]

	mu          sync.Mutex
	pending     map[domain.TenantID]int64
	unsent      chan struct{}             // has an element while pending is not empty
	unconfirmed map[domain.TenantID]int64 // see confirm
}

func newHeads() *heads {
	return &heads{
		pending: make(map[domain.TenantID]int64), unsent: make(chan struct{}, 1),
		unconfirmed: make(map[domain.TenantID]int64),
	}
}

// moved is called by the writers after each commit.
func (h *heads) moved(head domain.Head) {
	h.here.Notify(head)
	h.mu.Lock()
	h.pending[head.Tenant] = max(h.pending[head.Tenant], head.Position)
	h.mu.Unlock()
	select {
	case h.unsent <- struct{}{}:
	default:
	}
}

// confirmFor limits how long confirm looks for a head, and confirmPause is the time between two looks.
const (
	confirmFor   = 5 * time.Minute
	confirmPause = 250 * time.Millisecond
)

// confirm calls moved for a head as soon as a read of the database shows it. On a cluster, an append with inline
// documents on another node is committed in two phases. If a worker is killed between them, the append is acknowledged,
// but readers see its events only after Citus has repaired that (citus.recover_2pc_interval, a minute by default). A
// reader that knew the head would assume that these positions have no events for it, and skip them.
func (s *Log) confirm(head domain.Head) {
	h := s.heads
	h.mu.Lock()
	_, looking := h.unconfirmed[head.Tenant]
	h.unconfirmed[head.Tenant] = max(h.unconfirmed[head.Tenant], head.Position)
	h.mu.Unlock()
	if looking {
		return
	}
	s.announcing.Go(func() {
		ctx, cancel := context.WithTimeout(s.appending, confirmFor)
		defer cancel()
		for reported := int64(0); ; {
			seen, err := s.Head(ctx, head.Tenant)
			if err == nil && seen.Position > reported {
				reported = seen.Position
				h.moved(seen)
			}
			h.mu.Lock()
			ended := ctx.Err() != nil || err == nil && (seen.Position == 0 || seen.Position >= h.unconfirmed[head.Tenant])
			if ended {
				delete(h.unconfirmed, head.Tenant)
			}
			h.mu.Unlock()
			if ended {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(confirmPause):
			}
		}
	})
}

// run sends notices until ctx ends, and then sends the remaining ones.
func (h *heads) run(ctx context.Context, s *Log) {
	for {
		select {
		case <-ctx.Done():
			select {
			case <-h.unsent:
				h.notify(s)
			default:
			}
			return
		case <-h.unsent:
		}
		h.notify(s)
		select {
		case <-ctx.Done():
		case <-time.After(headsPause):
		}
	}
}

func (h *heads) notify(s *Log) {
	h.mu.Lock()
	pending := h.pending
	h.pending = make(map[domain.TenantID]int64)
	h.mu.Unlock()
	if len(pending) == 0 {
		return // the previous notice covered everything
	}
	ctx, cancel := context.WithTimeout(context.Background(), headsWait)
	defer cancel()
	// A process that misses the notice polls, so the append is unaffected.
	if _, err := s.db.Foreground.Exec(ctx, "select pg_notify($1, $2)", headsChannel, headsPayload(pending)); err != nil {
		s.db.Log.Debug("moved heads were not announced; other processes will see them by polling", "error", err)
	}
}

func headsPayload(heads map[domain.TenantID]int64) string {
	if len(heads) > headsListed {
		return headsMany
	}
	var payload strings.Builder
	for tenant, head := range heads {
		if payload.Len() > 0 {
			payload.WriteByte(',')
		}
		payload.WriteString(tenant.String())
		payload.WriteByte(':')
		payload.WriteString(strconv.FormatInt(head, 10))
	}
	return payload.String()
}

// parseHeads parses a notice; ok is false if it does not name the heads.
func parseHeads(payload string) (heads []domain.Head, ok bool) {
	for part := range strings.SplitSeq(payload, ",") {
		name, position, _ := strings.Cut(part, ":")
		tenant, err := domain.ParseTenantID(name)
		if err != nil {
			return nil, false
		}
		head, err := strconv.ParseInt(position, 10, 64)
		if err != nil {
			return nil, false
		}
		heads = append(heads, domain.Head{Tenant: tenant, Position: head})
	}
	return heads, true
}

// Listen calls wake with the new head of each log that has moved: at once after an append by this process, and within
// about a second after one by another process. Other processes announce their appends up to twenty times a second, and
// Listen polls the heads every second. At the start, it calls wake once for each log with an event.
//
// One call may cover several appends. Calls may be out of order, so a call may have a lower position than an earlier
// one. LastAt is zero if only a notice reported the position. wake must return at once, and is called by several
// goroutines, including the writers. Listen blocks until ctx ends, and then returns nil.
//
// Listen returns an error if a log has gone back, since this process then remembers events that no longer exist. It
// finds out within seconds after it has connected to the database again.
func (s *Log) Listen(ctx context.Context, wake func(domain.Head)) error {
	known := knownHeads{wake: wake, positions: make(map[domain.TenantID]int64)}
	defer s.heads.here.Add(known.moved)()

	look := make(chan bool, 1) // true: check all heads, since notices may have been lost
	ask := func(all bool) {
		select {
		case look <- all:
		case earlier := <-look:
			look <- all || earlier
		}
	}
	ctx, stop := context.WithCancel(ctx)
	var listening sync.WaitGroup
	defer listening.Wait()
	defer stop()
	listening.Go(func() {
		s.db.ListenOn(ctx, headsChannel, func() { ask(true) }, func(payload string) {
			heads, ok := parseHeads(payload)
			if !ok {
				ask(false)
			}
			for _, head := range heads {
				known.moved(head)
			}
		})
	})

	ticker := time.NewTicker(headsPoll)
	defer ticker.Stop()
	var looked time.Time
	for {
		all := false
		select {
		case <-ctx.Done():
			return nil
		case all = <-look:
		case <-ticker.C:
		}
		began := time.Now()
		all = all || began.Sub(looked) > headsRecent/2
		var before map[domain.TenantID]int64
		if all {
			before = known.copy()
		}
		heads, err := s.recentHeads(ctx, all)
		if err != nil {
			if all {
				looked = time.Time{} // all again, at the next tick
			}
			if ctx.Err() == nil {
				s.db.Log.Warn("the heads of the logs cannot be read; trying again", "error", err)
			}
			continue
		}
		looked = began
		for _, head := range heads {
			if position := before[head.Tenant]; head.Position < position {
				return fmt.Errorf("the log of tenant %s has gone back from position %d to %d: the database was restored, or has failed over to a replica without its newest events. "+
					"This process remembers events that no longer exist, and must be started again; then rebuild projections whose documents are in other databases", head.Tenant, position, head.Position)
			}
			known.moved(head)
		}
	}
}

// recentHeads reads the heads that have moved recently by the database's clock, or all heads.
func (s *Log) recentHeads(ctx context.Context, all bool) ([]domain.Head, error) {
	ctx, cancel := context.WithTimeout(ctx, headsWait)
	defer cancel()
	if all {
		return s.Heads(ctx, time.Time{})
	}
	var now time.Time
	if err := s.db.Foreground.QueryRow(ctx, "select now()").Scan(&now); err != nil {
		return nil, pg.Unavailable(err)
	}
	return s.Heads(ctx, now.Add(-headsRecent))
}

// knownHeads forwards only new positions to a listener.
type knownHeads struct {
	wake func(domain.Head)

	mu        sync.Mutex
	positions map[domain.TenantID]int64
}

func (k *knownHeads) copy() map[domain.TenantID]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.positions)
}

func (k *knownHeads) moved(head domain.Head) {
	k.mu.Lock()
	news := head.Position > k.positions[head.Tenant]
	if news {
		k.positions[head.Tenant] = head.Position
	}
	k.mu.Unlock()
	if news {
		k.wake(head)
	}
}
