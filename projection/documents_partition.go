package projection

import (
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// checkNarrowed refuses a query that names no partition if the build is partitioned. Such a query would read all of a
// tenant's documents, which the definition rules out.
func checkNarrowed(build domain.Build, where domain.Predicate) error {
	if build.PartitionBy == "" {
		return nil
	}
	path := domain.Path(strings.Split(build.PartitionBy, "."))
	if _, ok := domain.Fixed(where, path); ok {
		return nil
	}
	return domain.Errorf(domain.CodeInvalidRequest, "filter",
		`the documents of projection %q are partitioned by %s: a list covers one partition; add %s == "..." to the filter, with && before the rest of the filter`,
		build.Name, build.PartitionBy, path)
}
