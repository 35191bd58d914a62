package api

import (
	"context"
	"encoding/hex"
	"math"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/erasure/subjects"
)

// subjectParam is the parameter of a path that has a person's id, which no log keeps.
const subjectParam = "subjectId"

func (s operations) EraseSubject(ctx context.Context, caller access.Caller, request openapi.EraseSubjectRequest) (*openapi.Response, error) {
	body := request.Body
	asked := subjects.Request{
		Subject: request.SubjectId, What: subjects.What(body.What), Reason: body.Reason, Approval: body.Approval, AcceptLoss: body.AcceptLoss, By: actor(caller),
	}
	if body.Id != "" {
		var err error
		if asked.ID, err = domain.ParseUUID(body.Id); err != nil {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "id", "%s", err)
		}
	}
	if body.DryRun {
		touched, err := s.config.Subjects.DryRun(ctx, caller.Tenant, asked)
		if err != nil {
			return nil, err
		}
		return openapi.OK(openapi.ErasurePreview{
			Events: touched.Events, Streams: touched.Streams, Projections: orNone(touched.Projections), Until: touched.Until,
		}), nil
	}
	erasure, _, err := s.config.Subjects.Request(ctx, caller.Tenant, asked)
	if err != nil {
		return nil, err
	}
	return openapi.Accepted(erasureAnswer(erasure)).With("Location", "/v1/erasures/"+erasure.ID.String()), nil
}

// actor returns the caller as the actor of an erasure.
func actor(caller access.Caller) subjects.Actor {
	return subjects.Actor{ID: actorOf(caller.Credential).Tag(), By: caller.By()}
}

func (s operations) ListErasures(ctx context.Context, caller access.Caller, request openapi.ListErasuresRequest) (*openapi.Response, error) {
	page, err := listPageOf(request.Params.PageSize, request.Params.PageToken, domain.ParseUUID)
	if err != nil {
		return nil, err
	}
	erasures, err := s.config.Subjects.Erasures(ctx, caller.Tenant, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	erasures, link := cutPage(erasures, page.size, func(e subjects.Erasure) string { return e.ID.String() }, "/v1/erasures", nil)
	return openapi.OK(openapi.ErasureList{Erasures: convert(erasures, erasureAnswer)}).With("Link", link), nil
}

func (s operations) GetErasure(ctx context.Context, caller access.Caller, request openapi.GetErasureRequest) (*openapi.Response, error) {
	id, err := erasureID(request.ErasureId)
	if err != nil {
		return nil, err
	}
	erasure, err := s.config.Subjects.Erasure(ctx, caller.Tenant, id)
	return openapi.OK(erasureAnswer(erasure)), err
}

func (s operations) ApproveErasure(ctx context.Context, caller access.Caller, request openapi.ApproveErasureRequest) (*openapi.Response, error) {
	id, err := erasureID(request.ErasureId)
	if err != nil {
		return nil, err
	}
	erasure, err := s.config.Subjects.Approve(ctx, caller.Tenant, id, actor(caller))
	return openapi.Accepted(erasureAnswer(erasure)), err
}

func (s operations) CancelErasure(ctx context.Context, caller access.Caller, request openapi.CancelErasureRequest) (*openapi.Response, error) {
	id, err := erasureID(request.ErasureId)
	if err != nil {
		return nil, err
	}
	erasure, err := s.config.Subjects.Cancel(ctx, caller.Tenant, id, actor(caller))
	return openapi.Accepted(erasureAnswer(erasure)), err
}

func erasureID(text string) (domain.UUID, error) {
	id, err := domain.ParseUUID(text)
	if err != nil {
		return id, domain.Errorf(domain.CodeInvalidRequest, "path erasureId", "%s", err)
	}
	return id, nil
}

func erasureAnswer(e subjects.Erasure) openapi.Erasure {
	answer := openapi.Erasure{
		Id: e.ID.String(), SubjectHash: hex.EncodeToString(e.SubjectHash), What: string(e.What), Reason: e.Reason, RequestedBy: e.RequestedBy.By, State: string(e.State),
		Step: string(e.Step), Until: e.Until, Problem: e.Problem, CreatedAt: openapi.At(e.CreatedAt), ApprovedAt: moment(e.ApprovedAt), FinishedAt: moment(e.FinishedAt),
		Receipt: e.Receipt,
		Counts: openapi.ErasureCounts{
			Events: e.Counts.Events, DerivedEvents: e.Counts.DerivedEvents, Streams: e.Counts.Streams, NamedStreams: e.Counts.NamedStreams, Rows: e.Counts.Rows,
			Projections: orNone(e.Counts.Projections),
		},
	}
	if answer.Counts.Events == nil {
		answer.Counts.Events = make(map[string]int64)
	}
	if e.ApprovedBy != nil {
		answer.ApprovedBy = e.ApprovedBy.By
	}
	return answer
}

// orNone returns a list that is not null in JSON.
func orNone(list []string) []string {
	if list == nil {
		return []string{}
	}
	return list
}

// exportSubject streams the events of a subject, as exportEvents does those of a log.
func (s *Server) exportSubject(c echo.Context, caller access.Caller) error {
	subject := pathParams(c)[subjectParam]
	if err := subjects.CheckSubject(subject); err != nil {
		return err
	}
	head, err := s.config.Log.Head(c.Request().Context(), caller.Tenant)
	if err != nil {
		return err
	}
	query := domain.MatchQuery{Query: domain.Query{{Tags: []string{subjects.TagOf(subject)}}}, Before: head.Position + 1}
	done := false
	next := func(ctx context.Context, limit, maxBytes int) (events []domain.Event, err error) {
		for !done && len(events) == 0 {
			query.Limit, query.MaxBytes = limit, maxBytes
			var after int64
			if events, after, err = s.config.Log.ReadMatching(ctx, caller.Tenant, query); err != nil {
				return nil, err
			}
			query.After, done = after, after == 0
		}
		return events, nil
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return s.streamEvents(c, caller.ShareOf(), math.MaxInt64, next, wire.ExportForm(c.Request()))
}
