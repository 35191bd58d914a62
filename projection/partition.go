package projection

import (
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// checkNarrowed refuses a list of documents that does not say of which partition it is, where the build has partitions:
// such a list would read all of a tenant's documents, which the definition says that nobody wants.
func checkNarrowed(build domain.Build, where domain.Predicate) error {
	if build.PartitionBy == "" {
		return nil
	}
	path := domain.Path(strings.Split(build.PartitionBy, "."))
	if _, ok := domain.Fixed(where, path); ok {
		return nil
	}
	return domain.Errorf(domain.CodeInvalidRequest, "filter",
		`the documents of projection %q are partitioned by %s: a list is of one partition; add %s == "..." to the filter, with && before what else it asks`,
		build.Name, build.PartitionBy, path)
}
