package api

import (
	"context"
	"slices"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/schema"
)

func (s operations) ListSchemas(ctx context.Context, caller access.Caller, request openapi.ListSchemasRequest) (*openapi.Response, error) {
	texts := value(request.Params.Texts)
	var all schema.Contents
	var err error
	if texts != "" {
		all, err = s.config.Schemas.Contents(ctx, caller.Tenant)
	} else {
		all.Types, all.Rules, err = s.config.Schemas.List(ctx, caller.Tenant)
	}
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.SchemaList{
		Schemas: convert(all.Types, func(of schema.Type) openapi.SchemaSummary {
			newest := of.Newest()
			answer := openapi.SchemaSummary{
				Type: of.Name, Version: newest.Number, Compatibility: string(of.Compatibility), By: newest.By, CreatedAt: openapi.At(newest.CreatedAt),
				Tags: of.Tags, Retagging: retaggingAnswer(of.Retagging),
			}
			switch texts {
			case "newest":
				answer.Texts = []openapi.SchemaText{schemaText(newest)}
			case "all":
				answer.Texts = convert(of.Versions, schemaText)
			}
			return answer
		}),
		Rules: convert(all.Rules, schemaRuleAnswer),
	}), nil
}

func schemaText(v schema.Version) openapi.SchemaText {
	return openapi.SchemaText{Version: v.Number, Schema: v.Schema}
}

func (s operations) PutSchemaRule(ctx context.Context, caller access.Caller, request openapi.PutSchemaRuleRequest) (*openapi.Response, error) {
	kept, err := s.config.Schemas.SetRule(ctx, caller.Tenant, schema.Rule{
		Category: request.Category, Mode: schema.Mode(request.Body.Mode), UnknownTypes: schema.UnknownTypes(request.Body.UnknownTypes), By: caller.By(),
	})
	return openapi.OK(schemaRuleAnswer(kept)), err
}

func (s operations) GetSchema(ctx context.Context, caller access.Caller, request openapi.GetSchemaRequest) (*openapi.Response, error) {
	found, err := s.config.Schemas.Get(ctx, caller.Tenant, request.Type)
	if err != nil {
		return nil, err
	}
	return openapi.OK(schemaAnswer(found)), nil
}

func (s operations) PutSchema(ctx context.Context, caller access.Caller, request openapi.PutSchemaRequest) (*openapi.Response, error) {
	put := schema.Put{
		Type: request.Type, Schema: request.Body.Schema, Compatibility: schema.Compatibility(request.Body.Compatibility), Tags: request.Body.Tags,
		Personal: request.Body.Personal, Version: request.Body.Version, By: caller.By(),
	}
	upcaster := request.Body.Upcaster
	if upcaster != nil {
		put.Upcaster = upcaster.Expression
	}
	kept, added, err := s.config.Schemas.Put(ctx, caller.Tenant, put)
	if err != nil {
		return nil, err
	}
	answer := schemaAnswer(kept)
	if upcaster != nil {
		touches, err := s.touches(ctx, caller, request.Type, upcaster.Rebuild)
		if err != nil {
			return nil, err
		}
		answer.Touches = &touches
	}
	if put.Tags != nil {
		if answer.TagReaders, err = s.tagReaders(ctx, caller, request.Type); err != nil {
			return nil, err
		}
	}
	return openapi.CreatedIf(added, answer), nil
}

func (s operations) DeleteSchema(ctx context.Context, caller access.Caller, request openapi.DeleteSchemaRequest) (*openapi.Response, error) {
	return openapi.NoContent(), s.config.Schemas.Delete(ctx, caller.Tenant, request.Type)
}

func (s operations) GetSchemaVersion(ctx context.Context, caller access.Caller, request openapi.GetSchemaVersionRequest) (*openapi.Response, error) {
	found, err := s.config.Schemas.Version(ctx, caller.Tenant, request.Type, request.Version)
	return openapi.OK(found.Schema), err
}

