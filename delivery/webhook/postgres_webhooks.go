package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/pg"
)

// Lock order: a transaction that locks a webhook and its group locks the webhook's row first. Everything that belongs
// to a webhook is changed while its row is locked.

// storedWebhook is the stored form of a webhook's definition. Fields of a later release, which may run at the same
// time, are ignored.
type storedWebhook struct {
	Stream       string           `json:"stream,omitempty"`
	Categories   []string         `json:"categories,omitempty"`
	Types        []string         `json:"types,omitempty"`
	Query        domain.QueryForm `json:"query,omitzero"`
	Filter       string           `json:"filter,omitempty"`
	Projection   string           `json:"projection,omitempty"`
	URL          string           `json:"url"`
	Delay        int64            `json:"delay,omitempty"` // all times are in milliseconds
	DedupeID     string           `json:"dedupeId,omitempty"`
	DedupeWindow int64            `json:"dedupeWindow,omitempty"`
	From         string           `json:"from"`
	Format       string           `json:"format"`
	Ordering     string           `json:"ordering"`
	Timeout      int64            `json:"timeout"`
}

func keepWebhook(d Definition) storedWebhook {
	return storedWebhook{
		Stream: d.Stream, Categories: pg.NilIfEmpty(d.Categories), Types: pg.NilIfEmpty(d.Types), Query: domain.QueryForm{Items: d.Query.Clone()}, Filter: d.Filter, Projection: d.Projection, URL: d.URL,
		Delay: d.Delay.Milliseconds(), DedupeID: d.DedupeID, DedupeWindow: d.DedupeWindow.Milliseconds(), From: d.From, Format: string(d.Format),
		Ordering: string(d.Ordering), Timeout: d.Timeout.Milliseconds(),
	}
}

func readWebhookDefinition(raw []byte) (Definition, error) {
	var k storedWebhook
	if err := json.Unmarshal(raw, &k); err != nil {
		return Definition{}, fmt.Errorf("decode a stored webhook definition: %w", err)
	}
	return Definition{
		Selection:  domain.Selection{Stream: k.Stream, Categories: k.Categories, Types: k.Types, Query: k.Query.Items, Filter: k.Filter},
		Projection: k.Projection, URL: k.URL, Delay: time.Duration(k.Delay) * time.Millisecond, DedupeID: k.DedupeID,
		DedupeWindow: time.Duration(k.DedupeWindow) * time.Millisecond, From: k.From, Format: Format(k.Format),
		Ordering: domain.Ordering(k.Ordering), Timeout: time.Duration(k.Timeout) * time.Millisecond,
	}, nil
}

// webhookColumns are the columns that scanWebhook expects, of the table of webhooks as w.
const webhookColumns = `w.name, w.definition, w.revision, w.paused, w.disabled_at, w.disabled_reason, w.created_at, w.updated_at`

func scanWebhook(row pgx.CollectableRow) (Webhook, error) {
	var w Webhook
	var definition []byte
	err := row.Scan(&w.Name, &definition, &w.Revision, &w.Paused, (*pg.Moment)(&w.DisabledAt), &w.DisabledReason, (*pg.Moment)(&w.CreatedAt), (*pg.Moment)(&w.UpdatedAt))
	if err != nil {
		return Webhook{}, err
	}
	w.Definition, err = readWebhookDefinition(definition)
	return w, err
}

func noWebhook(name string) error {
	return domain.Errorf(domain.CodeNotFound, "name", "there is no webhook %q; create it with PUT /v1/webhooks/%s", name, name)
}

// webhookGroup returns the name of a webhook's group, and replayGroup that of its replay's group.
func webhookGroup(name string) string { return domain.ServiceGroup(domain.ServiceWebhook, name) }
func replayGroup(name string) string  { return domain.ServiceGroup(domain.ServiceReplay, name) }

