package retention

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// A policy does not wait for the readers that it forces. If a name had a typo, the policy would still wait, and nobody
// would know why. So each name must exist when the policy is stored. The policy remains valid if that reader is deleted
// later.

const (
	mostNamed   = 10 // of the names that an error lists
	namedLength = 64 // of each name, in bytes
)

// checkForce refuses a policy that forces readers that do not exist. It accepts names that the category's previous
// policy, before, forces already; before is empty if there was no policy.
func (r *Retention) checkForce(ctx context.Context, tenant domain.TenantID, force, before Force) error {
	if len(force.Groups)+len(force.Projections)+len(force.Rebuilds) == 0 {
		return nil
	}
	missing, err := r.config.Store.MissingForced(ctx, tenant, force)
	if err != nil {
		return err
	}
	groups := slices.DeleteFunc(missing.Groups, func(group string) bool {
		return slices.Contains(before.Groups, group) || r.config.Service != nil && r.config.Service(group)
	})
	var names []string
	where := ""
	for _, of := range []struct {
		where, what    string
		missing, known []string
	}{
		{"force.groups", "group", groups, nil},
		{"force.projections", "projection", missing.Projections, before.Projections},
		{"force.rebuilds", "projection", missing.Rebuilds, before.Rebuilds},
	} {
		for _, name := range of.missing {
			if slices.Contains(of.known, name) {
				continue
			}
			if where == "" {
				where = of.where
			} else if where != of.where {
				where = "force"
			}
			if len(name) > namedLength {
				name = name[:namedLength] + "..."
			}
			names = append(names, fmt.Sprintf("%s %q", of.what, name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	more := ""
	if len(names) > mostNamed {
		names, more = names[:mostNamed], fmt.Sprintf(", and %d more do not exist", len(names)-mostNamed)
	}
	return domain.Errorf(domain.CodeInvalidRequest, where, "there is no %s%s; create it first, or leave it out",
		strings.Join(names, ", no "), more)
}

// forcedBefore returns what the category's policy forces. The result is empty if there is no policy.
func (r *Retention) forcedBefore(ctx context.Context, tenant domain.TenantID, category string) (Force, error) {
	before, err := r.config.Store.RetentionPolicy(ctx, tenant, category)
	if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return Force{}, err
	}
	return before.Force, nil
}
