package api

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/rebuild"
)

// Rebuilds are the rebuilds of projections. *rebuild.Rebuilds is meant.
type Rebuilds interface {
	// Start starts a rebuild by the present definition, or by the one given.
	Start(ctx context.Context, id domain.ProjectionID, definition *domain.Definition) (domain.Rebuild, error)
	Get(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error)
	List(ctx context.Context, id domain.ProjectionID) ([]domain.Rebuild, error)
	Cancel(ctx context.Context, id domain.ProjectionID, rebuild domain.RebuildID) (domain.Rebuild, error)
	// Deploy makes the definition the projection's: it creates it, starts a rebuild, or finds nothing to do.
	Deploy(ctx context.Context, owner domain.TenantID, definition domain.Definition, by string) (rebuild.Deployment, error)
}

func (s generated) StartRebuild(ctx context.Context, request openapi.StartRebuildRequestObject) (openapi.StartRebuildResponseObject, error) {
	id, err := s.changeable(ctx, request.Name)
	if err != nil {
		return nil, err
	}
	var definition *domain.Definition
	if request.Body != nil && request.Body.Definition != nil {
		given, err := definitionFor("definition.", request.Name, *request.Body.Definition)
		if err != nil {
			return nil, err
		}
		definition = &given
	}
	started, err := s.config.Rebuilds.Start(ctx, id, definition)
	if err != nil {
		return nil, err
	}
	location := rebuildPath(started)
	return openapi.StartRebuild202JSONResponse{
		Body: rebuildAnswer(started), Headers: openapi.StartRebuild202ResponseHeaders{Location: &location},
	}, nil
}

func (s generated) ListRebuilds(ctx context.Context, request openapi.ListRebuildsRequestObject) (openapi.ListRebuildsResponseObject, error) {
	p, err := s.config.Projections.Get(ctx, callerOf(ctx).tenant, request.Name)
	if err != nil {
		return nil, err
	}
	rebuilds, err := s.config.Rebuilds.List(ctx, p.ProjectionID)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListRebuilds200JSONResponse{Rebuilds: []openapi.Rebuild{}}
	for _, one := range rebuilds {
		answer.Rebuilds = append(answer.Rebuilds, rebuildAnswer(one))
	}
	return answer, nil
}

func (s generated) GetRebuild(ctx context.Context, request openapi.GetRebuildRequestObject) (openapi.GetRebuildResponseObject, error) {
	p, err := s.config.Projections.Get(ctx, callerOf(ctx).tenant, request.Name)
	if err != nil {
		return nil, err
	}
	rebuildID, err := parseRebuildID(request.RebuildId)
	if err != nil {
		return nil, err
	}
	found, err := s.config.Rebuilds.Get(ctx, p.ProjectionID, rebuildID)
	if err != nil {
		return nil, err
	}
	return openapi.GetRebuild200JSONResponse(rebuildAnswer(found)), nil
}

func (s generated) CancelRebuild(ctx context.Context, request openapi.CancelRebuildRequestObject) (openapi.CancelRebuildResponseObject, error) {
	id, err := s.changeable(ctx, request.Name)
	if err != nil {
		return nil, err
	}
	rebuildID, err := parseRebuildID(request.RebuildId)
	if err != nil {
		return nil, err
	}
	cancelled, err := s.config.Rebuilds.Cancel(ctx, id, rebuildID)
	if err != nil {
		return nil, err
	}
	return openapi.CancelRebuild202JSONResponse(rebuildAnswer(cancelled)), nil
}

// changeable finds a projection that the caller may rebuild: its own. A shared one is the operator's.
func (s generated) changeable(ctx context.Context, name string) (domain.ProjectionID, error) {
	owner := callerOf(ctx).tenant
	p, err := s.config.Projections.Get(ctx, owner, name)
	if err != nil {
		return domain.ProjectionID{}, err
	}
	if p.Owner != owner {
		return domain.ProjectionID{}, domain.Errorf(domain.CodeForbidden, "path name", "projection %s is shared: only the operator rebuilds it", name)
	}
	return p.ProjectionID, nil
}

func parseRebuildID(text string) (domain.RebuildID, error) {
	id, err := domain.ParseRebuildID(text)
	if err != nil {
		return id, domain.Errorf(domain.CodeInvalidRequest, "path rebuildId", "%s", err)
	}
	return id, nil
}

func rebuildPath(r domain.Rebuild) string {
	return "/v1/projections/" + r.Name + "/rebuilds/" + r.ID.String()
}

func rebuildAnswer(r domain.Rebuild) openapi.Rebuild {
	answer := openapi.Rebuild{
		Id: r.ID.String(), Projection: r.Name, Build: r.Build, State: string(r.State),
		Cancelling: r.Cancel && !r.State.Ended(), EventsDone: r.EventsDone, EventsTotal: r.EventsTotal,
		Documents: r.Documents, LiveDocuments: r.LiveBefore, Error: r.Error,
		CreatedAt: r.CreatedAt.UTC(), StartedAt: moment(r.StartedAt), UpdatedAt: r.UpdatedAt.UTC(), EndedAt: moment(r.EndedAt),
	}
	if rate, left := rebuild.Speed(r); rate > 0 {
		answer.EventsPerSecond = &rate
		if seconds := left.Seconds(); !r.State.Ended() {
			answer.SecondsLeft = &seconds
		}
	}
	return answer
}

// moment is a time in UTC, or nothing where there is none.
func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
