package service

import (
	"context"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/store"
)

// inlineFolds are the folds that the store applies during an append. They refer to a pointer because the store is
// opened first, and the folds need the store.
type inlineFolds struct{ inline **projection.Inline }

func (f inlineFolds) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (store.InlineFolds, []domain.Statement, []domain.TenantBuild, error) {
	folds, checkpoints, gone, err := (*f.inline).Open(ctx, tenant, head, builds)
	if err != nil {
		return nil, nil, nil, err
	}
	return folds, checkpoints, gone, nil
}

func (f inlineFolds) Mend(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) ([]domain.TenantBuild, error) {
	return (*f.inline).Mend(ctx, tenant, head, builds)
}