// PutWebhook creates a webhook with its first secret and its group, which begins to read at the position start. If the
// webhook exists, PutWebhook replaces its definition and its group's, and resumes it if it was disabled. It returns the
// resulting webhook. If both definitions are the same and it is not disabled, nothing changes, including the revision.
// A tenant may have MaxWebhooks; beyond that the error is domain.CodeQuotaExceeded.
func (s *Postgres) PutWebhook(
	ctx context.Context, tenant domain.TenantID, name string, definition Definition, consumer domain.GroupDefinition, start int64, secret Secret,
) (webhook Webhook, created bool, err error) {
	kept := keepWebhook(definition)
	raw, err := json.Marshal(kept)
	if err != nil {
		return Webhook{}, false, fmt.Errorf("write the webhook's definition: %w", err)
	}
	webhook, err = s.changeWebhook(ctx, tenant, name, func(tx pgx.Tx) (changed bool, err error) {
		created = false
		rows, _ := tx.Query(ctx, `
			insert into webhooks as w (tenant_id, name, definition, revision) values ($1, $2, $3, $4)
			on conflict (tenant_id, name) do nothing returning `+webhookColumns, tenant, name, raw, pg.FirstRevision())
		_, err = pgx.CollectExactlyOneRow(rows, scanWebhook)
		switch {
		case err == nil:
			created = true
			if err := limits.Webhooks.Check(ctx, tx, tenant, MaxWebhooks); err != nil {
				return false, err
			}
			if err := s.insertSecret(ctx, tx, tenant, name, secret); err != nil {
				return false, err
			}
		case !errors.Is(err, pgx.ErrNoRows):
			return false, fmt.Errorf("create a webhook: %w", err)
		default:
			there, err := lockWebhook(ctx, tx, tenant, name)
			if err != nil {
				return false, err
			}
			if changed = !reflect.DeepEqual(keepWebhook(there.Definition), kept) || !there.DisabledAt.IsZero(); changed {
				_, err := tx.Exec(ctx, `
					update webhooks as w set definition = $3, disabled_at = null, disabled_reason = '' where w.tenant_id = $1 and w.name = $2`, tenant, name, raw)
				if err != nil {
					return false, fmt.Errorf("change a webhook: %w", err)
				}
			}
		}
		_, _, moved, err := group.PutGroupTx(ctx, tx, tenant, webhookGroup(name), consumer, start)
		return changed || moved, err
	})
	return webhook, created, err
}

// changeWebhook runs do in a transaction under the tenant, increments the webhook's revision if do reports a change of
// existing rows, and returns the resulting webhook. It notifies the users of webhooks.
func (s *Postgres) changeWebhook(ctx context.Context, tenant domain.TenantID, name string, do func(pgx.Tx) (changed bool, err error)) (webhook Webhook, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		changed, err := do(tx)
		if err != nil {
			return err
		}
		if changed {
			_, err := tx.Exec(ctx, `
				update webhooks as w set revision = w.revision + 1, updated_at = now() where w.tenant_id = $1 and w.name = $2`, tenant, name)
			if err != nil {
				return fmt.Errorf("give a webhook another revision: %w", err)
			}
		}
		found, err := s.readWebhooks(ctx, tx, tenant, "w.name = $2", name)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return noWebhook(name)
		}
		webhook = found[0]
		return pg.Notify(ctx, tx, pg.WebhooksChannel, tenant.String())
	})
	if err != nil {
		return Webhook{}, err
	}
	s.db.WebhooksChanged.Notify(tenant)
	s.groups.NotifyGroup(tenant, webhookGroup(name))
	return webhook, nil
}

// TellWebhooks notifies the users of webhooks that a tenant's webhooks have changed.
func (s *Postgres) TellWebhooks(ctx context.Context, tenant domain.TenantID) error {
	if _, err := s.db.System.Exec(ctx, "select pg_notify($1, $2)", pg.WebhooksChannel, tenant.String()); err != nil {
		return pg.Unavailable(fmt.Errorf("notify of changed webhooks: %w", err))
	}
	s.db.WebhooksChanged.Notify(tenant)
	return nil
}

