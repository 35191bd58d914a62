package api

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/rebuild"
)

func (s generated) StartRebuild(ctx context.Context, request openapi.StartRebuildRequestObject) (openapi.StartRebuildResponseObject, error) {
	id, err := s.changeable(ctx, request.Name)
	if err != nil {
		return nil, err
	}
	wanted := rebuild.Request{By: callerOf(ctx).by()}
	if request.Body != nil {
		if err := rebuildRequest(&wanted, request.Name, *request.Body); err != nil {
			return nil, err
		}
	}
	started, err := s.config.Rebuilds.Start(ctx, id, wanted)
	if err != nil {
		return nil, err
	}
	location := rebuildPath(started)
	return openapi.StartRebuild202JSONResponse{
		Body: rebuildAnswer(started), Headers: openapi.StartRebuild202ResponseHeaders{Location: &location},
	}, nil
}

// rebuildRequest copies a body's fields to a request.
func rebuildRequest(request *rebuild.Request, name string, body openapi.NewRebuild) error {
	if body.Definition != nil {
		definition, err := definitionFor("definition.", name, *body.Definition)
		if err != nil {
			return err
		}
		request.Definition = &definition
	}
	request.Database, request.MaxEventsPerSecond = body.Database, body.MaxEventsPerSecond
	request.Manual, request.DryRun, request.Assert = body.Approve == "manual", body.DryRun, body.Assertions
	request.AcceptLoss, request.MaxFaulted = body.AcceptLoss, body.MaxFaultedTenants
	for i, text := range body.Tenants {
		tenant, err := domain.ParseTenantID(text)
		if err != nil {
			return domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("tenants[%d]", i), "%s", err)
		}
		request.Tenants = append(request.Tenants, tenant)
	}
	if body.Keep == "" {
		return nil
	}
	keep, err := time.ParseDuration(body.Keep)
	if err != nil || keep <= 0 {
		return domain.Errorf(domain.CodeInvalidRequest, "keep", "%q is no time; write 90m or 1h30m", body.Keep)
	}
	request.Keep = keep
	return nil
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
		seen := seenBy(callerOf(ctx), p, one)
		seen.Definition = nil
		answer.Rebuilds = append(answer.Rebuilds, seen)
	}
	return answer, nil
}

func (s generated) GetRebuild(ctx context.Context, request openapi.GetRebuildRequestObject) (openapi.GetRebuildResponseObject, error) {
	answer, err := s.lookAtRebuild(ctx, callerOf(ctx), request.Name, request.RebuildId)
	if err != nil {
		return nil, err
	}
	return openapi.GetRebuild200JSONResponse(answer), nil
}

// lookAtRebuild returns a rebuild as the caller may see it.
func (s *Server) lookAtRebuild(ctx context.Context, caller caller, name, id string) (openapi.Rebuild, error) {
	p, err := s.config.Projections.Get(ctx, caller.tenant, name)
	if err != nil {
		return openapi.Rebuild{}, err
	}
	rebuildID, err := parseRebuildID(id)
	if err != nil {
		return openapi.Rebuild{}, err
	}
	found, err := s.config.Rebuilds.Get(ctx, p.ProjectionID, rebuildID)
	if err != nil {
		return openapi.Rebuild{}, err
	}
	return seenBy(caller, p, found), nil
}

// seenBy returns a rebuild as the caller may see it. A tenant sees the state of a shared projection's rebuild, but
// nothing of other tenants or of the operator.
func seenBy(caller caller, p domain.Projection, r domain.Rebuild) openapi.Rebuild {
	answer := rebuildAnswer(r)
	if caller.tenant == p.Owner {
		if until := r.EndedAt.Add(r.Keep); r.State == domain.RebuildSwapped && r.Previous != nil && r.Previous.Build != 0 &&
			(len(r.Tenants) > 0 || r.Build == p.Build) && time.Now().Before(until) {
			answer.RollbackUntil = moment(until)
		}
		return answer
	}
	// A count of all tenants' events or documents would reveal other tenants' activity to a tenant that appends
	// meanwhile. So would the rate.
	answer.EventsDone, answer.EventsTotal, answer.Documents, answer.LiveDocuments = 0, 0, 0, 0
	answer.EventsPerSecond, answer.SecondsLeft, answer.MaxEventsPerSecond = nil, nil, 0
	answer.By, answer.Difference, answer.Loss, answer.FaultedTenants, answer.MaxFaultedTenants = "", nil, nil, nil, nil
	if answer.Tenants != nil {
		answer.Tenants = []string{}
		if slices.Contains(r.Tenants, caller.tenant) {
			answer.Tenants = []string{caller.tenant.String()}
		}
	}
	if answer.Error != "" {
		answer.Error = "the operator sees why"
	}
	return answer
}

