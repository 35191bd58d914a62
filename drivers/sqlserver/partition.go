package sqlserver

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Where a build has a partition, its table has a column for it: 16 bytes of a hash of the sort key at the path. It stands
// before the key columns in their indexes. The sort key itself could not: two of the longest, with tenant, build and id, are
// more than the 1,700 bytes that an index's key can have, and a document that has such would be refused.
//
// The column decides nothing: the condition on the path stands beside it.

// partitionPrefix begins the name of the partition's column, and of the index that it has alone; the path follows, as keyName
// writes it.
const partitionPrefix = "partition "

const partitionBytes = 16

// partitionName is the name of the column for a path; ok is false for a path that is too long to have one.
func partitionName(path string) (name string, ok bool) {
	key, _ := keyName(path)
	name = partitionPrefix + strings.TrimPrefix(key, keyPrefix)
	return name, len(name) <= maxName
}

func partitionColumn(path string) string {
	name, _ := partitionName(path)
	return identifier(name)
}

// partitionHash is what the column holds for what has a sort key as a key column would hold it.
func partitionHash(key []byte) []byte {
	hash := sha256.Sum256(key)
	return hash[:partitionBytes]
}

// partition is the condition on the partition's column that holds wherever a path's value is the scalar; empty where the
// path is not the partition's.
func (q *query) partition(path domain.Path, value domain.Scalar) string {
	if q.table.partition == "" || !slices.Equal(strings.Split(q.table.partition, "."), path) {
		return ""
	}
	return "t." + partitionColumn(q.table.partition) + " = convert(binary(16), " + q.param(hexadecimal(partitionHash(columnKey(value)))) + ", 2)"
}
