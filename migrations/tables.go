package migrations

// Kind says where a table's rows are if the database is sharded.
type Kind int

const (
	// Distributed tables have each tenant's rows on one node, together with those of manifold.logs. A statement on one
	// names the tenant.
	Distributed Kind = iota + 1
	// Reference tables are small and have all rows on every node, so that any statement can join them. To write one
	// locks it for all tenants: no append, read, query or delivery does. It is refused while a node is down.
	Reference
	// Local tables have all rows on the coordinator, so they can be written while another node is down. A statement on
	// one names no other table.
	Local
)

// Tables classifies every table of the schema manifold. The column by which a table is distributed is tenant_id.
var Tables = map[string]Kind{
	"aggregates":           Distributed,
	"alerts":               Distributed,
	"build_losses":         Distributed,
	"build_numbers":        Distributed,
	"command_outcomes":     Distributed,
	"dead_letters":         Distributed,
	"erased_events":        Distributed,
	"erasures":             Distributed,
	"event_tags":           Distributed,
	"events":               Distributed,
	"faults":               Distributed,
	"keys":                 Distributed,
	"limit_ledgers":        Distributed,
	"logs":                 Distributed,
	"parked_documents":     Distributed,
	"parked_events":        Distributed,
	"projection_versions":  Distributed,
	"quota_checks":         Distributed,
	"replays":              Distributed,
	"report_settings":      Distributed,
	"retention_floors":     Distributed,
	"retention_policies":   Distributed,
	"retention_spared":     Distributed,
	"schema_retags":        Distributed,
	"schema_rules":         Distributed,
	"schema_sets":          Distributed,
	"schema_types":         Distributed,
	"schema_versions":      Distributed,
	"skipped_events":       Distributed,
	"seal_receipts":        Distributed,
	"seal_subtrees":        Distributed,
	"sealed_logs":          Distributed,
	"seals":                Distributed,
	"snapshots":            Distributed,
	"stored_events":        Distributed,
	"stream_floors":        Distributed,
	"subscription_ledgers": Distributed,
	"subscription_members": Distributed,
	"subscription_retries": Distributed,
	"subscriptions":        Distributed,
	"tagged_events":        Distributed,
	"tenant_builds":        Distributed,
	"tenant_limits":        Distributed,
	"tickets":              Distributed,
	"total_sums":           Distributed,
	"totals":               Distributed,
	"usage_days":           Distributed,
	"webhook_attempts":     Distributed,
	"webhook_claims":       Distributed,
	"webhook_secrets":      Distributed,
	"webhooks":             Distributed,

	"members": Local,

	"plans":             Reference,
	"projections":       Reference, // shared ones belong to no tenant, and statements join them with tenants' rows
	"rebuilds":          Reference,
	"replica_beacons":   Reference,
	"retired_builds":    Reference,
	"service_consumers": Reference,
	"service_secrets":   Reference,
	"signing_keys":      Reference,
	"tenants":           Reference,
	"upcaster_sets":     Reference,
	"upcasters":         Reference,
	"usage_writers":     Reference,
}
