package api

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/rebuild"
)

func (s operations) StartRebuild(ctx context.Context, caller access.Caller, request openapi.StartRebuildRequest) (*openapi.Response, error) {
	id, err := s.changeable(ctx, caller, request.Name)
	if err != nil {
		return nil, err
	}
	wanted := rebuild.Request{By: caller.By()}
	if err := rebuildRequest(&wanted, request.Name, request.Body); err != nil {
		return nil, err
	}
	if err := errors.Join(allowTotals(caller, wanted.Definition), allowLoss(caller, wanted.AcceptLoss)); err != nil {
		return nil, err
	}
	started, err := s.config.Rebuilds.Start(ctx, id, wanted)
	if err != nil {
		return nil, err
	}
	return openapi.Accepted(rebuildAnswer(started)).With("Location", rebuildPath(started)), nil
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
	request.AcceptLoss, request.FromLog, request.MaxFaulted = body.AcceptLoss, body.FromLog, body.MaxFaultedTenants
	for i, text := range body.Tenants {
		tenant, err := parseAt(fmt.Sprintf("tenants[%d]", i), text, domain.ParseTenantID)
		if err != nil {
			return err
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

func (s operations) ListRebuilds(ctx context.Context, caller access.Caller, request openapi.ListRebuildsRequest) (*openapi.Response, error) {
	p, err := s.config.Projections.Get(ctx, caller.Tenant, request.Name)
	if err != nil {
		return nil, err
	}
	rebuilds, err := s.config.Rebuilds.List(ctx, p.ProjectionID)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.RebuildList{Rebuilds: convert(rebuilds, func(r domain.Rebuild) openapi.Rebuild {
		seen := seenBy(caller, p, r)
		seen.Definition = nil
		return seen
	})}), nil
}

func (s operations) GetRebuild(ctx context.Context, caller access.Caller, request openapi.GetRebuildRequest) (*openapi.Response, error) {
	answer, err := s.rebuildSeenBy(ctx, caller, request.Name, request.RebuildId)
	return openapi.OK(answer), err
}

// rebuildSeenBy returns a rebuild as the caller may see it.
func (s *Server) rebuildSeenBy(ctx context.Context, caller access.Caller, name, id string) (openapi.Rebuild, error) {
	p, err := s.config.Projections.Get(ctx, caller.Tenant, name)
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
func seenBy(caller access.Caller, p domain.Projection, r domain.Rebuild) openapi.Rebuild {
	answer := rebuildAnswer(r)
	if caller.Tenant == p.Owner {
		if until := r.EndedAt.Add(r.Keep); r.State == domain.RebuildSwapped && r.Previous != nil && r.Previous.Build != 0 &&
			(len(r.Tenants) > 0 || r.Build == p.Build) && time.Now().Before(until) {
			answer.RollbackUntil = moment(until)
		}
		return answer
	}
	// A count of all tenants' events or documents would reveal other tenants' activity to a tenant that appends
	// meanwhile. So would the rate.
	answer.EventsDone, answer.EventsTotal, answer.Seeded, answer.Documents, answer.LiveDocuments = 0, 0, 0, 0, 0
	answer.EventsPerSecond, answer.SecondsLeft, answer.MaxEventsPerSecond = nil, nil, 0
	answer.By, answer.Difference, answer.Loss, answer.FaultedTenants, answer.MaxFaultedTenants = "", nil, nil, nil, nil
	if answer.Tenants != nil {
		answer.Tenants = []string{}
		if slices.Contains(r.Tenants, caller.Tenant) {
			answer.Tenants = []string{caller.Tenant.String()}
		}
	}
	if answer.Error != "" {
		answer.Error = "the operator sees why"
	}
	return answer
}

func (s operations) CancelRebuild(ctx context.Context, caller access.Caller, request openapi.CancelRebuildRequest) (*openapi.Response, error) {
	return s.orderRebuild(ctx, caller, request.Name, request.RebuildId, s.config.Rebuilds.Cancel)
}

func (s operations) ApproveRebuild(ctx context.Context, caller access.Caller, request openapi.ApproveRebuildRequest) (*openapi.Response, error) {
	return s.orderRebuild(ctx, caller, request.Name, request.RebuildId, s.config.Rebuilds.Approve)
}

func (s operations) PauseRebuild(ctx context.Context, caller access.Caller, request openapi.PauseRebuildRequest) (*openapi.Response, error) {
	return s.orderRebuild(ctx, caller, request.Name, request.RebuildId, s.config.Rebuilds.Pause)
}

func (s operations) ResumeRebuild(ctx context.Context, caller access.Caller, request openapi.ResumeRebuildRequest) (*openapi.Response, error) {
	return s.orderRebuild(ctx, caller, request.Name, request.RebuildId, s.config.Rebuilds.Resume)
}

func (s operations) RollbackRebuild(ctx context.Context, caller access.Caller, request openapi.RollbackRebuildRequest) (*openapi.Response, error) {
	acceptLoss := value(request.Params.AcceptLoss)
	if err := allowLoss(caller, acceptLoss); err != nil {
		return nil, err
	}
	order := func(ctx context.Context, id domain.ProjectionID, undone domain.RebuildID) (domain.Rebuild, error) {
		return s.config.Rebuilds.Rollback(ctx, id, undone, caller.By(), acceptLoss)
	}
	rollback, err := s.order(ctx, caller, request.Name, request.RebuildId, order)
	return openapi.Accepted(rebuildAnswer(rollback)).With("Location", rebuildPath(rollback)), err
}

// orderRebuild calls order for a rebuild of a projection that the caller may rebuild, and answers with the rebuild.
func (s operations) orderRebuild(ctx context.Context, caller access.Caller, name, rebuildID string, order rebuildOrder) (*openapi.Response, error) {
	ordered, err := s.order(ctx, caller, name, rebuildID, order)
	return openapi.Accepted(rebuildAnswer(ordered)), err
}

type rebuildOrder func(context.Context, domain.ProjectionID, domain.RebuildID) (domain.Rebuild, error)

func (s operations) order(ctx context.Context, caller access.Caller, name, rebuildID string, order rebuildOrder) (domain.Rebuild, error) {
	id, err := s.changeable(ctx, caller, name)
	if err != nil {
		return domain.Rebuild{}, err
	}
	parsed, err := parseRebuildID(rebuildID)
	if err != nil {
		return domain.Rebuild{}, err
	}
	return order(ctx, id, parsed)
}

func (s operations) ListRebuildTenants(ctx context.Context, caller access.Caller, request openapi.ListRebuildTenantsRequest) (*openapi.Response, error) {
	id, err := s.changeable(ctx, caller, request.Name)
	if err != nil {
		return nil, err
	}
	rebuildID, err := parseRebuildID(request.RebuildId)
	if err != nil {
		return nil, err
	}
	page, err := listPageOf(request.Params.PageSize, request.Params.PageToken, domain.ParseTenantID)
	if err != nil {
		return nil, err
	}
	faulted := value(request.Params.Faulted)
	tenants, more, err := s.config.Rebuilds.Tenants(ctx, id, rebuildID, faulted, page.after, page.size)
	if err != nil {
		return nil, err
	}
	answer := openapi.OK(openapi.TenantProgressList{Tenants: convert(tenants, tenantProgressAnswer)})
	if more {
		query := url.Values{}
		if faulted {
			query.Set("faulted", "true")
		}
		last := tenants[len(tenants)-1].Tenant.String()
		answer.With("Link", pageLink("/v1/projections/"+request.Name+"/rebuilds/"+request.RebuildId+"/tenants", query, page.size, pageToken(last)))
	}
	return answer, nil
}

func tenantProgressAnswer(t rebuild.TenantProgress) openapi.TenantProgress {
	return openapi.TenantProgress{
		Tenant: t.Tenant.String(), Position: t.Position, Head: t.Head, Swapped: t.Swapped, Fault: tenantFaultAnswer(t.Fault),
	}
}

// changeable returns the id of a projection that the caller owns and may therefore rebuild. The operator owns the
// shared ones.
func (s operations) changeable(ctx context.Context, caller access.Caller, name string) (domain.ProjectionID, error) {
	p, err := s.config.Projections.Get(ctx, caller.Tenant, name)
	if err != nil {
		return domain.ProjectionID{}, err
	}
	if p.Owner != caller.Tenant {
		return domain.ProjectionID{}, domain.Errorf(domain.CodeForbidden, "path name", "projection %s is shared: only the operator rebuilds it", name)
	}
	return p.ProjectionID, nil
}

func parseRebuildID(text string) (domain.RebuildID, error) {
	return parseAt("path rebuildId", text, domain.ParseRebuildID)
}

func rebuildPath(r domain.Rebuild) string {
	return "/v1/projections/" + r.Name + "/rebuilds/" + r.ID.String()
}

// rebuildAnswer returns a rebuild as its projection's owner sees it.
func rebuildAnswer(r domain.Rebuild) openapi.Rebuild {
	answer := openapi.Rebuild{
		Id: r.ID.String(), Projection: r.Name, Build: r.Build, State: string(r.State),
		Cancelling: r.Cancel && !r.State.Ended(), Paused: r.Paused && !r.State.Ended(), Approve: "auto", Approved: r.Approved, DryRun: r.DryRun,
		MaxEventsPerSecond: r.MaxEventsPerSecond, AcceptLoss: r.AcceptLoss, FromLog: r.FromLog, By: r.By, Loss: lossAnswer(r.Loss),
		EventsDone: r.EventsDone, EventsTotal: r.EventsTotal, Seeded: r.Seeded, Documents: r.Documents, LiveDocuments: r.LiveBefore,
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