func (s operations) CheckSchema(ctx context.Context, caller access.Caller, request openapi.CheckSchemaRequest) (*openapi.Response, error) {
	body := request.Body
	check := schema.Check{Type: request.Type, Schema: body.Schema, Version: body.Version, Tags: body.Tags}
	if body.Schema != nil && body.Version != 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "version", "give a schema or a version, not both")
	}
	if source := body.Source; source != nil {
		given := 0
		for _, one := range []bool{source.Last > 0, source.From > 0, len(source.Events) > 0} {
			if one {
				given++
			}
		}
		if given != 1 {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "source", "give one of last, from and events")
		}
		if len(source.Events) == 0 {
			// The examples show the events' data.
			if err := caller.Credential.Require(auth.ScopeEventsRead); err != nil {
				return nil, err
			}
		}
		check.Source = schema.Source{Last: source.Last, From: source.From, Events: source.Events}
	}
	checked, err := s.config.Schemas.Check(ctx, caller.Tenant, check)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.SchemaCheckResult{
		Against: checked.Against, Violations: convert(checked.Violations, violationAnswer), Breaking: checked.Breaking,
		Events: checked.Events, Invalid: checked.Invalid, Next: checked.Next,
		Examples: convert(checked.Examples, func(e schema.Example) openapi.SchemaCheckExample {
			answer := openapi.SchemaCheckExample{Position: e.Position, Stream: e.Stream, Version: e.Version, Violations: convert(e.Violations, violationAnswer)}
			if e.Position == 0 {
				answer.Index = &e.Index
			}
			return answer
		}),
		Derived: convert(checked.Derived, func(e schema.Example) openapi.DerivedTags {
			answer := openapi.DerivedTags{Position: e.Position, Stream: e.Stream, Tags: e.Tags}
			if e.Position == 0 {
				answer.Index = &e.Index
			}
			return answer
		}),
	}), nil
}

// tagReaders returns the projections and groups that select events by tags and may concern a type.
func (s operations) tagReaders(ctx context.Context, caller access.Caller, eventType string) (*openapi.TagReaders, error) {
	selects := func(query domain.Query) bool {
		return slices.ContainsFunc(query, func(item domain.QueryItem) bool {
			return len(item.Tags) > 0 && (len(item.Types) == 0 || slices.Contains(item.Types, eventType))
		})
	}
	readers := &openapi.TagReaders{Projections: []string{}, Groups: []string{}}
	touched, err := s.config.Upcasters.Touched(ctx, caller.Tenant, eventType)
	if err != nil {
		return nil, err
	}
	for _, p := range touched {
		if selects(p.Definition.Source.Query.Items) {
			readers.Projections = append(readers.Projections, p.Name)
		}
	}
	if caller.Credential.Require(auth.ScopeEventsRead, auth.ScopeEventsConsume, auth.ScopeSubscriptionsWrite) != nil {
		return readers, nil
	}
	for after := ""; ; {
		groups, err := s.config.Groups.List(ctx, caller.Tenant, after, groupsAtOnce)
		if err != nil {
			return nil, err
		}
		for _, group := range groups {
			if after = group.Name; selects(group.Query) {
				readers.Groups = append(readers.Groups, group.Name)
			}
		}
		if len(groups) < groupsAtOnce {
			return readers, nil
		}
	}
}

func retaggingAnswer(r *schema.Retagging) *openapi.Retagging {
	if r == nil {
		return nil
	}
	return &openapi.Retagging{
		State: openapi.RetaggingState(r.State), Position: r.Position, Until: r.Until, Events: r.Events, Changed: r.Changed, Failed: r.Failed,
		Failures: convert(r.Failures, func(f schema.RetagFailure) openapi.RetaggingFailure {
			return openapi.RetaggingFailure{Position: f.Position, Message: f.Message}
		}),
		UpdatedAt: openapi.At(r.UpdatedAt),
	}
}

func violationAnswer(v domain.Violation) openapi.Violation {
	return openapi.Violation{Where: v.Where, Pointer: v.Pointer, Rule: v.Rule, Message: v.Message, Fix: v.Fix}
}

func schemaRuleAnswer(rule schema.Rule) openapi.SchemaRule {
	return openapi.SchemaRule{
		Category: rule.Category, Mode: string(rule.Mode), UnknownTypes: string(rule.UnknownTypes), By: rule.By, UpdatedAt: openapi.At(rule.UpdatedAt),
	}
}

func schemaAnswer(of schema.Type) openapi.EventSchema {
	newest := of.Newest()
	return openapi.EventSchema{
		Type: of.Name, Version: newest.Number, Compatibility: string(of.Compatibility), Default: of.Default(), Schema: newest.Schema,
		Tags: of.Tags, Retagging: retaggingAnswer(of.Retagging),
		Versions: convert(of.Versions, func(v schema.Version) openapi.SchemaVersion {
			return openapi.SchemaVersion{Version: v.Number, Breaking: v.Breaking, Personal: v.Personal, By: v.By, CreatedAt: openapi.At(v.CreatedAt)}
		}),
	}
}
