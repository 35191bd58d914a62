package webhook

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/atrest"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// secretPlace is where a secret is stored, for atrest.
func secretPlace(tenant domain.TenantID, name string, id SecretID) []string {
	return []string{"webhook_secrets", tenant.String(), name, id.String()}
}

func (s *Postgres) insertSecret(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string, secret Secret) error {
	stored := s.keys.Seal(secret.Key, secretPlace(tenant, name, secret.ID)...)
	_, err := tx.Exec(ctx, `
		insert into webhook_secrets (tenant_id, name, secret_id, secret, key_id, created_at)
		select w.tenant_id, w.name, $3::uuid, $4::bytea, nullif($5::text, ''), statement_timestamp() from webhooks as w where w.tenant_id = $1 and w.name = $2`,
		tenant, name, secret.ID, stored.Data, stored.Key)
	if err != nil {
		return fmt.Errorf("keep a webhook's secret: %w", err)
	}
	return nil
}

// readSecrets sets the unexpired secrets of webhooks, oldest first.
func (s *Postgres) readSecrets(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, names []string, at map[string]*Webhook) error {
	rows, _ := tx.Query(ctx, `
		select s.name, s.secret_id, s.secret, coalesce(s.key_id, ''), s.created_at, s.expires_at from webhook_secrets as s
		where s.tenant_id = $1 and s.name = any($2::text[]) and (s.expires_at is null or s.expires_at > statement_timestamp())
		order by s.created_at, s.secret_id`, tenant, names)
	var name string
	var secret Secret
	var stored atrest.Stored
	_, err := pgx.ForEachRow(rows, []any{&name, &secret.ID, &stored.Data, &stored.Key, (*pg.Moment)(&secret.CreatedAt), (*pg.Moment)(&secret.ExpiresAt)}, func() error {
		secret.Key, secret.Unusable = s.keys.Open(stored, secretPlace(tenant, name, secret.ID)...)
		at[name].Secrets = append(at[name].Secrets, secret)
		stored.Data = nil // the next secret needs separate memory
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the secrets of webhooks: %w", err)
	}
	return nil
}

// HasSecretKeys reports whether there are keys for secrets.
func (s *Postgres) HasSecretKeys() bool { return s.keys != nil }

// EncryptSecrets encrypts the secrets of a tenant's webhooks with the current key, or stores them plainly if no key
// encrypts. It returns how many it has replaced, and an error with the number of secrets that it could not decrypt.
// Expired secrets are removed. It does nothing without keys. Each secret has a separate transaction, so that nothing
// waits for more than one of them.
func (s *Postgres) EncryptSecrets(ctx context.Context, tenant domain.TenantID) (stored int, err error) {
	if s.keys == nil {
		return 0, nil
	}
	type row struct {
		Name   string
		ID     SecretID
		Secret []byte
		Key    string
	}
	var old []row
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "delete from webhook_secrets as s where s.tenant_id = $1 and s.expires_at <= statement_timestamp()", tenant)
		if err != nil {
			return err
		}
		rows, _ := tx.Query(ctx, `
			select s.name, s.secret_id, s.secret, coalesce(s.key_id, '') from webhook_secrets as s
			where s.tenant_id = $1 and coalesce(s.key_id, '') <> $2`, tenant, s.keys.Current())
		old, err = pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("look for secrets to encrypt: %w", err)
	}
	unusable, example := 0, error(nil)
	for _, r := range old {
		place := secretPlace(tenant, r.Name, r.ID)
		secret, err := s.keys.Open(atrest.Stored{Key: r.Key, Data: r.Secret}, place...)
		if err != nil {
			unusable++
			example = fmt.Errorf("%s of webhook %q: %w", r.ID, r.Name, err)
			continue
		}
		sealed := s.keys.Seal(secret, place...)
		err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
			// Another process may have replaced it in the meantime.
			done, err := tx.Exec(ctx, `
				update webhook_secrets as s set secret = $4, key_id = nullif($5::text, '')
				where s.tenant_id = $1 and s.name = $2 and s.secret_id = $3 and s.secret = $6`,
				tenant, r.Name, r.ID, sealed.Data, sealed.Key, r.Secret)
			stored += int(done.RowsAffected())
			return err
		})
		if err != nil {
			return stored, fmt.Errorf("encrypt a webhook's secret: %w", err)
		}
	}
	if unusable > 0 {
		err = fmt.Errorf("%d secrets of tenant %s cannot be decrypted, such as %w", unusable, tenant, example)
	}
	return stored, err
}

