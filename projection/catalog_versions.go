package projection

import (
	"context"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// Version is one of the definitions that a projection has had.
type Version struct {
	domain.ProjectionVersion
	Changes []folding.FieldChange // from the previous version
}

// maxVersions limits how many versions are listed.
const maxVersions = 100

// Versions returns the latest 100 definitions of the projection with this name, newest first. That is the tenant's own
// projection, or else the shared one, or else one of the two that was removed.
func (c *Catalog) Versions(ctx context.Context, tenant domain.TenantID, name string) ([]Version, error) {
	ids := []domain.ProjectionID{{Owner: tenant, Name: name}}
	switch p, err := c.Get(ctx, tenant, name); {
	case err == nil:
		ids[0] = p.ProjectionID
	case !domain.IsCode(err, domain.CodeNotFound):
		return nil, err
	case tenant != domain.Everyone:
		ids = append(ids, domain.ProjectionID{Owner: domain.Everyone, Name: name})
	}
	for _, id := range ids {
		// Read one more than is listed, for the changes of the last one.
		kept, err := c.config.Store.ProjectionVersions(ctx, id, maxVersions+1)
		if err != nil {
			return nil, err
		}
		if len(kept) > 0 {
			return withChanges(kept), nil
		}
	}
	return nil, domain.Errorf(domain.CodeNotFound, "name", "there is and was no projection named %q", folding.Clip(name))
}

// withChanges computes what each version has changed from the next older one.
func withChanges(kept []domain.ProjectionVersion) []Version {
	versions := make([]Version, min(len(kept), maxVersions))
	for i := range versions {
		var before *domain.Definition
		if i+1 < len(kept) {
			before = &kept[i+1].Definition
		}
		versions[i] = Version{ProjectionVersion: kept[i], Changes: folding.Changes(before, &kept[i].Definition)}
	}
	return versions
}
