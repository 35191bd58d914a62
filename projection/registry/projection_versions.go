package registry

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// MaxVersions is how many versions of a definition are kept.
const MaxVersions = 1000

// insertVersion stores a projection's new definition as its next version, and returns the version's number. Version and
// At are the database's. It must run in the transaction that changes the projection's row and has locked or just
// created it, so that nobody else takes the same number. The newest MaxVersions of a projection are kept.
func insertVersion(ctx context.Context, tx pgx.Tx, v domain.ProjectionVersion) (version int64, err error) {
	definition, err := json.Marshal(v.Definition)
	if err != nil {
		return 0, fmt.Errorf("write the definition of a version: %w", err)
	}
	var rebuild any
	if v.Rebuild != (domain.RebuildID{}) {
		rebuild = v.Rebuild
	}
	err = tx.QueryRow(ctx, "select 1 + coalesce(max(v.version), 0) from projection_versions v where v.tenant_id = $1 and v.name = $2",
		v.Owner, v.Name).Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("read a projection's last version: %w", err)
	}
	_, err = pg.Exec(ctx, tx, "keep a projection's version", `
		insert into projection_versions (tenant_id, name, version, definition, cause, by, rebuild_id)
		values ($1, $2, $3, $4, $5, $6, $7)`, v.Owner, v.Name, version, definition, string(v.Cause), v.By, rebuild)
	if err != nil {
		return 0, err
	}
	_, err = pg.Exec(ctx, tx, "forget a projection's oldest version",
		"delete from projection_versions v where v.tenant_id = $1 and v.name = $2 and v.version <= $3", v.Owner, v.Name, version-MaxVersions)
	return version, err
}

// ProjectionVersions returns the versions of a projection's definition, newest first and at most limit. It returns none
// if there never was such a projection.
func (s *Registry) ProjectionVersions(ctx context.Context, id domain.ProjectionID, limit int) ([]domain.ProjectionVersion, error) {
	return pg.SelectUnder(ctx, s.db.App, id.Owner, "list a projection's versions", func(row pgx.CollectableRow) (domain.ProjectionVersion, error) {
		v := domain.ProjectionVersion{ProjectionID: id}
		var definition []byte
		if err := row.Scan(&v.Version, &definition, &v.Cause, &v.By, &v.Rebuild, (*pg.Moment)(&v.At)); err != nil {
			return v, err
		}
		return v, pg.DecodeStrictly(definition, &v.Definition)
	}, `
		select v.version, v.definition, v.cause, v.by, coalesce(v.rebuild_id, '00000000-0000-0000-0000-000000000000'), v.at
		from projection_versions v where v.tenant_id = $1 and v.name = $2 order by v.version desc limit $3`, id.Owner, id.Name, limit)
}
