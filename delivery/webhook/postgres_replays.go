package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// readWebhookReplays sets the replays of webhooks.
func readWebhookReplays(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, names []string, at map[string]*Webhook) error {
	rows, _ := tx.Query(ctx, `
		select r.name, r.from_position, r.to_position, r.started_at, r.done_at from replays as r
		where r.tenant_id = $1 and r.name = any($2::text[])`, tenant, names)
	var name string
	var replay Replay
	_, err := pgx.ForEachRow(rows, []any{&name, &replay.From, &replay.To, (*pg.Moment)(&replay.StartedAt), (*pg.Moment)(&replay.DoneAt)}, func() error {
		at[name].Replay = new(replay)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the replays of webhooks: %w", err)
	}
	return nil
}

// StartWebhookReplay starts a replay of a webhook, with a separate group that reads from replay.From on, and returns
// the webhook with it. It replaces a finished replay and its dead letters. If a replay is running, the error is
// domain.CodeConflict.
func (s *Postgres) StartWebhookReplay(ctx context.Context, tenant domain.TenantID, name string, replay Replay, definition domain.GroupDefinition) (Webhook, error) {
	before, err := s.Webhook(ctx, tenant, name)
	if err == nil {
		err = replaying(name, before.Replay)
	}
	if err != nil {
		return Webhook{}, err
	}
	// Do not touch a replay that another process has started meanwhile.
	may := func(tx pgx.Tx) error {
		there, err := lockReplay(ctx, tx, tenant, name)
		if err != nil {
			return err
		}
		return replaying(name, there)
	}
	// Potentially many rows are removed first, in slices.
	if err := s.emptyGroup(ctx, tenant, replayGroup(name), may); err != nil {
		return Webhook{}, err
	}
	webhook, err := s.changeWebhook(ctx, tenant, name, func(tx pgx.Tx) (changed bool, err error) {
		if err := may(tx); err != nil {
			return false, err
		}
		if err := removeReplay(ctx, tx, tenant, name); err != nil {
			return false, err
		}
		_, err = tx.Exec(ctx, `
			insert into replays (tenant_id, name, from_position, to_position)
			select w.tenant_id, w.name, $3::bigint, $4::bigint from webhooks as w where w.tenant_id = $1 and w.name = $2`, tenant, name, replay.From, replay.To)
		if err != nil {
			return false, fmt.Errorf("keep a webhook's replay: %w", err)
		}
		_, _, _, err = group.PutGroupTx(ctx, tx, tenant, replayGroup(name), definition, replay.From)
		return true, err
	})
	s.groups.NotifyGroup(tenant, replayGroup(name))
	return webhook, err
}

// lockReplay locks a webhook's row, which guards the start and end of replays, and returns its replay; nil if there is
// none.
func lockReplay(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) (*Replay, error) {
	webhook, err := lockWebhook(ctx, tx, tenant, name)
	if err != nil {
		return nil, err
	}
	err = readWebhookReplays(ctx, tx, tenant, []string{name}, map[string]*Webhook{name: &webhook})
	return webhook.Replay, err
}

// replaying returns an error if a replay is running.
func replaying(name string, replay *Replay) error {
	if replay == nil || !replay.DoneAt.IsZero() {
		return nil
	}
	return domain.Errorf(domain.CodeConflict, "", "positions %d to %d of webhook %q are being replayed; wait for the end, or end it with DELETE /v1/webhooks/%s/replay",
		replay.From, replay.To, name, name)
}

// EndWebhookReplay notes that the replay that was started at a time is done, if it is still the current one. Its group
// stays, with its dead letters.
func (s *Postgres) EndWebhookReplay(ctx context.Context, tenant domain.TenantID, name string, startedAt time.Time) error {
	_, err := s.changeWebhook(ctx, tenant, name, func(tx pgx.Tx) (changed bool, err error) {
		if _, err := lockWebhook(ctx, tx, tenant, name); err != nil {
			return false, err
		}
		done, err := tx.Exec(ctx, `
			update replays as r set done_at = now() where r.tenant_id = $1 and r.name = $2 and r.started_at = $3 and r.done_at is null`, tenant, name, startedAt)
		if err != nil {
			return false, fmt.Errorf("end a webhook's replay: %w", err)
		}
		return done.RowsAffected() > 0, nil
	})
	return err
}

// CancelWebhookReplay removes a webhook's replay, whatever its progress, with its group and dead letters, and returns
// the webhook without it. It returns domain.CodeNotFound if there is none, and domain.CodeConflict if another replay
// has replaced it meanwhile.
func (s *Postgres) CancelWebhookReplay(ctx context.Context, tenant domain.TenantID, name string) (Webhook, error) {
	before, err := s.Webhook(ctx, tenant, name)
	if err != nil {
		return Webhook{}, err
	}
	may := func(tx pgx.Tx) error {
		there, err := lockReplay(ctx, tx, tenant, name)
		switch {
		case err != nil:
			return err
		case before.Replay == nil || there == nil:
			return domain.Errorf(domain.CodeNotFound, "name", "webhook %q has no replay", name)
		case !there.StartedAt.Equal(before.Replay.StartedAt):
			return domain.Errorf(domain.CodeConflict, "", "another replay of webhook %q has started; check it, and repeat the request to end it", name)
		}
		return nil
	}
	if err := s.emptyGroup(ctx, tenant, replayGroup(name), may); err != nil {
		return Webhook{}, err
	}
	webhook, err := s.changeWebhook(ctx, tenant, name, func(tx pgx.Tx) (changed bool, err error) {
		if err := may(tx); err != nil {
			return false, err
		}
		return true, removeReplay(ctx, tx, tenant, name)
	})
	s.groups.NotifyGroup(tenant, replayGroup(name))
	return webhook, err
}

// removeReplay removes the rows of a replay and of its group, if there is one.
func removeReplay(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) error {
	if err := group.RemoveGroupTx(ctx, tx, tenant, replayGroup(name)); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return err
	}
	if _, err := tx.Exec(ctx, "delete from webhook_claims as c where c.tenant_id = $1 and c.name = $2", tenant, replayGroup(name)); err != nil {
		return fmt.Errorf("remove a replay's claims: %w", err)
	}
	if _, err := tx.Exec(ctx, "delete from replays as r where r.tenant_id = $1 and r.name = $2", tenant, name); err != nil {
		return fmt.Errorf("remove a replay: %w", err)
	}
	return nil
}
