package auth

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tenant"
)

var keyQuota = pg.Quota{Items: "keys that are not revoked", Table: "keys", Where: "t.revoked_at is null", Max: MaxKeys}

const keyColumns = "k.tenant_id, k.key_id, k.name, k.hash, k.scopes, k.created_at, k.revoked_at"

// scanKey reads a row of keyColumns and the columns after them.
func scanKey(row pgx.CollectableRow, more ...any) (APIKey, error) {
	var key APIKey
	var hash []byte
	var grants []string
	into := append([]any{&key.Tenant, &key.ID, &key.Name, &hash, &grants, (*pg.Moment)(&key.CreatedAt), (*pg.Moment)(&key.RevokedAt)}, more...)
	if err := row.Scan(into...); err != nil {
		return APIKey{}, err
	}
	if len(hash) != len(key.Hash) {
		return APIKey{}, fmt.Errorf("the hash of key %s has %d bytes", key.ID, len(hash))
	}
	copy(key.Hash[:], hash)
	key.Grants = KeptGrants(grants)
	return key, nil
}

// CreateKey stores a key. CreatedAt is now if zero. If the tenant is neither active nor suspended, the error is
// domain.CodeNotFound. A tenant may have MaxKeys that are not revoked; beyond that the error is
// domain.CodeQuotaExceeded.
func (s *Postgres) CreateKey(ctx context.Context, key APIKey) error {
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		// The lock keeps a key from being added after the tenant's keys were erased.
		there, err := pg.Exec(ctx, tx, "lock a tenant", `
			select from tenants t where t.tenant_id = $1 and t.state in ('active', 'suspended') for share`, key.Tenant)
		switch {
		case err != nil:
			return err
		case there == 0:
			return tenant.NotFound(key.Tenant)
		}
		_, err = tx.Exec(ctx, `
			insert into keys (tenant_id, key_id, name, hash, scopes, created_at) values ($1, $2, $3, $4, $5, coalesce($6, now()))`,
			key.Tenant, key.ID, key.Name, key.Hash[:], key.Grants.Texts(), pg.TimeOrNull(key.CreatedAt))
		switch {
		case pg.SQLState(err) == pg.UniqueViolation:
			return domain.Errorf(domain.CodeAlreadyExists, "id", "key %s already exists", key.ID)
		case err != nil:
			return fmt.Errorf("create a key: %w", err)
		}
		if err := keyQuota.Check(ctx, tx, key.Tenant); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			delete from keys k where k.tenant_id = $1 and k.key_id in (
				select o.key_id from keys o where o.tenant_id = $1 and o.revoked_at is not null
				order by o.revoked_at desc, o.key_id offset $2)`, key.Tenant, MaxRevokedKeys)
		if err != nil {
			return fmt.Errorf("forget old revoked keys: %w", err)
		}
		return pg.Notify(ctx, tx, pg.KeysChannel, key.Tenant.String())
	})
	if err != nil {
		return pg.Unavailable(err)
	}
	s.db.KeysChanged.Notify(key.Tenant)
	return nil
}

// Keys returns the first limit of a tenant's keys after the key with the id after (zero: from the first), including
// revoked ones. They are ordered by id, which is roughly the order of creation.
func (s *Postgres) Keys(ctx context.Context, tenant domain.TenantID, after KeyID, limit int) ([]APIKey, error) {
	rows, _ := s.db.System.Query(ctx, "select "+keyColumns+` from keys k
		where k.tenant_id = $1 and k.key_id > $2 order by k.key_id limit $3`, tenant, after, limit)
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (APIKey, error) { return scanKey(row) })
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the keys: %w", err))
	}
	return keys, nil
}

// Key returns a key, even a revoked one, and the state of its tenant, or domain.CodeNotFound if there is none.
func (s *Postgres) Key(ctx context.Context, tenant domain.TenantID, id KeyID) (APIKey, domain.TenantState, error) {
	var state domain.TenantState
	rows, _ := s.db.System.Query(ctx, "select "+keyColumns+`, t.state
		from keys k join tenants t on t.tenant_id = k.tenant_id where k.tenant_id = $1 and k.key_id = $2`, tenant, id)
	key, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (APIKey, error) { return scanKey(row, &state) })
	if errors.Is(err, pgx.ErrNoRows) {
		return APIKey{}, "", noKey(id)
	}
	if err != nil {
		return APIKey{}, "", pg.Unavailable(fmt.Errorf("read a key: %w", err))
	}
	return key, state, nil
}

// RevokeKey invalidates a key permanently. Revoking it again changes nothing. It returns domain.CodeNotFound if there
// is no such key.
func (s *Postgres) RevokeKey(ctx context.Context, tenant domain.TenantID, id KeyID) error {
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		found, err := tx.Exec(ctx,
			"update keys k set revoked_at = least(k.revoked_at, now()) where k.tenant_id = $1 and k.key_id = $2", tenant, id)
		switch {
		case err != nil:
			return fmt.Errorf("revoke a key: %w", err)
		case found.RowsAffected() == 0:
			return noKey(id)
		}
		return pg.Notify(ctx, tx, pg.KeysChannel, tenant.String())
	})
	if err != nil {
		return pg.Unavailable(err)
	}
	s.db.KeysChanged.Notify(tenant)
	return nil
}

func noKey(id KeyID) error {
	return domain.Errorf(domain.CodeNotFound, "", "there is no key %s", id)
}

// ListenKeys calls changed when a key or the state of a tenant has changed. In this process, that happens before the
// changing method returns; in others, as soon as PostgreSQL delivers the notice. ListenKeys calls changed with
// domain.Everyone if notices may have been lost, including at the start: the caller must then forget all cached keys.
// changed must return soon, and is called by several goroutines. ListenKeys blocks until ctx ends, and then returns
// nil.
func (s *Postgres) ListenKeys(ctx context.Context, changed func(tenant domain.TenantID)) error {
	defer s.db.KeysChanged.Add(changed)()
	s.db.ListenTenants(ctx, pg.KeysChannel, changed)
	return nil
}