// AddWebhookSecret adds a secret to a webhook and returns the webhook with it. The existing secrets expire after the
// time expireOld from now, or earlier if they already had to; negative: they stay unchanged. Beyond
// MaxSecrets the error is domain.CodeConflict.
func (s *Postgres) AddWebhookSecret(ctx context.Context, tenant domain.TenantID, name string, secret Secret, expireOld time.Duration) (Webhook, error) {
	return s.changeWebhook(ctx, tenant, name, func(tx pgx.Tx) (changed bool, err error) {
		if _, err := lockWebhook(ctx, tx, tenant, name); err != nil {
			return false, err
		}
		if expireOld >= 0 {
			_, err := tx.Exec(ctx, `
				update webhook_secrets as s set expires_at = least(s.expires_at, statement_timestamp() + $3::interval) where s.tenant_id = $1 and s.name = $2`,
				tenant, name, expireOld)
			if err != nil {
				return false, fmt.Errorf("have a webhook's secrets expire: %w", err)
			}
		}
		there, err := signing(ctx, tx, tenant, name)
		switch {
		case err != nil:
			return false, err
		case there >= MaxSecrets:
			return false, domain.Errorf(domain.CodeConflict, "", "webhook %q has %d secrets, which is the maximum; remove one that its receiver no longer needs", name, there)
		}
		return true, s.insertSecret(ctx, tx, tenant, name, secret)
	})
}

// signing removes the expired secrets and returns how many are left.
func signing(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) (secrets int, err error) {
	_, err = tx.Exec(ctx, "delete from webhook_secrets as s where s.tenant_id = $1 and s.name = $2 and s.expires_at <= statement_timestamp()", tenant, name)
	if err != nil {
		return 0, fmt.Errorf("remove a webhook's expired secrets: %w", err)
	}
	err = tx.QueryRow(ctx, "select count(*) from webhook_secrets s where s.tenant_id = $1 and s.name = $2", tenant, name).Scan(&secrets)
	if err != nil {
		return 0, fmt.Errorf("count a webhook's secrets: %w", err)
	}
	return secrets, nil
}

// RemoveWebhookSecret removes a secret and returns the webhook without it. It returns domain.CodeNotFound if there is
// none, and domain.CodeConflict if no secret without an expiry would be left.
func (s *Postgres) RemoveWebhookSecret(ctx context.Context, tenant domain.TenantID, name string, id SecretID) (Webhook, error) {
	return s.changeWebhook(ctx, tenant, name, func(tx pgx.Tx) (changed bool, err error) {
		if _, err := lockWebhook(ctx, tx, tenant, name); err != nil {
			return false, err
		}
		if _, err := signing(ctx, tx, tenant, name); err != nil {
			return false, err
		}
		gone, err := tx.Exec(ctx, "delete from webhook_secrets as s where s.tenant_id = $1 and s.name = $2 and s.secret_id = $3", tenant, name, id)
		switch {
		case err != nil:
			return false, fmt.Errorf("remove a webhook's secret: %w", err)
		case gone.RowsAffected() == 0:
			return false, domain.Errorf(domain.CodeNotFound, "secretId", "webhook %q has no secret %s", name, id)
		}
		var lasting bool
		err = tx.QueryRow(ctx, "select exists (select from webhook_secrets s where s.tenant_id = $1 and s.name = $2 and s.expires_at is null)", tenant, name).Scan(&lasting)
		switch {
		case err != nil:
			return false, fmt.Errorf("look for a webhook's secrets: %w", err)
		case !lasting:
			return false, domain.Errorf(domain.CodeConflict, "secretId", "%s is the only secret of webhook %q that does not expire: add another one first", id, name)
		}
		return true, nil
	})
}