func (s generated) CancelRebuild(ctx context.Context, request openapi.CancelRebuildRequestObject) (openapi.CancelRebuildResponseObject, error) {
	answer, err := s.orderRebuild(ctx, request.Name, request.RebuildId, s.config.Rebuilds.Cancel)
	return openapi.CancelRebuild202JSONResponse(answer), err
}

func (s generated) ApproveRebuild(ctx context.Context, request openapi.ApproveRebuildRequestObject) (openapi.ApproveRebuildResponseObject, error) {
	answer, err := s.orderRebuild(ctx, request.Name, request.RebuildId, s.config.Rebuilds.Approve)
	return openapi.ApproveRebuild202JSONResponse(answer), err
}

func (s generated) PauseRebuild(ctx context.Context, request openapi.PauseRebuildRequestObject) (openapi.PauseRebuildResponseObject, error) {
	answer, err := s.orderRebuild(ctx, request.Name, request.RebuildId, s.config.Rebuilds.Pause)
	return openapi.PauseRebuild202JSONResponse(answer), err
}

func (s generated) ResumeRebuild(ctx context.Context, request openapi.ResumeRebuildRequestObject) (openapi.ResumeRebuildResponseObject, error) {
	answer, err := s.orderRebuild(ctx, request.Name, request.RebuildId, s.config.Rebuilds.Resume)
	return openapi.ResumeRebuild202JSONResponse(answer), err
}

func (s generated) RollbackRebuild(ctx context.Context, request openapi.RollbackRebuildRequestObject) (openapi.RollbackRebuildResponseObject, error) {
	by := callerOf(ctx).by()
	answer, err := s.orderRebuild(ctx, request.Name, request.RebuildId, func(ctx context.Context, id domain.ProjectionID, undone domain.RebuildID) (domain.Rebuild, error) {
		return s.config.Rebuilds.Rollback(ctx, id, undone, by, value(request.Params.AcceptLoss))
	})
	if err != nil {
		return nil, err
	}
	location := "/v1/projections/" + answer.Projection + "/rebuilds/" + answer.Id
	return openapi.RollbackRebuild202JSONResponse{Body: answer, Headers: openapi.RollbackRebuild202ResponseHeaders{Location: &location}}, nil
}

// orderRebuild calls order for a rebuild of a projection that the caller may rebuild.
func (s generated) orderRebuild(ctx context.Context, name, rebuildID string, order func(context.Context, domain.ProjectionID, domain.RebuildID) (domain.Rebuild, error)) (openapi.Rebuild, error) {
	id, err := s.changeable(ctx, name)
	if err != nil {
		return openapi.Rebuild{}, err
	}
	parsed, err := parseRebuildID(rebuildID)
	if err != nil {
		return openapi.Rebuild{}, err
	}
	done, err := order(ctx, id, parsed)
	if err != nil {
		return openapi.Rebuild{}, err
	}
	return rebuildAnswer(done), nil
}

func (s generated) ListRebuildTenants(ctx context.Context, request openapi.ListRebuildTenantsRequestObject) (openapi.ListRebuildTenantsResponseObject, error) {
	id, err := s.changeable(ctx, request.Name)
	if err != nil {
		return nil, err
	}
	rebuildID, err := parseRebuildID(request.RebuildId)
	if err != nil {
		return nil, err
	}
	token, err := pageToken(request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	var after domain.TenantID
	if token != "" {
		if after, err = domain.ParseTenantID(token); err != nil {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "query pageToken", "it is not from a Link header of this list; leave it out to begin with the first page")
		}
	}
	size := pageSizeOf(request.Params.PageSize)
	faulted := value(request.Params.Faulted)
	tenants, more, err := s.config.Rebuilds.Tenants(ctx, id, rebuildID, faulted, after, size)
	if err != nil {
		return nil, err
	}
	answer := openapi.ListRebuildTenants200JSONResponse{Body: openapi.TenantProgressList{Tenants: []openapi.TenantProgress{}}}
	for _, t := range tenants {
		answer.Body.Tenants = append(answer.Body.Tenants, openapi.TenantProgress{
			Tenant: t.Tenant.String(), Position: t.Position, Head: t.Head, Swapped: t.Swapped, Fault: tenantFaultAnswer(t.Fault),
		})
	}
	if more {
		query := url.Values{"pageSize": {strconv.Itoa(size)}}
		if faulted {
			query.Set("faulted", "true")
		}
		answer.Headers.Link = pageLink("/v1/projections/"+request.Name+"/rebuilds/"+request.RebuildId+"/tenants",
			query, tokenOf(tenants[len(tenants)-1].Tenant.String()))
	}
	return answer, nil
}

