package subscription

import (
	"context"

	"github.com/manifold-es/manifold/domain"
)

// Selection returns which events a group is of, for who asks with each request whether a caller may have to do with it. A group
// that is in use is answered from memory: that another process has changed its definition may not show for a moment.
func (g *Groups) Selection(ctx context.Context, tenant domain.TenantID, name string) (domain.Selection, error) {
	gr, err := g.use(ctx, tenant, name)
	if err != nil {
		return domain.Selection{}, err
	}
	return gr.known.Load().Selection, nil
}