// lockWebhook locks a webhook's row, but not against transactions that only prevent its removal. It returns the webhook
// without its secrets and replay, or domain.CodeNotFound if there is none.
func lockWebhook(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) (Webhook, error) {
	rows, _ := tx.Query(ctx, "select "+webhookColumns+" from webhooks as w where w.tenant_id = $1 and w.name = $2 for no key update", tenant, name)
	webhook, err := pgx.CollectExactlyOneRow(rows, scanWebhook)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Webhook{}, noWebhook(name)
	case err != nil:
		return Webhook{}, fmt.Errorf("lock a webhook: %w", err)
	}
	return webhook, nil
}

// readWebhooks reads a tenant's webhooks, ordered by name, with their secrets and replays. The condition where refers
// to the table of webhooks as w, with params from $2 on.
func (s *Postgres) readWebhooks(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, where string, params ...any) ([]Webhook, error) {
	params = append([]any{tenant}, params...)
	rows, _ := tx.Query(ctx, "select "+webhookColumns+" from webhooks as w where w.tenant_id = $1 and "+where, params...)
	found, err := pgx.CollectRows(rows, scanWebhook)
	if err != nil {
		return nil, fmt.Errorf("read webhooks: %w", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	names, at := make([]string, len(found)), make(map[string]*Webhook, len(found))
	for i := range found {
		names[i], at[found[i].Name] = found[i].Name, &found[i]
	}
	if err := s.readSecrets(ctx, tx, tenant, names, at); err != nil {
		return nil, err
	}
	return found, readWebhookReplays(ctx, tx, tenant, names, at)
}

// Webhook returns a webhook, or domain.CodeNotFound if there is none.
func (s *Postgres) Webhook(ctx context.Context, tenant domain.TenantID, name string) (webhook Webhook, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		found, err := s.readWebhooks(ctx, tx, tenant, "w.name = $2", name)
		switch {
		case err != nil:
			return err
		case len(found) == 0:
			return noWebhook(name)
		}
		webhook = found[0]
		return nil
	})
	return webhook, err
}

// Webhooks returns the first limit webhooks after the name after (empty: from the first), ordered by name.
func (s *Postgres) Webhooks(ctx context.Context, tenant domain.TenantID, after string, limit int) (webhooks []Webhook, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		webhooks, err = s.readWebhooks(ctx, tx, tenant, "w.name > $2 order by w.name limit $3", after, limit)
		return err
	})
	return webhooks, err
}

// SendingWebhooks returns all webhooks of an active tenant. For a suspended or deleting tenant, nothing is sent.
func (s *Postgres) SendingWebhooks(ctx context.Context, tenant domain.TenantID) (webhooks []Webhook, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		webhooks, err = s.readWebhooks(ctx, tx, tenant, `
			not exists (select from tenants t where t.tenant_id = $1 and t.state <> 'active') order by w.name limit $2`, MaxWebhooks)
		return err
	})
	return webhooks, err
}

// WebhookTenants returns the tenants that have a webhook, in no order.
func (s *Postgres) WebhookTenants(ctx context.Context) ([]domain.TenantID, error) {
	rows, _ := s.db.System.Query(ctx, "select distinct w.tenant_id from webhooks w")
	tenants, err := pgx.CollectRows(rows, pgx.RowTo[domain.TenantID])
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the tenants with webhooks: %w", err))
	}
	return tenants, nil
}

// PauseWebhook pauses or resumes a webhook and returns the resulting webhook. It also resumes a disabled webhook. A
// webhook already in that state keeps its revision.
func (s *Postgres) PauseWebhook(ctx context.Context, tenant domain.TenantID, name string, paused bool) (Webhook, error) {
	return s.changeWebhook(ctx, tenant, name, func(tx pgx.Tx) (changed bool, err error) {
		webhook, err := lockWebhook(ctx, tx, tenant, name)
		if err != nil || webhook.Paused == paused && (paused || webhook.DisabledAt.IsZero()) {
			return false, err
		}
		_, err = tx.Exec(ctx, `
			update webhooks as w set paused = $3, disabled_at = case when $3 then w.disabled_at end, disabled_reason = case when $3 then w.disabled_reason else '' end
			where w.tenant_id = $1 and w.name = $2`, tenant, name, paused)
		if err != nil {
			return false, fmt.Errorf("pause or resume a webhook: %w", err)
		}
		return true, nil
	})
}

