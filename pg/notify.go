package pg

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// The channels on which processes notify one another of changes. Only rare statements send notices, and never an
// append, because NOTIFY makes the commits of the whole database queue up.
const (
	KeysChannel        = "manifold_keys"        // the payload is the tenant
	ProjectionsChannel = "manifold_projections" // no payload
	RetriesChannel     = "manifold_retries"     // the payload is the tenant, the projection's owner and its name
	RetentionChannel   = "manifold_retention"   // the payload is the tenant
	WebhooksChannel    = "manifold_webhooks"    // the payload is the tenant
	SchemasChannel     = "manifold_schemas"     // the payload is the tenant
	ErasuresChannel    = "manifold_erasures"    // the payload is the tenant
	LimitsChannel      = "manifold_limits"      // the payload is the tenant, or empty for plans
)

// ListenerName precedes a process's id in the names of listening connections.
const ListenerName = "manifold-listener "

// listenRetry is the pause before a lost connection is reopened.
const listenRetry = time.Second

// ListenTenants calls changed for each notice on a channel whose payload is a tenant, and with domain.Everyone if
// notices may have been lost.
func (db *DB) ListenTenants(ctx context.Context, channel string, changed func(tenant domain.TenantID)) {
	db.ListenOn(ctx, channel, func() { changed(domain.Everyone) }, func(payload string) {
		// An unreadable payload has an unknown sender. To be safe, report a change of everything.
		tenant, err := domain.ParseTenantID(payload)
		if err != nil {
			tenant = domain.Everyone
		}
		changed(tenant)
	})
}

// ListenOn calls notice for each notice on channel until ctx ends. It calls lost after each LISTEN, including the
// first, because earlier notices may have been missed.
func (db *DB) ListenOn(ctx context.Context, channel string, lost func(), notice func(payload string)) {
	for ctx.Err() == nil {
		if err := db.listenOnce(ctx, channel, lost, notice); err != nil && ctx.Err() == nil {
			db.Log.Warn("notices from the database were interrupted; trying again", "channel", channel, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(listenRetry):
		}
	}
}

func (db *DB) listenOnce(ctx context.Context, channel string, lost func(), notice func(payload string)) error {
	// This uses a separate connection: a pooled one would be missing from the pool permanently.
	config := db.System.Config().ConnConfig
	if db.member != (domain.MemberID{}) {
		config.RuntimeParams["application_name"] = ListenerName + db.member.String()
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
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		notice(notification.Payload)
	}
}

// Notify sends a notice when tx commits.
func Notify(ctx context.Context, tx pgx.Tx, channel, payload string) error {
	if _, err := tx.Exec(ctx, "select pg_notify($1, $2)", channel, payload); err != nil {
		return fmt.Errorf("notify %s: %w", channel, err)
	}
	return nil
}

// Subscribers are the subscribers to a change in this process. The zero value has none.
type Subscribers[T any] struct {
	mu    sync.Mutex
	last  int
	calls map[int]func(T)
}

// Add subscribes, and returns a function that ends the subscription.
func (s *Subscribers[T]) Add(call func(T)) (remove func()) {
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

// Notify calls every subscriber. A subscriber that is just being removed may be called once more.
func (s *Subscribers[T]) Notify(change T) {
	s.mu.Lock()
	calls := slices.Collect(maps.Values(s.calls))
	s.mu.Unlock()
	for _, call := range calls {
		call(change)
	}
}
