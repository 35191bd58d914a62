package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/tenant"
)

const keyColumns = `k.tenant_id, k.key_id, k.name, k.hash, k.scopes, k.networks, k.created_at, k.expires_at, k.revoked_at,
	k.last_used_at, k.rotated_to, k.limits`

const (
	listKeys = "select " + keyColumns + ` from keys k
		where k.tenant_id = $1 and k.key_id > $2 order by k.key_id limit $3`
	readKey = "select " + keyColumns + `, t.state
		from keys k join tenants t on t.tenant_id = k.tenant_id where k.tenant_id = $1 and k.key_id = $2`
	readState = "select t.state from tenants t where t.tenant_id = $1"
)

// scanKey reads a row of keyColumns and the columns after them.
func scanKey(row pgx.CollectableRow, more ...any) (APIKey, error) {
	var key APIKey
	var hash []byte
	var grants []string
	var rotatedTo *KeyID
	into := append([]any{
		&key.Tenant, &key.ID, &key.Name, &hash, &grants, &key.Networks, (*pg.Moment)(&key.CreatedAt), (*pg.Moment)(&key.ExpiresAt), (*pg.Moment)(&key.RevokedAt),
		(*pg.Moment)(&key.LastUsedAt), &rotatedTo, &key.Limits,
	}, more...)
	if err := row.Scan(into...); err != nil {
		return APIKey{}, err
	}
	if len(hash) != len(key.Hash) {
		return APIKey{}, fmt.Errorf("the hash of key %s has %d bytes", key.ID, len(hash))
	}
	copy(key.Hash[:], hash)
	key.Grants = KeptGrants(grants)
	if rotatedTo != nil {
		key.RotatedTo = *rotatedTo
	}
	return key, nil
}

// CreateKey stores a key. CreatedAt is now if zero. If the tenant is neither active nor suspended, the error is
// domain.CodeNotFound. A tenant may have MaxKeys that are neither revoked nor expired; beyond that the error is
// domain.CodeQuotaExceeded.
func (s *Postgres) CreateKey(ctx context.Context, key APIKey) error {
	return s.addKey(ctx, key.Tenant, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `
			insert into keys (tenant_id, key_id, name, hash, scopes, networks, created_at, expires_at, limits)
			values ($1, $2, $3, $4, $5, $6, coalesce($7, now()), $8, $9)`,
			key.Tenant, key.ID, key.Name, key.Hash[:], key.Grants.Texts(), append([]netip.Prefix{}, key.Networks...), pg.TimeOrNull(key.CreatedAt), pg.TimeOrNull(key.ExpiresAt), key.Limits)
		switch {
		case pg.SQLState(err) == pg.UniqueViolation:
			return domain.Errorf(domain.CodeAlreadyExists, "id", "key %s already exists", key.ID)
		case err != nil:
			return fmt.Errorf("create a key: %w", err)
		}
		return limits.Keys.Check(ctx, tx, key.Tenant, MaxKeys)
	})
}

