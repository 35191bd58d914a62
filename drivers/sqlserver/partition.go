package sqlserver

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// If a build has a partition, its table has a column for it: 16 bytes of a hash of the sort key at the path. It
// precedes the key columns in their indexes. The sort key itself could not do that. Two of the longest sort keys, with
// tenant, build and id, exceed the 1,700 bytes of an index's key, and a document with such values would be refused.
//
// The column only narrows the search; the condition on the path is always there too.

// partitionPrefix begins the names of the partition's column and of the index on that column alone. The path follows,
// as keyName writes it.
const partitionPrefix = "partition "

const partitionBytes = 16

// partitionName returns the name of the column for a path; ok is false if the path is too long to have one.
func partitionName(path string) (name string, ok bool) {
	key, _ := keyName(path)
	name = partitionPrefix + strings.TrimPrefix(key, keyPrefix)
	return name, len(name) <= maxName
}

func partitionColumn(path string) string {
	name, _ := partitionName(path)
	return dialect.Quote(name)
}

// partitionHash returns what the column holds for a sort key as in a key column.
func partitionHash(key []byte) []byte {
	hash := sha256.Sum256(key)
	return hash[:partitionBytes]
}

// partition returns a condition on the partition's column that is true wherever a path's value is the scalar. It is
// empty if the path is not the partition's.
func (q *query) partition(path domain.Path, value domain.Scalar) string {
	if q.table.partition == "" || !slices.Equal(drivers.DeclaredPath(q.table.partition), path) {
		return ""
	}
	return "t." + partitionColumn(q.table.partition) + " = convert(binary(16), " + q.param(hexadecimal(partitionHash(columnKey(value)))) + ", 2)"
}
