package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Limits of a tenant. Concurrent changes do not exceed them.
const (
	MaxTypes        = 1000
	MaxVersions     = 100 // of a type
	MaxTotalBytes   = 2 << 20
	MaxRules        = 1000
	maxTotalVersion = 5000 // of all types
	maxRetags       = 2 * MaxTypes
)

// Postgres reads and writes the tables of schemas. All methods may be called concurrently. An error that a client can
// act on is a *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Postgres struct {
	db     *pg.DB
	settle time.Duration // Config.Settle
}

// NewPostgres returns the tables of a database.
func NewPostgres(db *pg.DB) *Postgres { return &Postgres{db: db, settle: DefaultSettle} }

const (
	versionColumns = "v.version, v.schema, v.breaking, v.revision, v.by, v.created_at, v.personal"
	selectRevision = "select coalesce((select s.revision from schema_sets s where s.tenant_id = $1), 0)"
	listVersions   = "select v.event_type, v.breaking, v.revision from schema_versions v where v.tenant_id = $1 order by v.event_type, v.version"
	listTags       = "select t.event_type, t.tags from schema_types t where t.tenant_id = $1 and t.tags <> ''"
	listRules      = "select " + ruleColumns + " from schema_rules r where r.tenant_id = $1"
	readVersion    = "select " + versionColumns + " from schema_versions v where v.tenant_id = $1 and v.event_type = $2 and v.version = $3"
)

// SchemaRevision returns the revision of a tenant's schemas and rules; 0: it never had any.
func (s *Postgres) SchemaRevision(ctx context.Context, tenant domain.TenantID) (int64, error) {
	revision, _, err := pg.SelectOneUnder(ctx, s.db.App, tenant, "read the revision of the schemas", pgx.RowTo[int64], selectRevision, tenant)
	return revision, err
}

// loadIndex returns everything about a tenant's schemas except their texts.
func (s *Postgres) loadIndex(ctx context.Context, tenant domain.TenantID) (*index, error) {
	x := &index{types: make(map[string]*typeIndex), rules: make(map[string]Rule)}
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		// Read the revision first: everything read after it is at least as new.
		if err := tx.QueryRow(ctx, selectRevision, tenant).Scan(&x.revision); err != nil {
			return fmt.Errorf("read the revision of the schemas: %w", err)
		}
		if x.revision == 0 {
			return nil
		}
		rows, _ := tx.Query(ctx, listVersions, tenant)
		var eventType string
		var version versionIndex
		_, err := pgx.ForEachRow(rows, []any{&eventType, &version.breaking, &version.revision}, func() error {
			of := x.types[eventType]
			if of == nil {
				of = &typeIndex{}
				x.types[eventType] = of
			}
			of.versions = append(of.versions, version)
			return nil
		})
		if err != nil {
			return fmt.Errorf("list the versions of schemas: %w", err)
		}
		rows, _ = tx.Query(ctx, listTags, tenant)
		var tags string
		_, err = pgx.ForEachRow(rows, []any{&eventType, &tags}, func() error {
			if of := x.types[eventType]; of != nil {
				of.derives, x.derives = newDerivation(tags), true
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("list the expressions for tags: %w", err)
		}
		rows, _ = tx.Query(ctx, listRules, tenant)
		rules, err := pgx.CollectRows(rows, scanRule)
		if err != nil {
			return fmt.Errorf("list the rules of categories: %w", err)
		}
		for _, rule := range rules {
			x.rules[rule.Category] = rule
		}
		return nil
	})
	return x, err
}

// SchemaTypes returns a tenant's types with their newest versions, by type. The schemas' texts are left out.
func (s *Postgres) SchemaTypes(ctx context.Context, tenant domain.TenantID) ([]Type, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the types with schemas", func(row pgx.CollectableRow) (Type, error) {
		var found Type
		newest := Version{}
		err := row.Scan(&found.Name, &found.Compatibility, &found.Tags, &newest.Number, &newest.Breaking, &newest.By, (*pg.Moment)(&newest.CreatedAt))
		found.Versions = []Version{newest}
		return found, err
	}, `
		select t.event_type, t.compatibility, t.tags, v.version, v.breaking, v.by, v.created_at
		from schema_types t join schema_versions v on v.tenant_id = t.tenant_id and v.event_type = t.event_type
		where t.tenant_id = $1 and v.tenant_id = $1
		  and v.version = (select max(o.version) from schema_versions o where o.tenant_id = $1 and o.event_type = t.event_type)
		order by t.event_type`, tenant)
}