// RotateKey stores a key that replaces the key old of a tenant: with its name, scopes, networks and limits, and with an
// expiry that gives it the same lifetime. old expires after overlap, unless it expires earlier; with a zero overlap it
// is revoked. replacement needs only Tenant, ID and Hash. A key is rotated once: the error is domain.CodeConflict for a
// key that was rotated, has expired or was revoked. Other errors are those of CreateKey, though a plan's quota for keys
// does not matter, and domain.CodeNotFound if there is no such key.
func (s *Postgres) RotateKey(ctx context.Context, old KeyID, replacement APIKey, overlap time.Duration) (created APIKey, err error) {
	of := replacement.Tenant
	err = s.addKey(ctx, of, func(tx pgx.Tx) error {
		// A concurrent rotation waits here, and then finds that the key is rotated.
		var now time.Time
		rows, _ := tx.Query(ctx, "select "+keyColumns+", now() from keys k where k.tenant_id = $1 and k.key_id = $2 for update", of, old)
		key, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (APIKey, error) { return scanKey(row, &now) })
		if errors.Is(err, pgx.ErrNoRows) {
			return noKey(old)
		}
		if err != nil {
			return fmt.Errorf("read a key to rotate: %w", err)
		}
		if err := key.rotatable(now); err != nil {
			return err
		}
		var lifetime *time.Duration
		if !key.ExpiresAt.IsZero() {
			lifetime = new(key.ExpiresAt.Sub(key.CreatedAt))
		}
		rows, _ = tx.Query(ctx, `
			insert into keys as k (tenant_id, key_id, name, hash, scopes, networks, created_at, expires_at, limits)
			values ($1, $2, $3, $4, $5, $6, now(), now() + $7::interval, $8)
			returning `+keyColumns, of, replacement.ID, key.Name, replacement.Hash[:], key.Grants.Texts(), key.Networks, lifetime, key.Limits)
		if created, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (APIKey, error) { return scanKey(row) }); err != nil {
			return fmt.Errorf("create a key that replaces another: %w", err)
		}
		_, err = pg.Exec(ctx, tx, "rotate a key", `
			update keys k set rotated_to = $3, expires_at = least(k.expires_at, now() + $4::interval)
			where k.tenant_id = $1 and k.key_id = $2`, of, old, replacement.ID, overlap)
		if err == nil && overlap == 0 {
			err = revokeKey(ctx, tx, of, old)
		}
		return err
	})
	return created, err
}

// rotatable returns nil, or why the key cannot be rotated.
func (k *APIKey) rotatable(now time.Time) error {
	switch {
	case k.RotatedTo != KeyID{}:
		return domain.Errorf(domain.CodeConflict, "path keyId", "key %s was already rotated, to key %s; if that key's secret is lost, rotate that key", k.ID, k.RotatedTo)
	case !k.RevokedAt.IsZero():
		return domain.Errorf(domain.CodeConflict, "path keyId", "key %s was revoked; create a new key", k.ID)
	case !k.ExpiresAt.IsZero() && !now.Before(k.ExpiresAt):
		return domain.Errorf(domain.CodeConflict, "path keyId", "key %s has expired; create a new key", k.ID)
	}
	return nil
}

// validKeys bounds the keys of a tenant with those that were rotated and still work. A plan's quota does not count
// these, and rotations need no room in it: a tenant can always replace a key that has leaked.
var validKeys = pg.Quota{
	Items: "keys that are neither revoked nor expired", Table: "keys", Max: MaxKeys,
	Where: "t.revoked_at is null and coalesce(t.expires_at, 'infinity') > now()",
}

