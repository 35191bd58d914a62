package api

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s generated) ListWebhooks(ctx context.Context, request openapi.ListWebhooksRequestObject) (openapi.ListWebhooksResponseObject, error) {
	caller := callerOf(ctx)
	after, err := pageToken(request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	size := pageSizeOf(request.Params.PageSize)
	webhooks, err := s.config.Webhooks.List(ctx, caller.tenant, after, size+1)
	if err != nil {
		return nil, err
	}
	answer := webhooksAnswer{Body: openapi.WebhookList{Webhooks: []openapi.Webhook{}}}
	if len(webhooks) > size {
		webhooks = webhooks[:size]
		answer.Headers.Link = pageLink("/v1/webhooks", url.Values{"pageSize": {strconv.Itoa(size)}}, tokenOf(webhooks[size-1].Name))
	}
	if len(webhooks) == 0 {
		return answer, nil
	}
	// Each webhook has a group, in the same order.
	groups, err := s.config.Groups.List(ctx, caller.tenant, domain.ServiceGroup(domain.ServiceWebhook, after), len(webhooks))
	if err != nil {
		return nil, err
	}
	for _, webhook := range webhooks {
		name := domain.ServiceGroup(domain.ServiceWebhook, webhook.Name)
		i, there := slices.BinarySearchFunc(groups, name, func(g domain.GroupStatus, name string) int { return strings.Compare(g.Name, name) })
		var group domain.GroupStatus
		if there {
			group = groups[i]
		} else if group, err = s.config.Groups.Get(ctx, caller.tenant, name); domain.IsCode(err, domain.CodeNotFound) {
			continue // a webhook was just created or removed
		} else if err != nil {
			return nil, err
		}
		if caller.allowSelection(group.Selection, groupReaders...) == nil {
			answer.Body.Webhooks = append(answer.Body.Webhooks, webhookOf(webhook, group))
		}
	}
	return answer, nil
}

func (s generated) GetWebhook(ctx context.Context, request openapi.GetWebhookRequestObject) (openapi.GetWebhookResponseObject, error) {
	webhook, group, err := s.webhook(ctx, request.Name, groupReaders...)
	if err != nil {
		return nil, err
	}
	failing, err := s.config.Webhooks.Failing(ctx, callerOf(ctx).tenant, webhook)
	answer := webhookAnswer{200, webhookOf(webhook, group)}
	if failing != nil {
		answer.body.Failing = &openapi.WebhookFailing{
			Since: openapi.At(failing.Since), Attempts: failing.Attempts, LastAt: openapi.At(failing.LastAt), Outcome: string(failing.Outcome), Status: failing.Status, Error: failing.Error,
		}
	}
	return answer, err
}

// webhook returns a webhook and its group, if the caller has one of scopes for it.
func (s generated) webhook(ctx context.Context, name string, scopes ...domain.Scope) (domain.Webhook, domain.GroupStatus, error) {
	caller := callerOf(ctx)
	webhook, err := s.config.Webhooks.Get(ctx, caller.tenant, name)
	if err != nil {
		return domain.Webhook{}, domain.GroupStatus{}, err
	}
	group, err := s.config.Groups.Get(ctx, caller.tenant, domain.ServiceGroup(domain.ServiceWebhook, name))
	if domain.IsCode(err, domain.CodeNotFound) {
		_, err = s.config.Webhooks.Get(ctx, caller.tenant, name) // it was just removed
	}
	if err == nil {
		err = caller.allowSelection(group.Selection, scopes...)
	}
	return webhook, group, err
}

// withGroup returns the answer with a webhook that was just changed.
func (s generated) withGroup(ctx context.Context, status int, webhook domain.Webhook) (webhookAnswer, error) {
	group, err := s.config.Groups.Get(ctx, callerOf(ctx).tenant, domain.ServiceGroup(domain.ServiceWebhook, webhook.Name))
	return webhookAnswer{status, webhookOf(webhook, group)}, err
}

func (s generated) PutWebhook(ctx context.Context, request openapi.PutWebhookRequestObject) (openapi.PutWebhookResponseObject, error) {
	caller := callerOf(ctx)
	definition := webhookDefinition(*request.Body)
	if err := s.allowSource(ctx, caller, definition); err != nil {
		return nil, inPlace("source", err)
	}
	// If the webhook exists, the caller must also be allowed to change it in its current form.
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return nil, err
	}
	webhook, created, err := s.config.Webhooks.Put(ctx, caller.tenant, request.Name, definition)
	if err != nil {
		return nil, err
	}
	if !created {
		return s.withGroup(ctx, 200, webhook)
	}
	answer, err := s.withGroup(ctx, 201, webhook)
	if n := len(webhook.Secrets); err == nil && n > 0 {
		answer.body.Secrets[n-1] = secretOf(webhook.Secrets[n-1], true)
	}
	return answer, err
}

