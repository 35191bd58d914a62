package manifold_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tableOwners says which package writes each table (docs/decisions/0069-each-table-has-one-owner.md). Others are listed
// after the owner. Erasure empties every table, by name.
var tableOwners = map[string][]string{
	"aggregates": {"aggregate"}, "snapshots": {"aggregate"}, "command_outcomes": {"aggregate"},
	"schema_sets": {"schema"}, "schema_types": {"schema"}, "schema_versions": {"schema"}, "schema_rules": {"schema"}, "schema_retags": {"schema"},
	"erased_events": {"eventlog"}, "erasures": {"erasure/subjects"},
	"events": {"eventlog", "retention"}, "event_tags": {"eventlog"}, "tagged_events": {"eventlog"},
	// A change of inline builds increments the log's revision of them, and an append ends builds that it cannot fold
	// into.
	"replica_beacons": {"eventlog"}, "logs": {"eventlog", "projection/registry"}, "tenant_builds": {"projection/registry", "eventlog"},
	"projections": {"projection/registry"}, "projection_versions": {"projection/registry"}, "rebuilds": {"projection/registry"},
	"build_numbers": {"projection/registry"}, "retired_builds": {"projection/registry"}, "build_losses": {"projection/registry"},
	"faults": {"projection/registry"}, "parked_documents": {"projection/registry"}, "parked_events": {"projection/registry"},
	"skipped_events": {"projection/registry"}, "upcasters": {"projection/registry"}, "upcaster_sets": {"projection/registry"},
	"subscriptions": {"delivery/group"}, "subscription_ledgers": {"delivery/group"}, "subscription_members": {"delivery/group"},
	"subscription_retries": {"delivery/group"}, "dead_letters": {"delivery/group"}, "service_consumers": {"delivery/group"},
	"webhooks": {"delivery/webhook"}, "webhook_secrets": {"delivery/webhook"}, "webhook_attempts": {"delivery/webhook"},
	"webhook_claims": {"delivery/webhook"}, "replays": {"delivery/webhook"},
	"report_settings": {"delivery/report"}, "alerts": {"delivery/report"},
	"plans": {"limits"}, "tenant_limits": {"limits"}, "limit_ledgers": {"limits"}, "quota_checks": {"limits"}, "stored_events": {"limits"},
	"usage_days": {"usage"}, "usage_writers": {"usage"},
	"totals": {"projection/totals"}, "total_sums": {"projection/totals"},
	"retention_policies": {"retention"}, "retention_floors": {"retention"}, "retention_spared": {"retention"}, "stream_floors": {"retention"},
	"signing_keys": {"signing"}, "sealed_logs": {"seal"}, "seals": {"seal"}, "seal_subtrees": {"seal"}, "seal_receipts": {"seal"},
	"keys": {"auth", "erasure"}, "tickets": {"auth"}, "tenants": {"tenant", "erasure"}, "members": {"members"},
}

var writesTable = regexp.MustCompile(`\b(?:insert into|update|delete from)\s+([a-z_]+)\s+(?:as |set |where |\(|[a-z]\s)`)

func TestTablesAreWrittenByTheirOwners(t *testing.T) {
	t.Parallel()
	written := map[string]bool{}
	for _, p := range packages(t) {
		name := p.name()
		// A driver's tables are in a different schema; test packages fill tables as they need them.
		if forTests(name) || strings.HasPrefix(name, "drivers/") || strings.HasPrefix(name, "outbox/") || strings.HasPrefix(name, "cmd/") || name == "embedded" {
			continue
		}
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				literal, ok := n.(*ast.BasicLit)
				if !ok || literal.Kind != token.STRING {
					return true
				}
				sql, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				for _, found := range writesTable.FindAllStringSubmatch(sql, -1) {
					owners, known := tableOwners[found[1]]
					written[found[1]] = written[found[1]] || known && owners[0] == name
					if known && !slices.Contains(owners, name) {
						t.Errorf("%s/%s writes %s, which %s owns", name, file, found[1], owners[0])
					} else if !known {
						t.Errorf("%s/%s writes %s, which has no owner in the table above", name, file, found[1])
					}
				}
				return true
			})
		}
	}
	for table := range tableOwners {
		if !written[table] {
			t.Errorf("its owner does not write %s", table)
		}
	}
}