// SchemaType returns a type with all its versions, the oldest first, or domain.CodeNotFound if it has none.
func (s *Postgres) SchemaType(ctx context.Context, tenant domain.TenantID, eventType string) (Type, error) {
	found := Type{Name: eventType}
	// In one statement, because others may remove the type meanwhile.
	versions, err := pg.SelectUnder(ctx, s.db.App, tenant, "list the versions of a schema", func(row pgx.CollectableRow) (Version, error) {
		return scanVersion(row, &found.Compatibility, &found.Tags)
	}, `
		select `+versionColumns+`, t.compatibility, t.tags
		from schema_versions v join schema_types t on t.tenant_id = v.tenant_id and t.event_type = v.event_type
		where v.tenant_id = $1 and v.event_type = $2 and t.tenant_id = $1 and t.event_type = $2
		order by v.version`, tenant, eventType)
	if err == nil && len(versions) == 0 {
		err = noSchema(eventType)
	}
	found.Versions = versions
	return found, err
}

// contents returns all schemas and rules of a tenant.
func (s *Postgres) contents(ctx context.Context, tenant domain.TenantID) (all Contents, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		// Read the revision first: everything read after it is at least as new.
		if err := tx.QueryRow(ctx, selectRevision, tenant).Scan(&all.Revision); err != nil {
			return fmt.Errorf("read the revision of the schemas: %w", err)
		}
		rows, _ := tx.Query(ctx, `
			select `+versionColumns+`, t.event_type, t.compatibility
			from schema_versions v join schema_types t on t.tenant_id = v.tenant_id and t.event_type = v.event_type
			where v.tenant_id = $1 and t.tenant_id = $1
			order by t.event_type, v.version`, tenant)
		_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
			var of Type
			version, err := scanVersion(row, &of.Name, &of.Compatibility)
			if last := len(all.Types) - 1; last >= 0 && all.Types[last].Name == of.Name {
				all.Types[last].Versions = append(all.Types[last].Versions, version)
			} else {
				of.Versions = []Version{version}
				all.Types = append(all.Types, of)
			}
			return struct{}{}, err
		})
		if err != nil {
			return fmt.Errorf("read the schemas: %w", err)
		}
		rows, _ = tx.Query(ctx, "select "+ruleColumns+" from schema_rules r where r.tenant_id = $1 order by r.category", tenant)
		if all.Rules, err = pgx.CollectRows(rows, scanRule); err != nil {
			return fmt.Errorf("list the rules of categories: %w", err)
		}
		return nil
	})
	return all, err
}

// SchemaVersion returns a version of a type's schema, or domain.CodeNotFound if there is none.
func (s *Postgres) SchemaVersion(ctx context.Context, tenant domain.TenantID, eventType string, version int64) (Version, error) {
	found, ok, err := pg.SelectOneUnder(ctx, s.db.App, tenant, "read a schema",
		func(row pgx.CollectableRow) (Version, error) { return scanVersion(row) },
		readVersion, tenant, eventType, version)
	if err == nil && !ok {
		err = domain.Errorf(domain.CodeNotFound, "", "%s has no schema of version %d", eventType, version)
	}
	return found, err
}

// scanVersion scans versionColumns, followed by more.
func scanVersion(row pgx.CollectableRow, more ...any) (Version, error) {
	var v Version
	var text string
	err := row.Scan(append([]any{&v.Number, &text, &v.Breaking, &v.revision, &v.By, (*pg.Moment)(&v.CreatedAt), &v.Personal}, more...)...)
	v.Schema = []byte(text)
	return v, err
}

// addVersion adds a version to a type, which must still have the given newest one, and sets the type's compatibility
// and, unless they are nil, its tags. A version without a schema is not added: the stored one gets its personal fields.
func (s *Postgres) addVersion(ctx context.Context, tenant domain.TenantID, of Type, newest int64, added Version, tags *string) error {
	return s.transact(ctx, tenant, s.adding(ctx, tenant, of, newest, added, tags))
}

