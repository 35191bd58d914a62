package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// The channels on which processes tell one another what changed. Their senders are rare statements: never an append,
// since NOTIFY makes commits queue for the whole database.
const (
	keysChannel        = "manifold_keys"        // the payload is the tenant
	projectionsChannel = "manifold_projections" // no payload
	retriesChannel     = "manifold_retries"     // the payload is the tenant, the projection's owner and its name
	retentionChannel   = "manifold_retention"   // the payload is the tenant
	webhooksChannel    = "manifold_webhooks"    // the payload is the tenant
)

// listenerName stands before a process's id in the names of the connections that listen.
const listenerName = "manifold-listener "

// Waits of a listener.
const (
	listenRetry     = time.Second      // before a lost connection is made again
	projectionsPoll = 10 * time.Second // between two looks that no notice asked for
)

// ListenKeys calls changed when a key or the state of a tenant changed: before the method that changed it returns in
// this process, and as soon as PostgreSQL tells it in every other one. It calls it with domain.Everyone where notices
// may have been lost, which is also so at the start: everything known of any tenant's keys is then to be forgotten.
// changed must return soon, and is called by several goroutines. ListenKeys blocks until ctx ends, and returns nil then.
func (s *Store) ListenKeys(ctx context.Context, changed func(tenant domain.TenantID)) error {
	defer s.keysChanged.add(changed)()
	s.listenTenants(ctx, keysChannel, changed)
	return nil
}

// listenTenants calls changed for each notice on a channel whose payload is a tenant, and with domain.Everyone where some may
// have been lost.
func (s *Store) listenTenants(ctx context.Context, channel string, changed func(tenant domain.TenantID)) {
	s.listen(ctx, channel, func() { changed(domain.Everyone) }, func(payload string) {
		// What cannot be read was sent by somebody else: the careful answer is to forget everything.
		tenant, err := domain.ParseTenantID(payload)
		if err != nil {
			tenant = domain.Everyone
		}
		changed(tenant)
	})
}

// ListenWebhooks calls changed when a tenant's webhooks, their secrets or their replays changed, or its own state, in whichever process; with
// domain.Everyone where notices may have been lost, which is also so at the start. changed must return soon, and is called
// by several goroutines. ListenWebhooks blocks until ctx ends, and returns nil then.
func (s *Store) ListenWebhooks(ctx context.Context, changed func(tenant domain.TenantID)) error {
	defer s.webhooksChanged.add(changed)()
	s.listenTenants(ctx, webhooksChannel, changed)
	return nil
}

// ListenProjections calls changed when a projection or a rebuild was made, changed or removed, in whichever process, and
// every 10 s without a reason. A rebuild's progress is no change. changed must return soon, and is called by several
// goroutines. ListenProjections blocks until ctx ends, and returns nil then.
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

// listen calls notice for each notice on channel until ctx ends. It calls lost after each LISTEN, the first included:
// what was sent before it is not known.
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
	// A connection of its own: one from the pool would be missing there for good.
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

// subscribers are those of this process who want to know of a change. The zero value has none.
type subscribers[T any] struct {
	mu    sync.Mutex
	last  int
	calls map[int]func(T)
}

// add subscribes, and returns what ends the subscription.
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

// tell calls every subscriber. One that is just unsubscribing may be called once more.
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