// DisableWebhook stops a webhook on the service's behalf, with a reason for people. It changes nothing if the webhook's
// revision differs from the given one, because the problem may have been fixed. disabled reports whether it did.
func (s *Postgres) DisableWebhook(ctx context.Context, tenant domain.TenantID, name string, revision int64, reason string) (disabled bool, err error) {
	_, err = s.changeWebhook(ctx, tenant, name, func(tx pgx.Tx) (changed bool, err error) {
		done, err := tx.Exec(ctx, `
			update webhooks as w set disabled_at = now(), disabled_reason = $4
			where w.tenant_id = $1 and w.name = $2 and w.revision = $3 and w.disabled_at is null`, tenant, name, revision, pg.CleanText(reason))
		if err != nil {
			return false, fmt.Errorf("disable a webhook: %w", err)
		}
		disabled = done.RowsAffected() > 0
		return disabled, nil
	})
	return disabled, err
}

// Tables are the tables with a webhook's rows, in the order in which they are emptied.
var Tables = [...]string{"webhooks", "webhook_secrets", "replays", "webhook_attempts", "webhook_claims"}

// DeleteWebhook removes a webhook with its group, its replay, and everything that belongs to them, or returns
// domain.CodeNotFound if there is none. It removes potentially many rows first, in slices. If the call is interrupted,
// the webhook may remain with fewer of them.
func (s *Postgres) DeleteWebhook(ctx context.Context, tenant domain.TenantID, name string) error {
	if _, err := s.Webhook(ctx, tenant, name); err != nil {
		return err
	}
	for _, group := range []string{webhookGroup(name), replayGroup(name)} {
		if err := s.emptyGroup(ctx, tenant, group, always); err != nil {
			return err
		}
	}
	if err := s.emptySliced(ctx, "webhook_attempts", tenant, name, always); err != nil {
		return err
	}
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if _, err := lockWebhook(ctx, tx, tenant, name); err != nil {
			return err
		}
		for _, its := range []string{webhookGroup(name), replayGroup(name)} {
			if err := group.RemoveGroupTx(ctx, tx, tenant, its); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
				return err
			}
		}
		for _, table := range Tables {
			names := []string{name}
			if table == "webhook_claims" {
				names = []string{webhookGroup(name), replayGroup(name)}
			}
			if _, err := tx.Exec(ctx, "delete from "+table+" as t where t.tenant_id = $1 and t.name = any($2::text[])", tenant, names); err != nil {
				return fmt.Errorf("remove a webhook's rows of %s: %w", table, err)
			}
		}
		return pg.Notify(ctx, tx, pg.WebhooksChannel, tenant.String())
	})
	if err != nil {
		return err
	}
	s.db.WebhooksChanged.Notify(tenant)
	s.groups.NotifyGroup(tenant, webhookGroup(name))
	s.groups.NotifyGroup(tenant, replayGroup(name))
	return nil
}

// emptyGroup removes the dead letters and the claims of a service group, in slices. Each transaction begins with may;
// an error of may ends the operation.
func (s *Postgres) emptyGroup(ctx context.Context, tenant domain.TenantID, group string, may func(pgx.Tx) error) error {
	if _, err := s.groups.DiscardDeadLettersIf(ctx, tenant, group, may); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return err
	}
	return s.emptySliced(ctx, "webhook_claims", tenant, group, may)
}

// always allows every change.
func always(pgx.Tx) error { return nil }

// ListenWebhooks calls changed when any process has changed a tenant's webhooks, their secrets or replays, or the
// tenant's state. It calls changed with domain.Everyone if notices may have been lost, including at the start. changed
// must return soon, and is called by several goroutines. ListenWebhooks blocks until ctx ends, and then returns nil.
func (s *Postgres) ListenWebhooks(ctx context.Context, changed func(tenant domain.TenantID)) error {
	defer s.db.WebhooksChanged.Add(changed)()
	s.db.ListenTenants(ctx, pg.WebhooksChannel, changed)
	return nil
}