// adding returns addVersion as a part of a transaction under the tenant.
func (s *Postgres) adding(ctx context.Context, tenant domain.TenantID, of Type, newest int64, added Version, tags *string) func(tx pgx.Tx) error {
	return changing(ctx, tenant, func(tx pgx.Tx, next int64) error {
		var there int64
		err := tx.QueryRow(ctx, "select coalesce(max(v.version), 0) from schema_versions v where v.tenant_id = $1 and v.event_type = $2", tenant, of.Name).Scan(&there)
		switch {
		case err != nil:
			return fmt.Errorf("read a type's newest version: %w", err)
		case there != newest:
			return domain.Errorf(domain.CodeConflict, "", "the schema of %s has just been changed: its newest version is %d; compare yours with it, and try again", of.Name, there)
		}
		_, err = pg.Exec(ctx, tx, "keep a type", `
			insert into schema_types as t (tenant_id, event_type, compatibility) values ($1, $2, $3)
			on conflict (tenant_id, event_type) do update set compatibility = excluded.compatibility, updated_at = excluded.updated_at`,
			tenant, of.Name, string(of.Compatibility))
		if err != nil {
			return err
		}
		if err := s.changeTags(ctx, tx, tenant, of.Name, tags); err != nil {
			return err
		}
		if added.Schema == nil {
			_, err := pg.Exec(ctx, tx, "keep the personal fields of a type",
				"update schema_versions set personal = $4 where tenant_id = $1 and event_type = $2 and version = $3 and personal is distinct from $4",
				tenant, of.Name, added.Number, personalValue(added.Personal))
			return err
		}
		if err := checkRoom(ctx, tx, tenant, of.Name, len(added.Schema)); err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "keep a schema", `
			insert into schema_versions (tenant_id, event_type, version, schema, breaking, revision, by, personal) values ($1, $2, $3, $4, $5, $6, $7, $8)`,
			tenant, of.Name, newest+1, string(added.Schema), added.Breaking, next, added.By, personalValue(added.Personal))
		return err
	})
}

// personalValue returns the column of a version's personal fields: null for none.
func personalValue(pointers []string) any {
	if len(pointers) == 0 {
		return nil
	}
	return pointers
}

// Personal returns a function for the personal fields of an event of a type that names a schema version (0: none). It
// returns none if all of the event's data is personal.
func (s *Postgres) Personal(ctx context.Context, tenant domain.TenantID) (func(eventType string, version int64) []string, error) {
	types := make(map[string]*Type)
	_, err := pg.SelectUnder(ctx, s.db.App, tenant, "read the personal fields of types", func(row pgx.CollectableRow) (v Version, err error) {
		var name string
		if err = row.Scan(&name, &v.Number, &v.Breaking, &v.Personal); err != nil {
			return v, err
		}
		if types[name] == nil {
			types[name] = &Type{}
		}
		types[name].Versions = append(types[name].Versions, v)
		return v, nil
	}, "select v.event_type, v.version, v.breaking, v.personal from schema_versions v where v.tenant_id = $1 order by v.event_type, v.version", tenant)
	return func(eventType string, version int64) []string {
		of := types[eventType]
		if of == nil {
			return nil
		}
		if version == 0 {
			version = of.Default()
		}
		if version < 1 || version > int64(len(of.Versions)) {
			return nil
		}
		return of.Versions[version-1].Personal
	}, err
}

// checkRoom returns an error if the tenant has no room for a further version of this many bytes. With 0 bytes it checks
// only the total, in which expressions for tags count as well.
func checkRoom(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, eventType string, bytes int) error {
	var types, versions, total int
	err := tx.QueryRow(ctx, `
		select count(distinct v.event_type) filter (where v.event_type <> $2), count(*), coalesce(sum(octet_length(v.schema)), 0)
			+ (select coalesce(sum(octet_length(t.tags)), 0) from schema_types t where t.tenant_id = $1)
		from schema_versions v where v.tenant_id = $1`, tenant, eventType).Scan(&types, &versions, &total)
	switch {
	case err != nil:
		return fmt.Errorf("count the schemas: %w", err)
	case bytes > 0 && (types >= MaxTypes || versions >= maxTotalVersion):
		return domain.Errorf(domain.CodeQuotaExceeded, "", "the tenant has schemas of %d other types, and %d versions; at most %d types and %d versions are allowed: remove types that are no longer needed",
			types, versions, MaxTypes, maxTotalVersion)
	case total+bytes > MaxTotalBytes:
		return domain.Errorf(domain.CodeQuotaExceeded, "", "with this one the tenant's schemas would have %d bytes; at most %d are allowed in total", total+bytes, MaxTotalBytes)
	}
	return nil
}

// DeleteSchema removes a type with all its versions, or returns domain.CodeNotFound if it has none.
func (s *Postgres) DeleteSchema(ctx context.Context, tenant domain.TenantID, eventType string) error {
	return s.changeSchemas(ctx, tenant, func(tx pgx.Tx, _ int64) error {
		none := ""
		if err := s.changeTags(ctx, tx, tenant, eventType, &none); err != nil {
			return err
		}
		deleted, err := pg.Exec(ctx, tx, "remove a type", "delete from schema_types t where t.tenant_id = $1 and t.event_type = $2", tenant, eventType)
		if err == nil && deleted == 0 {
			err = noSchema(eventType)
		}
		if err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "remove a schema", "delete from schema_versions v where v.tenant_id = $1 and v.event_type = $2", tenant, eventType)
		return err
	})
}