// changeable returns the id of a projection that the caller owns and may therefore rebuild. The operator owns the
// shared ones.
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

// rebuildAnswer returns a rebuild as its projection's owner sees it.
func rebuildAnswer(r domain.Rebuild) openapi.Rebuild {
	answer := openapi.Rebuild{
		Id: r.ID.String(), Projection: r.Name, Build: r.Build, State: string(r.State),
		Cancelling: r.Cancel && !r.State.Ended(), Paused: r.Paused && !r.State.Ended(), Approve: "auto", Approved: r.Approved, DryRun: r.DryRun,
		MaxEventsPerSecond: r.MaxEventsPerSecond, AcceptLoss: r.AcceptLoss, By: r.By, Loss: lossAnswer(r.Loss),
		EventsDone: r.EventsDone, EventsTotal: r.EventsTotal, Documents: r.Documents, LiveDocuments: r.LiveBefore,
		Difference: differenceAnswer(r.Difference), Error: r.Error,
		CreatedAt: openapi.At(r.CreatedAt), StartedAt: moment(r.StartedAt), UpdatedAt: openapi.At(r.UpdatedAt), EndedAt: moment(r.EndedAt),
	}
	if r.Manual {
		answer.Approve = "manual"
	}
	if r.Shared() {
		answer.MaxFaultedTenants = &r.MaxFaulted
	}
	if r.Faulted != nil {
		answer.FaultedTenants = &openapi.FaultedTenants{Count: r.Faulted.Count, First: make([]openapi.TenantFault, len(r.Faulted.First))}
		for i := range r.Faulted.First {
			answer.FaultedTenants.First[i] = *tenantFaultAnswer(&r.Faulted.First[i])
		}
	}
	if r.RollbackOf != (domain.RebuildID{}) {
		answer.RollbackOf = r.RollbackOf.String()
	}
	for _, tenant := range r.Tenants {
		answer.Tenants = append(answer.Tenants, tenant.String())
	}
	if definition, err := definitionAnswer(r.Definition); err == nil {
		answer.Definition = &definition
	}
	if rate, left := rebuild.Speed(r); rate > 0 {
		answer.EventsPerSecond = &rate
		if seconds := left.Seconds(); !r.State.Ended() {
			answer.SecondsLeft = &seconds
		}
	}
	return answer
}

// tenantFaultAnswer returns the reason why a tenant is left behind, for the operator.
func tenantFaultAnswer(fault *domain.TenantFault) *openapi.TenantFault {
	if fault == nil {
		return nil
	}
	return &openapi.TenantFault{Tenant: fault.Tenant.String(), Reason: fault.Reason, Position: fault.Position}
}

func lossAnswer(losses []domain.Loss) []openapi.Loss {
	var answer []openapi.Loss
	for _, loss := range losses {
		answer = append(answer, openapi.Loss{Category: loss.Category, RemovedTo: loss.RemovedTo})
	}
	return answer
}

func differenceAnswer(d *domain.Difference) *openapi.Difference {
	if d == nil {
		return nil
	}
	answer := &openapi.Difference{New: d.New, Gone: d.Gone, Changed: d.Changed, Same: d.Same, Examples: []openapi.DifferenceExample{}}
	for _, e := range d.Examples {
		answer.Examples = append(answer.Examples, openapi.DifferenceExample{
			Tenant: e.Tenant.String(), Id: e.ID, Kind: string(e.Kind), Fields: e.Fields, Live: e.Live, Built: e.Built,
		})
	}
	return answer
}

// moment returns t, or nil if t is zero.
func moment(t time.Time) *openapi.Time {
	if t.IsZero() {
		return nil
	}
	return &openapi.Time{Time: t}
}
