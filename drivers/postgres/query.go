package postgres

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/manifold-es/manifold/domain"
)

// Load returns the documents among ids that are there. Each id is one look-up in the primary key: "offset 0" keeps the
// planner from turning the look-ups into a join, which could begin with all of the tenant's documents.
func (d *Driver) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return nil, err
	}
	possible := make([]string, 0, len(ids))
	seen := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		if _, twice := seen[id]; twice || domain.CheckDocumentID("", id) != nil {
			continue
		}
		seen[id] = struct{}{}
		possible = append(possible, id)
	}
	return d.documents(ctx, build, tenant, statement{
		sql: `select t.id, t.version, t.document from unnest($3::text[]) as w (id) cross join lateral (
			select t.id, t.version, t.document from ` + table + ` t where t.tenant_id = $1 and t.build = $2 and t.id = w.id offset 0) t`,
		args: func() [][]byte { return [][]byte{encodeTenant(tenant), encodeInt(build.Number), encodeTexts(possible)} },
	})
}

// Get returns one document; ok is false where it is not there.
func (d *Driver) Get(ctx context.Context, build domain.Build, tenant domain.TenantID, id string) (document domain.Document, ok bool, err error) {
	documents, err := d.Load(ctx, build, tenant, []string{id})
	if err != nil || len(documents) == 0 {
		return domain.Document{}, false, err
	}
	return documents[0], true, nil
}

// Query returns a page of documents by keyset: it begins in the primary key where the last page ended.
func (d *Driver) Query(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) ([]domain.Document, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return nil, err
	}
	if err := query.Check(); err != nil {
		return nil, err
	}
	if query.Where != nil || len(query.Order) > 0 {
		return nil, domain.Errorf(domain.CodeUnsupported, "filter", "not yet")
	}
	after := ""
	if query.After != nil {
		after = query.After.ID
	}
	// Every id of a document is above the empty one, which is the checkpoint's.
	return d.documents(ctx, build, tenant, statement{
		sql: "select id, version, document from " + table + ` where tenant_id = $1 and build = $2 and id > $3 order by id limit $4`,
		args: func() [][]byte {
			return [][]byte{encodeTenant(tenant), encodeInt(build.Number), []byte(after), encodeInt(int64(query.Limit))}
		},
	})
}

// Count returns how many documents the tenant has in the build. It reads the tenant's part of the primary key.
func (d *Driver) Count(ctx context.Context, build domain.Build, tenant domain.TenantID, where domain.Predicate) (int64, error) {
	table, err := tableOf(build, tenant)
	if err != nil {
		return 0, err
	}
	if where != nil {
		return 0, domain.Errorf(domain.CodeUnsupported, "filter", "not yet")
	}
	var count int64
	err = d.read(ctx, tenant, statement{
		sql:  "select count(*) from " + table + ` where tenant_id = $1 and build = $2 and id > ''`,
		args: func() [][]byte { return [][]byte{encodeTenant(tenant), encodeInt(build.Number)} },
		row: func(values [][]byte) (err error) {
			count, err = decodeInt(values[0])
			return err
		},
	})
	if err != nil {
		return 0, fmt.Errorf("count the documents of build %d of %s: %w", build.Number, build.Name, err)
	}
	return count, nil
}

// Explain says how the database answers the query.
func (d *Driver) Explain(ctx context.Context, build domain.Build, tenant domain.TenantID, query domain.DocumentQuery) (domain.Explanation, error) {
	return domain.Explanation{}, domain.Errorf(domain.CodeUnsupported, "explain", "not yet")
}

// documents runs a statement whose rows are id, version and document.
func (d *Driver) documents(ctx context.Context, build domain.Build, tenant domain.TenantID, step statement) ([]domain.Document, error) {
	var documents []domain.Document
	step.reset = func() { documents = nil }
	step.row = func(values [][]byte) error {
		version, err := decodeInt(values[1])
		documents = append(documents, domain.Document{ID: string(values[0]), Version: version, Data: json.RawMessage(bytes.Clone(decodeJSON(values[2])))})
		return err
	}
	if err := d.read(ctx, tenant, step); err != nil {
		return nil, fmt.Errorf("read documents of build %d of %s: %w", build.Number, build.Name, err)
	}
	return documents, nil
}