func noSchema(eventType string) error {
	return domain.Errorf(domain.CodeNotFound, "", "%s has no schema", eventType)
}

const ruleColumns = "r.category, r.mode, r.unknown_types, r.by, r.updated_at"

func scanRule(row pgx.CollectableRow) (Rule, error) {
	var rule Rule
	err := row.Scan(&rule.Category, &rule.Mode, &rule.UnknownTypes, &rule.By, (*pg.Moment)(&rule.UpdatedAt))
	return rule, err
}

var ruleQuota = pg.Quota{Items: "categories with a rule", Table: "schema_rules", Max: MaxRules}

// SchemaRules returns a tenant's rules, by category.
func (s *Postgres) SchemaRules(ctx context.Context, tenant domain.TenantID) ([]Rule, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list the rules of categories", scanRule,
		"select "+ruleColumns+" from schema_rules r where r.tenant_id = $1 order by r.category", tenant)
}

// putRule stores a category's rule, and removes it with ModeOff.
func (s *Postgres) putRule(ctx context.Context, tenant domain.TenantID, rule Rule) (kept Rule, err error) {
	kept = rule
	err = s.changeSchemas(ctx, tenant, func(tx pgx.Tx, _ int64) (err error) {
		if rule.Mode == ModeOff {
			_, err = pg.Exec(ctx, tx, "remove a category's rule", "delete from schema_rules r where r.tenant_id = $1 and r.category = $2", tenant, rule.Category)
			return err
		}
		kept, _, err = pg.SelectOne(ctx, tx, "keep a category's rule", scanRule, `
			insert into schema_rules as r (tenant_id, category, mode, unknown_types, by) values ($1, $2, $3, $4, $5)
			on conflict (tenant_id, category) do update
			set mode = excluded.mode, unknown_types = excluded.unknown_types, by = excluded.by, updated_at = excluded.updated_at
			returning `+ruleColumns, tenant, rule.Category, string(rule.Mode), string(rule.UnknownTypes), rule.By)
		if err != nil {
			return err
		}
		return ruleQuota.Check(ctx, tx, tenant)
	})
	return kept, err
}

// changeSchemas runs do in a transaction under the tenant, during which nobody else changes its schemas. next becomes
// their revision. Afterwards it notifies every process.
func (s *Postgres) changeSchemas(ctx context.Context, tenant domain.TenantID, do func(tx pgx.Tx, next int64) error) error {
	return s.transact(ctx, tenant, changing(ctx, tenant, do))
}

// changing returns the part of changeSchemas that happens in the transaction.
func changing(ctx context.Context, tenant domain.TenantID, do func(tx pgx.Tx, next int64) error) func(tx pgx.Tx) error {
	return func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into schema_sets (tenant_id, revision) values ($1, 0) on conflict (tenant_id) do nothing", tenant); err != nil {
			return fmt.Errorf("make the row of the schemas' revision: %w", err)
		}
		var revision int64
		if err := tx.QueryRow(ctx, "select s.revision from schema_sets s where s.tenant_id = $1 for update", tenant).Scan(&revision); err != nil {
			return fmt.Errorf("lock the schemas: %w", err)
		}
		if err := do(tx, revision+1); err != nil {
			return err
		}
		if _, err := pg.Exec(ctx, tx, "raise the schemas' revision", "update schema_sets set revision = $2 where tenant_id = $1", tenant, revision+1); err != nil {
			return err
		}
		return pg.Notify(ctx, tx, pg.SchemasChannel, tenant.String())
	}
}

func (s *Postgres) transact(ctx context.Context, tenant domain.TenantID, change func(tx pgx.Tx) error) error {
	err := pg.Under(ctx, s.db.App, tenant, change)
	if err == nil {
		s.db.SchemasChanged.Notify(tenant)
	}
	return err
}

// ListenSchemas calls changed when any process has changed a tenant's schemas or rules, and with domain.Everyone if
// notices may have been lost, including at the start. changed must return soon, and is called by several goroutines.
// ListenSchemas blocks until ctx ends, and then returns nil.
func (s *Postgres) ListenSchemas(ctx context.Context, changed func(tenant domain.TenantID)) error {
	defer s.db.SchemasChanged.Add(changed)()
	s.db.ListenTenants(ctx, pg.SchemasChannel, changed)
	return nil
}