// allowSource returns nil if the caller may have the events of a webhook's source sent to a URL. A caller that may not
// read or consume events may not have them sent either.
func (s *Server) allowSource(ctx context.Context, caller caller, definition domain.WebhookDefinition) error {
	selection := definition.Selection
	if definition.Projection != "" {
		if err := caller.allow("", domain.ScopeDocumentsRead); err != nil {
			return err
		}
		p, err := s.config.Projections.Get(ctx, caller.tenant, definition.Projection)
		switch {
		case err == nil:
			selection.Categories = p.Definition.Source.Categories
		case !domain.IsCode(err, domain.CodeNotFound):
			return err
		}
	}
	if err := caller.allowSelection(selection, domain.ScopeSubscriptionsWrite); err != nil {
		return err
	}
	return caller.allowSelection(selection, domain.ScopeEventsRead, domain.ScopeEventsConsume)
}

// allowWebhook returns nil if the caller may change a webhook in its current form.
func (s generated) allowWebhook(ctx context.Context, caller caller, name string) error {
	if caller.allow("", domain.ScopeSubscriptionsWrite) == nil {
		return nil // the handler checks later whether it exists
	}
	_, _, err := s.webhook(ctx, name, domain.ScopeSubscriptionsWrite)
	return err
}

func (s generated) DeleteWebhook(ctx context.Context, request openapi.DeleteWebhookRequestObject) (openapi.DeleteWebhookResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	if err := s.config.Webhooks.Delete(ctx, caller.tenant, request.Name); err != nil {
		return nil, err
	}
	return openapi.DeleteWebhook204Response{}, nil
}

func (s generated) PauseWebhook(ctx context.Context, request openapi.PauseWebhookRequestObject) (openapi.PauseWebhookResponseObject, error) {
	return s.pauseWebhook(ctx, request.Name, true)
}

func (s generated) ResumeWebhook(ctx context.Context, request openapi.ResumeWebhookRequestObject) (openapi.ResumeWebhookResponseObject, error) {
	return s.pauseWebhook(ctx, request.Name, false)
}

func (s generated) pauseWebhook(ctx context.Context, name string, paused bool) (webhookAnswer, error) {
	caller := callerOf(ctx)
	if err := s.allowWebhook(ctx, caller, name); err != nil {
		return webhookAnswer{}, err
	}
	webhook, err := s.config.Webhooks.Pause(ctx, caller.tenant, name, paused)
	if err != nil {
		return webhookAnswer{}, err
	}
	return s.withGroup(ctx, 200, webhook)
}

func (s generated) AddWebhookSecret(ctx context.Context, request openapi.AddWebhookSecretRequestObject) (openapi.AddWebhookSecretResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	expireOld := time.Duration(-1)
	if after := request.Body.ExpireOldAfter; after != nil {
		expireOld = seconds(*after)
	}
	webhook, err := s.config.Webhooks.AddSecret(ctx, caller.tenant, request.Name, expireOld)
	if err != nil {
		return nil, err
	}
	return openapi.AddWebhookSecret201JSONResponse(secretOf(webhook.Secrets[len(webhook.Secrets)-1], true)), nil
}

