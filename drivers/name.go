package drivers

import (
	"slices"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Names of tables beside those of shared builds.
const (
	CommonTable  = "documents"       // of the builds of tenants' own projections
	KeysTable    = "document_keys"   // of their keys, in PostgreSQL and SQL Server
	BeaconsTable = "replica_beacons" // in PostgreSQL, with replicas
)

// TableName returns the name of the build's table. In a shared build's name, a number follows a "." where a
// projection's name has a letter, so tables and public names cannot be equal.
func TableName(build domain.Build) string {
	if !build.Shared() {
		return CommonTable
	}
	return build.Name + "." + strconv.FormatInt(build.Number, 10)
}

// PublicName returns the public name of a shared projection, which is usually the projection's own name. The tables'
// names above get a suffix, and so do the names of objects beside them and names that could otherwise equal the result.
func PublicName(projection string) string {
	for _, table := range []string{CommonTable, KeysTable, BeaconsTable} {
		if projection == table || strings.HasPrefix(projection, table+".") {
			return projection + ".public"
		}
	}
	return projection
}

// DeclaredPath parses a path as definitions declare it, such as "customer.name". No name in it contains a dot.
func DeclaredPath(declared string) domain.Path { return strings.Split(declared, ".") }

// Declares reports whether one of the declared paths is path.
func Declares(declared []string, path domain.Path) bool {
	return slices.ContainsFunc(declared, func(one string) bool { return slices.Equal(DeclaredPath(one), path) })
}
