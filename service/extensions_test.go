package service

import (
	"slices"
	"testing"

	"github.com/manifold-es/manifold/config"
)

// SQL Server's driver has no indexes for tenants' own projections. A driver of the program may replace it.
func TestDatabasesWithoutOwnIndexes(t *testing.T) {
	t.Parallel()
	databases := map[string]config.DocumentsDatabase{"a": {Driver: "postgres"}, "b": {Driver: "sqlserver"}, "c": {Driver: "mongo"}, "d": {Driver: "ours"}}
	if got := (Extensions{}).noOwnIndexes(databases); !slices.Equal(got, []string{"b"}) {
		t.Errorf("they are %q, want b", got)
	}
	if got := (Extensions{Drivers: map[string]OpenDriver{"sqlserver": openPostgres}}).noOwnIndexes(databases); len(got) > 0 {
		t.Errorf("with another driver they are %q, want none", got)
	}
}