func (s generated) RemoveWebhookSecret(ctx context.Context, request openapi.RemoveWebhookSecretRequestObject) (openapi.RemoveWebhookSecretResponseObject, error) {
	caller := callerOf(ctx)
	id, err := domain.ParseWebhookSecretID(request.SecretId)
	if err != nil {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "path secretId", "%s", err)
	}
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	if _, err := s.config.Webhooks.RemoveSecret(ctx, caller.tenant, request.Name, id); err != nil {
		return nil, err
	}
	return openapi.RemoveWebhookSecret204Response{}, nil
}

func (s generated) ListWebhookAttempts(ctx context.Context, request openapi.ListWebhookAttemptsRequestObject) (openapi.ListWebhookAttemptsResponseObject, error) {
	size := pageSizeOf(request.Params.PageSize)
	wanted := domain.WebhookAttempts{Outcome: domain.WebhookOutcome(value(request.Params.Outcome)), Limit: size + 1}
	query := url.Values{"pageSize": {strconv.Itoa(size)}}
	if wanted.Outcome != "" {
		query.Set("outcome", string(wanted.Outcome))
	}
	if given := request.Params.EventId; given != nil {
		id, err := domain.ParseEventID(*given)
		if err != nil {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "query eventId", "%s", err)
		}
		wanted.EventID = id
		query.Set("eventId", id.String())
	}
	token, err := pageToken(request.Params.PageToken)
	if err == nil && token != "" {
		wanted.Before, err = domain.ParseWebhookAttemptID(token)
	}
	if err != nil {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "query pageToken", "it is not from a Link header of this list; leave it out to begin with the first page")
	}
	if _, _, err := s.webhook(ctx, request.Name, groupReaders...); err != nil {
		return nil, err
	}
	attempts, err := s.config.Webhooks.Attempts(ctx, callerOf(ctx).tenant, request.Name, wanted)
	if err != nil {
		return nil, err
	}
	answer := attemptsAnswer{}
	if len(attempts) > size {
		attempts = attempts[:size]
		answer.Headers.Link = pageLink("/v1/webhooks/"+request.Name+"/attempts", query, tokenOf(attempts[size-1].ID.String()))
	}
	answer.Body.Attempts = make([]openapi.WebhookAttempt, len(attempts))
	for i, attempt := range attempts {
		answer.Body.Attempts[i] = attemptOf(attempt)
	}
	return answer, nil
}

func (s generated) StartWebhookReplay(ctx context.Context, request openapi.StartWebhookReplayRequestObject) (openapi.StartWebhookReplayResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	webhook, err := s.config.Webhooks.Replay(ctx, caller.tenant, request.Name, request.Body.From, value(request.Body.To))
	if err != nil {
		return nil, err
	}
	replay, err := s.replayOf(ctx, caller, webhook)
	return openapi.StartWebhookReplay202JSONResponse(replay), err
}

func (s generated) GetWebhookReplay(ctx context.Context, request openapi.GetWebhookReplayRequestObject) (openapi.GetWebhookReplayResponseObject, error) {
	webhook, _, err := s.webhook(ctx, request.Name, groupReaders...)
	if err != nil {
		return nil, err
	}
	replay, err := s.replayOf(ctx, callerOf(ctx), webhook)
	return openapi.GetWebhookReplay200JSONResponse(replay), err
}

func (s generated) CancelWebhookReplay(ctx context.Context, request openapi.CancelWebhookReplayRequestObject) (openapi.CancelWebhookReplayResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	if _, err := s.config.Webhooks.CancelReplay(ctx, caller.tenant, request.Name); err != nil {
		return nil, err
	}
	return openapi.CancelWebhookReplay204Response{}, nil
}

func (s generated) TestWebhook(ctx context.Context, request openapi.TestWebhookRequestObject) (openapi.TestWebhookResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowWebhook(ctx, caller, request.Name); err != nil {
		return nil, err
	}
	attempt, err := s.config.Webhooks.Test(ctx, caller.tenant, request.Name)
	return attemptAnswer(attemptOf(attempt)), err
}

