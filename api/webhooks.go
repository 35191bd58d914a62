package api

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
)

func (s operations) ListWebhooks(ctx context.Context, caller access.Caller, request openapi.ListWebhooksRequest) (*openapi.Response, error) {
	page, err := namePageOf(request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	webhooks, err := s.config.Webhooks.List(ctx, caller.Tenant, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	webhooks, link := cutPage(webhooks, page.size, func(webhook webhook.Webhook) string { return webhook.Name }, "/v1/webhooks", nil)
	answer := openapi.WebhookList{Webhooks: []openapi.Webhook{}}
	if len(webhooks) == 0 {
		return openapi.OK(answer), nil
	}
	// Each webhook has a group, in the same order.
	groups, err := s.config.Groups.List(ctx, caller.Tenant, domain.ServiceGroup(domain.ServiceWebhook, page.after), len(webhooks))
	if err != nil {
		return nil, err
	}
	for _, webhook := range webhooks {
		name := domain.ServiceGroup(domain.ServiceWebhook, webhook.Name)
		i, there := slices.BinarySearchFunc(groups, name, func(g domain.GroupStatus, name string) int { return strings.Compare(g.Name, name) })
		var group domain.GroupStatus
		if there {
			group = groups[i]
		} else if group, err = s.config.Groups.Get(ctx, caller.Tenant, name); domain.IsCode(err, domain.CodeNotFound) {
			continue // a webhook was just created or removed
		} else if err != nil {
			return nil, err
		}
		if caller.AllowSelection(group.Selection, groupReaders...) == nil {
			answer.Webhooks = append(answer.Webhooks, webhookOf(webhook, group))
		}
	}
	return openapi.OK(answer).With("Link", link), nil
}

func (s operations) GetWebhook(ctx context.Context, caller access.Caller, request openapi.GetWebhookRequest) (*openapi.Response, error) {
	webhook, group, err := s.webhook(ctx, caller, request.Name, groupReaders...)
	if err != nil {
		return nil, err
	}
	failing, err := s.config.Webhooks.Failing(ctx, caller.Tenant, webhook)
	answer := webhookOf(webhook, group)
	if failing != nil {
		answer.Failing = &openapi.WebhookFailing{
			Since: openapi.At(failing.Since), Attempts: failing.Attempts, LastAt: openapi.At(failing.LastAt), Outcome: string(failing.Outcome), Status: failing.Status, Error: failing.Error,
		}
	}
	return openapi.OK(answer), err
}

// webhook returns a webhook and its group, if the caller has one of scopes for it.
func (s operations) webhook(ctx context.Context, caller access.Caller, name string, scopes ...auth.Scope) (webhook.Webhook, domain.GroupStatus, error) {
	found, err := s.config.Webhooks.Get(ctx, caller.Tenant, name)
	if err != nil {
		return webhook.Webhook{}, domain.GroupStatus{}, err
	}
	group, err := s.config.Groups.Get(ctx, caller.Tenant, domain.ServiceGroup(domain.ServiceWebhook, name))
	if domain.IsCode(err, domain.CodeNotFound) {
		_, err = s.config.Webhooks.Get(ctx, caller.Tenant, name) // it was just removed
	}
	if err == nil {
		err = caller.AllowSelection(group.Selection, scopes...)
	}
	return found, group, err
}

// withGroup returns a webhook that was just changed, with its group's progress.
func (s operations) withGroup(ctx context.Context, caller access.Caller, webhook webhook.Webhook) (openapi.Webhook, error) {
	group, err := s.config.Groups.Get(ctx, caller.Tenant, domain.ServiceGroup(domain.ServiceWebhook, webhook.Name))
	return webhookOf(webhook, group), err
}

func (s operations) PutWebhook(ctx context.Context, caller access.Caller, request openapi.PutWebhookRequest) (*openapi.Response, error) {
	definition := webhookDefinition(request.Body)
	if err := s.allowSource(ctx, caller, definition); err != nil {
		return nil, problem.At("source", err)
	}
	// If the webhook exists, the caller must also be allowed to change it in its current form.
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return nil, err
	}
	webhook, created, err := s.config.Webhooks.Put(ctx, caller.Tenant, request.Name, definition)
	if err != nil {
		return nil, err
	}
	answer, err := s.withGroup(ctx, caller, webhook)
	if n := len(webhook.Secrets); created && n > 0 {
		answer.Secrets[n-1] = shownSecret(webhook.Secrets[n-1])
	}
	return openapi.CreatedIf(created, answer), err
}

// allowSource returns nil if the caller may have the events of a webhook's source sent to a URL. A caller that may not
// read or consume events may not have them sent either.
func (s *Server) allowSource(ctx context.Context, caller access.Caller, definition webhook.Definition) error {
	selection := definition.Selection
	if definition.Projection != "" {
		if err := caller.Allow("", auth.ScopeDocumentsRead); err != nil {
			return err
		}
		p, err := s.config.Projections.Get(ctx, caller.Tenant, definition.Projection)
		switch {
		case err == nil:
			selection.Categories = p.Definition.Source.Categories
		case !domain.IsCode(err, domain.CodeNotFound):
			return err
		}
	}
	if err := caller.AllowSelection(selection, auth.ScopeSubscriptionsWrite); err != nil {
		return err
	}
	return caller.AllowSelection(selection, auth.ScopeEventsRead, auth.ScopeEventsConsume)
}

// allowWebhook returns nil if the caller may change a webhook in its current form.
func (s operations) allowWebhook(ctx context.Context, caller access.Caller, name string) error {
	if caller.Allow("", auth.ScopeSubscriptionsWrite) == nil {
		return nil // the handler checks later whether it exists
	}
	_, _, err := s.webhook(ctx, caller, name, auth.ScopeSubscriptionsWrite)
	return err
}

func (s operations) DeleteWebhook(ctx context.Context, caller access.Caller, request openapi.DeleteWebhookRequest) (*openapi.Response, error) {
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	return openapi.NoContent(), s.config.Webhooks.Delete(ctx, caller.Tenant, request.Name)
}

func (s operations) PauseWebhook(ctx context.Context, caller access.Caller, request openapi.PauseWebhookRequest) (*openapi.Response, error) {
	return s.pauseWebhook(ctx, caller, request.Name, true)
}

func (s operations) ResumeWebhook(ctx context.Context, caller access.Caller, request openapi.ResumeWebhookRequest) (*openapi.Response, error) {
	return s.pauseWebhook(ctx, caller, request.Name, false)
}

func (s operations) pauseWebhook(ctx context.Context, caller access.Caller, name string, paused bool) (*openapi.Response, error) {
	if err := s.allowWebhook(ctx, caller, name); err != nil {
		return nil, err
	}
	webhook, err := s.config.Webhooks.Pause(ctx, caller.Tenant, name, paused)
	if err != nil {
		return nil, err
	}
	answer, err := s.withGroup(ctx, caller, webhook)
	return openapi.OK(answer), err
}

func (s operations) AddWebhookSecret(ctx context.Context, caller access.Caller, request openapi.AddWebhookSecretRequest) (*openapi.Response, error) {
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	expireOld := time.Duration(-1)
	if after := request.Body.ExpireOldAfter; after != nil {
		expireOld = wire.Seconds(*after)
	}
	webhook, err := s.config.Webhooks.AddSecret(ctx, caller.Tenant, request.Name, expireOld)
	if err != nil {
		return nil, err
	}
	return openapi.Created(shownSecret(webhook.Secrets[len(webhook.Secrets)-1])), nil
}

func (s operations) RemoveWebhookSecret(ctx context.Context, caller access.Caller, request openapi.RemoveWebhookSecretRequest) (*openapi.Response, error) {
	id, err := parseAt("path secretId", request.SecretId, webhook.ParseSecretID)
	if err != nil {
		return nil, err
	}
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	_, err = s.config.Webhooks.RemoveSecret(ctx, caller.Tenant, request.Name, id)
	return openapi.NoContent(), err
}

func (s operations) ListWebhookAttempts(ctx context.Context, caller access.Caller, request openapi.ListWebhookAttemptsRequest) (*openapi.Response, error) {
	page, err := listPageOf(request.Params.PageSize, request.Params.PageToken, webhook.ParseAttemptID)
	if err != nil {
		return nil, err
	}
	wanted := webhook.AttemptQuery{Outcome: webhook.Outcome(value(request.Params.Outcome)), Before: page.after, Limit: page.size + 1}
	if given := request.Params.EventId; given != nil {
		if wanted.EventID, err = parseAt("query eventId", *given, domain.ParseEventID); err != nil {
			return nil, err
		}
	}
	if _, _, err := s.webhook(ctx, caller, request.Name, groupReaders...); err != nil {
		return nil, err
	}
	attempts, err := s.config.Webhooks.Attempts(ctx, caller.Tenant, request.Name, wanted)
	if err != nil {
		return nil, err
	}
	attempts, link := cutPage(attempts, page.size, func(a webhook.Attempt) string { return a.ID.String() },
		"/v1/webhooks/"+request.Name+"/attempts", url.Values{"outcome": optional(request.Params.Outcome), "eventId": optional(request.Params.EventId)})
	return openapi.OK(openapi.WebhookAttemptList{Attempts: convert(attempts, attemptOf)}).With("Link", link), nil
}

func (s operations) StartWebhookReplay(ctx context.Context, caller access.Caller, request openapi.StartWebhookReplayRequest) (*openapi.Response, error) {
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	webhook, err := s.config.Webhooks.Replay(ctx, caller.Tenant, request.Name, request.Body.From, value(request.Body.To))
	if err != nil {
		return nil, err
	}
	replay, err := s.replayOf(ctx, caller, webhook)
	return openapi.Accepted(replay), err
}

func (s operations) GetWebhookReplay(ctx context.Context, caller access.Caller, request openapi.GetWebhookReplayRequest) (*openapi.Response, error) {
	webhook, _, err := s.webhook(ctx, caller, request.Name, groupReaders...)
	if err != nil {
		return nil, err
	}
	replay, err := s.replayOf(ctx, caller, webhook)
	return openapi.OK(replay), err
}

func (s operations) CancelWebhookReplay(ctx context.Context, caller access.Caller, request openapi.CancelWebhookReplayRequest) (*openapi.Response, error) {
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	_, err := s.config.Webhooks.CancelReplay(ctx, caller.Tenant, request.Name)
	return openapi.NoContent(), err
}

func (s operations) TestWebhook(ctx context.Context, caller access.Caller, request openapi.TestWebhookRequest) (*openapi.Response, error) {
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	attempt, err := s.config.Webhooks.Test(ctx, caller.Tenant, request.Name)
	return openapi.OK(attemptOf(attempt)), err
}

// webhookDefinition converts a definition from a request.
func webhookDefinition(body openapi.NewWebhook) webhook.Definition {
	d := webhook.Definition{
		Selection: domain.Selection{Types: body.Types, Query: queryOf(body.Query), Filter: body.Filter},
		URL:       body.Url, Delay: wire.Seconds(body.Delay), From: body.From, Format: webhook.Format(body.Format), Ordering: domain.Ordering(body.Ordering),
		Timeout: wire.Seconds(body.Timeout),
	}
	if source := body.Source; source != nil {
		d.Stream, d.Categories, d.Projection = source.Stream, source.Categories, source.Projection
	}
	if dedupe := body.Dedupe; dedupe != nil {
		d.DedupeID, d.DedupeWindow = dedupe.Id, wire.Seconds(dedupe.Window)
	}
	return d
}

// webhookOf converts a webhook for the answer, with its group's progress and without its secrets.
func webhookOf(webhook webhook.Webhook, group domain.GroupStatus) openapi.Webhook {
	answer := openapi.Webhook{
		Name:   webhook.Name,
		Source: openapi.WebhookSource{Stream: webhook.Stream, Categories: webhook.Categories, Projection: webhook.Projection},
		Types:  webhook.Types, Query: shownQuery(webhook.Query), Filter: webhook.Filter, Url: webhook.URL, Delay: webhook.Delay.Seconds(), From: webhook.From, Format: string(webhook.Format),
		Ordering: string(webhook.Ordering), Timeout: webhook.Timeout.Seconds(), Paused: webhook.Paused, Secrets: convert(webhook.Secrets, hiddenSecret),
		CreatedAt: openapi.At(webhook.CreatedAt), UpdatedAt: openapi.At(webhook.UpdatedAt), Head: group.Head, Progress: webhookProgress(group),
	}
	if webhook.DedupeID != "" {
		answer.Dedupe = &openapi.WebhookDedupe{Id: webhook.DedupeID, Window: webhook.DedupeWindow.Seconds()}
	}
	if !webhook.DisabledAt.IsZero() {
		answer.Disabled = &openapi.WebhookDisabled{At: openapi.At(webhook.DisabledAt), Reason: webhook.DisabledReason}
	}
	return answer
}

func hiddenSecret(secret webhook.Secret) openapi.WebhookSecret {
	return openapi.WebhookSecret{Id: secret.ID.String(), CreatedAt: openapi.At(secret.CreatedAt), ExpiresAt: moment(secret.ExpiresAt)}
}

// shownSecret includes the secret itself, in the text form of Standard Webhooks.
func shownSecret(secret webhook.Secret) openapi.WebhookSecret {
	answer := hiddenSecret(secret)
	answer.Secret = secret.Text()
	return answer
}

// webhookProgress returns the progress of a group without partitions.
func webhookProgress(group domain.GroupStatus) openapi.WebhookProgress {
	if len(group.Partitions) == 0 {
		return openapi.WebhookProgress{}
	}
	p := group.Partitions[0]
	answer := openapi.WebhookProgress{Checkpoint: p.Checkpoint, ReadTo: p.ReadTo, InFlight: p.InFlight, Retrying: p.Retrying, DeadLetters: p.Parked}
	if p.Oldest > 0 {
		answer.Oldest = &p.Oldest
	}
	return answer
}

// replayOf returns a webhook's replay, with its group's progress.
func (s operations) replayOf(ctx context.Context, caller access.Caller, webhook webhook.Webhook) (openapi.WebhookReplay, error) {
	none := domain.Errorf(domain.CodeNotFound, "name", "webhook %q has no replay; begin one with POST /v1/webhooks/%s/replay", webhook.Name, webhook.Name)
	if webhook.Replay == nil {
		return openapi.WebhookReplay{}, none
	}
	group, err := s.config.Groups.Get(ctx, caller.Tenant, domain.ServiceGroup(domain.ServiceReplay, webhook.Name))
	if domain.IsCode(err, domain.CodeNotFound) {
		err = none // it was just cancelled
	}
	r := webhook.Replay
	return openapi.WebhookReplay{From: r.From, To: r.To, StartedAt: openapi.At(r.StartedAt), DoneAt: moment(r.DoneAt), Progress: webhookProgress(group)}, err
}

func attemptOf(a webhook.Attempt) openapi.WebhookAttempt {
	return openapi.WebhookAttempt{
		Id: a.ID.String(), EventId: a.EventID.String(), Type: a.Type, Position: a.Position, Attempt: a.Attempt, Replay: a.Replay, Url: a.URL, Outcome: string(a.Outcome),
		Status: a.Status, Took: float64(a.Took.Microseconds()) / 1000, Error: a.Error, Excerpt: a.Excerpt, At: openapi.At(a.At), NextAt: moment(a.NextAt),
	}
}