// addKey adds a key of a tenant in a transaction, checks MaxKeys, and announces the change.
func (s *Postgres) addKey(ctx context.Context, of domain.TenantID, add func(tx pgx.Tx) error) error {
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		// The lock keeps a key from being added after the tenant's keys were erased. On a cluster, shared locks of
		// this table would deadlock.
		there, err := pg.Exec(ctx, tx, "lock a tenant", `
			select from tenants t where t.tenant_id = $1 and t.state in ('active', 'suspended') for no key update`, of)
		switch {
		case err != nil:
			return err
		case there == 0:
			return tenant.NotFound(of)
		}
		if err := add(tx); err != nil {
			return err
		}
		if err := validKeys.Check(ctx, tx, of); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			delete from keys k where k.tenant_id = $1 and k.key_id in (
				select o.key_id from keys o
				where o.tenant_id = $1 and (o.revoked_at is not null or o.expires_at <= now())
				order by least(o.revoked_at, o.expires_at) desc, o.key_id offset $2)`, of, MaxRevokedKeys)
		if err != nil {
			return fmt.Errorf("forget old revoked keys: %w", err)
		}
		return pg.Notify(ctx, tx, pg.KeysChannel, of.String())
	})
	if err != nil {
		return pg.Unavailable(err)
	}
	s.db.KeysChanged.Notify(of)
	return nil
}

// Keys returns the first limit of a tenant's keys after the key with the id after (zero: from the first), including
// revoked ones. They are ordered by id, which is roughly the order of creation.
func (s *Postgres) Keys(ctx context.Context, tenant domain.TenantID, after KeyID, limit int) ([]APIKey, error) {
	rows, _ := s.db.System.Query(ctx, listKeys, tenant, after, limit)
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (APIKey, error) { return scanKey(row) })
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the keys: %w", err))
	}
	return keys, nil
}

// Key returns a key, even a revoked one, and the state of its tenant, or domain.CodeNotFound if there is none.
func (s *Postgres) Key(ctx context.Context, tenant domain.TenantID, id KeyID) (APIKey, domain.TenantState, error) {
	var state domain.TenantState
	key, err := pg.LookUp(ctx, s.db.Foreground, tenant, func(row pgx.CollectableRow) (APIKey, error) { return scanKey(row, &state) },
		readKey, tenant, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return APIKey{}, "", noKey(id)
	}
	if err != nil {
		return APIKey{}, "", pg.Unavailable(fmt.Errorf("read a key: %w", err))
	}
	return key, state, nil
}

// tenantState returns the state of a tenant, or domain.CodeNotFound if there is none.
func (s *Postgres) tenantState(ctx context.Context, of domain.TenantID) (state domain.TenantState, err error) {
	state, err = pg.LookUp(ctx, s.db.Foreground, of, pgx.RowTo[domain.TenantState], readState, of)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", tenant.NotFound(of)
	}
	if err != nil {
		return "", pg.Unavailable(fmt.Errorf("read the state of a tenant: %w", err))
	}
	return state, nil
}

// RevokeKey invalidates a key permanently. Revoking it again changes nothing. It returns domain.CodeNotFound if there
// is no such key.
func (s *Postgres) RevokeKey(ctx context.Context, tenant domain.TenantID, id KeyID) error {
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		if err := revokeKey(ctx, tx, tenant, id); err != nil {
			return err
		}
		return pg.Notify(ctx, tx, pg.KeysChannel, tenant.String())
	})
	if err != nil {
		return pg.Unavailable(err)
	}
	s.db.KeysChanged.Notify(tenant)
	return nil
}

// SetKeyLimits replaces a key's limits; nil: only its tenant's apply. It returns the key, or domain.CodeNotFound if
// there is no such key.
func (s *Postgres) SetKeyLimits(ctx context.Context, tenant domain.TenantID, id KeyID, to *domain.Limits) (key APIKey, err error) {
	err = pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, "update keys k set limits = $3 where k.tenant_id = $1 and k.key_id = $2 returning "+keyColumns, tenant, id, to)
		key, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (APIKey, error) { return scanKey(row) })
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return noKey(id)
		case err != nil:
			return fmt.Errorf("set the limits of a key: %w", err)
		}
		return pg.Notify(ctx, tx, pg.KeysChannel, tenant.String())
	})
	if err != nil {
		return APIKey{}, pg.Unavailable(err)
	}
	s.db.KeysChanged.Notify(tenant)
	return key, nil
}

func revokeKey(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, id KeyID) error {
	found, err := pg.Exec(ctx, tx, "revoke a key",
		"update keys k set revoked_at = least(k.revoked_at, now()) where k.tenant_id = $1 and k.key_id = $2", tenant, id)
	if err == nil && found == 0 {
		return noKey(id)
	}
	return err
}

// recordUses stores that keys have just been used. It does not announce that, and skips keys whose stored last use is
// newer than usePrecision, since another process may have stored it.
func (s *Postgres) recordUses(ctx context.Context, used []keyName) error {
	tenants, ids := make([]domain.TenantID, len(used)), make([]KeyID, len(used))
	for i, name := range used {
		tenants[i], ids[i] = name.tenant, name.id
	}
	// PostgreSQL plans the statement for its keys. A plan for any keys would read all those of the tenants.
	_, err := s.db.System.Exec(ctx, `
		update keys k set last_used_at = now()
		where k.tenant_id = any ($1) and k.key_id = any ($2) and k.revoked_at is null
			and coalesce(k.last_used_at, '-infinity') < now() - $3::interval`, pgx.QueryExecModeDescribeExec, tenants, ids, usePrecision)
	if err != nil {
		return pg.Unavailable(fmt.Errorf("store the last use of keys: %w", err))
	}
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