// webhookDefinition converts a definition from a request.
func webhookDefinition(body openapi.NewWebhook) domain.WebhookDefinition {
	d := domain.WebhookDefinition{
		Selection: domain.Selection{Types: body.Types, Filter: body.Filter},
		URL:       body.Url, Delay: seconds(body.Delay), From: body.From, Format: domain.WebhookFormat(body.Format), Ordering: domain.Ordering(body.Ordering),
		Timeout: seconds(body.Timeout),
	}
	if source := body.Source; source != nil {
		d.Stream, d.Categories, d.Projection = source.Stream, source.Categories, source.Projection
	}
	if dedupe := body.Dedupe; dedupe != nil {
		d.DedupeID, d.DedupeWindow = dedupe.Id, seconds(dedupe.Window)
	}
	return d
}

// webhookOf converts a webhook for the answer, with its group's progress and without its secrets.
func webhookOf(webhook domain.Webhook, group domain.GroupStatus) openapi.Webhook {
	answer := openapi.Webhook{
		Name:   webhook.Name,
		Source: openapi.WebhookSource{Stream: webhook.Stream, Categories: webhook.Categories, Projection: webhook.Projection},
		Types:  webhook.Types, Filter: webhook.Filter, Url: webhook.URL, Delay: webhook.Delay.Seconds(), From: webhook.From, Format: string(webhook.Format),
		Ordering: string(webhook.Ordering), Timeout: webhook.Timeout.Seconds(), Paused: webhook.Paused, Secrets: make([]openapi.WebhookSecret, len(webhook.Secrets)),
		CreatedAt: openapi.At(webhook.CreatedAt), UpdatedAt: openapi.At(webhook.UpdatedAt), Head: group.Head, Progress: webhookProgress(group),
	}
	if webhook.DedupeID != "" {
		answer.Dedupe = &openapi.WebhookDedupe{Id: webhook.DedupeID, Window: webhook.DedupeWindow.Seconds()}
	}
	if !webhook.DisabledAt.IsZero() {
		answer.Disabled = &openapi.WebhookDisabled{At: openapi.At(webhook.DisabledAt), Reason: webhook.DisabledReason}
	}
	for i, secret := range webhook.Secrets {
		answer.Secrets[i] = secretOf(secret, false)
	}
	return answer
}

func secretOf(secret domain.WebhookSecret, show bool) openapi.WebhookSecret {
	answer := openapi.WebhookSecret{Id: secret.ID.String(), CreatedAt: openapi.At(secret.CreatedAt), ExpiresAt: moment(secret.ExpiresAt)}
	if show {
		// The text form is that of Standard Webhooks.
		answer.Secret = secret.Text()
	}
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
func (s generated) replayOf(ctx context.Context, caller caller, webhook domain.Webhook) (openapi.WebhookReplay, error) {
	none := domain.Errorf(domain.CodeNotFound, "name", "webhook %q has no replay; begin one with POST /v1/webhooks/%s/replay", webhook.Name, webhook.Name)
	if webhook.Replay == nil {
		return openapi.WebhookReplay{}, none
	}
	group, err := s.config.Groups.Get(ctx, caller.tenant, domain.ServiceGroup(domain.ServiceReplay, webhook.Name))
	if domain.IsCode(err, domain.CodeNotFound) {
		err = none // it was just cancelled
	}
	r := webhook.Replay
	return openapi.WebhookReplay{From: r.From, To: r.To, StartedAt: openapi.At(r.StartedAt), DoneAt: moment(r.DoneAt), Progress: webhookProgress(group)}, err
}

func attemptOf(a domain.WebhookAttempt) openapi.WebhookAttempt {
	return openapi.WebhookAttempt{
		Id: a.ID.String(), EventId: a.EventID.String(), Type: a.Type, Position: a.Position, Attempt: a.Attempt, Replay: a.Replay, Url: a.URL, Outcome: string(a.Outcome),
		Status: a.Status, Took: float64(a.Took.Microseconds()) / 1000, Error: a.Error, Excerpt: a.Excerpt, At: openapi.At(a.At), NextAt: moment(a.NextAt),
	}
}
