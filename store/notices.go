package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// The channels on which processes notify one another of changes. Only rare statements send notices, and never an
// append, because NOTIFY makes the commits of the whole database queue up.
const (
	keysChannel        = "manifold_keys"        // the payload is the tenant
	projectionsChannel = "manifold_projections" // no payload
	retriesChannel     = "manifold_retries"     // the payload is the tenant, the projection's owner and its name
	retentionChannel   = "manifold_retention"   // the payload is the tenant
	webhooksChannel    = "manifold_webhooks"    // the payload is the tenant
)

// listenerName precedes a process's id in the names of listening connections.
const listenerName = "manifold-listener "

// Intervals of a listener.
const (
	listenRetry     = time.Second      // before a lost connection is reopened
	projectionsPoll = 10 * time.Second // between two checks without a notice
)

// ListenKeys calls changed when a key or the state of a tenant has changed. In this process, that happens before the
// changing method returns; in others, as soon as PostgreSQL delivers the notice. ListenKeys calls changed with
// domain.Everyone if notices may have been lost, including at the start: the caller must then forget all cached keys.
// changed must return soon, and is called by several goroutines. ListenKeys blocks until ctx ends, and then returns
// nil.
func (s *Store) ListenKeys(ctx context.Context, changed func(tenant domain.TenantID)) error {
	defer s.keysChanged.add(changed)()
	s.listenTenants(ctx, keysChannel, changed)
	return nil
}

// listenTenants calls changed for each notice on a channel whose payload is a tenant, and with domain.Everyone if
// notices may have been lost.
func (s *Store) listenTenants(ctx context.Context, channel string, changed func(tenant domain.TenantID)) {
	s.listen(ctx, channel, func() { changed(domain.Everyone) }, func(payload string) {
		// An unreadable payload has an unknown sender. To be safe, report a change of everything.
		tenant, err := domain.ParseTenantID(payload)
		if err != nil {
			tenant = domain.Everyone
		}
		changed(tenant)
	})
}

// ListenWebhooks calls changed when any process has changed a tenant's webhooks, their secrets or replays, or the
// tenant's state. It calls changed with domain.Everyone if notices may have been lost, including at the start. changed
// must return soon, and is called by several goroutines. ListenWebhooks blocks until ctx ends, and then returns nil.
func (s *Store) ListenWebhooks(ctx context.Context, changed func(tenant domain.TenantID)) error {
	defer s.webhooksChanged.add(changed)()
	s.listenTenants(ctx, webhooksChannel, changed)
	return nil
}

// ListenProjections calls changed when any process has created, changed or removed a projection or a rebuild, and every
// 10 s regardless. A rebuild's progress is not a change. changed must return soon, and is called by several goroutines.
// ListenProjections blocks until ctx ends, and then returns nil.
func (s *Store) ListenProjections(ctx context.Context, changed func()) error {
	defer s.projectionsChanged.add(func(struct{}) { changed() })()
	var poll sync.WaitGroup
	defer poll.Wait()
	poll.Go(func() {
		ticker := time.NewTicker(projectionsPoll)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				changed()
			}
		}
	})
	s.listen(ctx, projectionsChannel, changed, func(string) { changed() })
	return nil
}

// listen calls notice for each notice on channel until ctx ends. It calls lost after each LISTEN, including the first,
// because earlier notices may have been missed.
func (s *Store) listen(ctx context.Context, channel string, lost func(), notice func(payload string)) {
	for ctx.Err() == nil {
		if err := s.listenOnce(ctx, channel, lost, notice); err != nil && ctx.Err() == nil {
			s.log.Warn("notices from the database were interrupted; trying again", "channel", channel, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenRetry):
		}
	}
}

func (s *Store) listenOnce(ctx context.Context, channel string, lost func(), notice func(payload string)) error {
	// This uses a separate connection: a pooled one would be missing from the pool permanently.
	config := s.system.Config().ConnConfig
	if s.member != (domain.MemberID{}) {
		config.RuntimeParams["application_name"] = listenerName + s.member.String()
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "listen "+channel); err != nil {
		return err
	}
	lost()
	for {
		got, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		notice(got.Payload)
	}
}

// notify sends a notice when tx commits.
func notify(ctx context.Context, tx pgx.Tx, channel, payload string) error {
	if _, err := tx.Exec(ctx, "select pg_notify($1, $2)", channel, payload); err != nil {
		return fmt.Errorf("notify %s: %w", channel, err)
	}
	return nil
}

// subscribers are the subscribers to a change in this process. The zero value has none.
type subscribers[T any] struct {
	mu    sync.Mutex
	last  int
	calls map[int]func(T)
}

// add subscribes, and returns a function that ends the subscription.
func (s *subscribers[T]) add(call func(T)) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = make(map[int]func(T))
	}
	s.last++
	id := s.last
	s.calls[id] = call
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, id)
	}
}

// tell calls every subscriber. A subscriber that is just being removed may be called once more.
func (s *subscribers[T]) tell(what T) {
	s.mu.Lock()
	calls := make([]func(T), 0, len(s.calls))
	for _, call := range s.calls {
		calls = append(calls, call)
	}
	s.mu.Unlock()
	for _, call := range calls {
		call(what)
	}
}
