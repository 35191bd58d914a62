package api

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func pending() error { return domain.Errorf(domain.CodeUnsupported, "", "this is not there yet") }

func (s *Server) pending(echo.Context, caller) error { return pending() }

func (s generated) ListCursors(context.Context, openapi.ListCursorsRequestObject) (openapi.ListCursorsResponseObject, error) {
	return nil, pending()
}

func (s generated) GetLag(context.Context, openapi.GetLagRequestObject) (openapi.GetLagResponseObject, error) {
	return nil, pending()
}

func (s generated) ListSubscriptions(context.Context, openapi.ListSubscriptionsRequestObject) (openapi.ListSubscriptionsResponseObject, error) {
	return nil, pending()
}

func (s generated) DeleteSubscription(context.Context, openapi.DeleteSubscriptionRequestObject) (openapi.DeleteSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) GetSubscription(context.Context, openapi.GetSubscriptionRequestObject) (openapi.GetSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) PutSubscription(context.Context, openapi.PutSubscriptionRequestObject) (openapi.PutSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) AckEvents(context.Context, openapi.AckEventsRequestObject) (openapi.AckEventsResponseObject, error) {
	return nil, pending()
}

func (s generated) AckEvent(context.Context, openapi.AckEventRequestObject) (openapi.AckEventResponseObject, error) {
	return nil, pending()
}

func (s generated) DiscardDeadLetters(context.Context, openapi.DiscardDeadLettersRequestObject) (openapi.DiscardDeadLettersResponseObject, error) {
	return nil, pending()
}

func (s generated) ListDeadLetters(context.Context, openapi.ListDeadLettersRequestObject) (openapi.ListDeadLettersResponseObject, error) {
	return nil, pending()
}

func (s generated) ReplayDeadLetters(context.Context, openapi.ReplayDeadLettersRequestObject) (openapi.ReplayDeadLettersResponseObject, error) {
	return nil, pending()
}

func (s generated) DiscardDeadLetter(context.Context, openapi.DiscardDeadLetterRequestObject) (openapi.DiscardDeadLetterResponseObject, error) {
	return nil, pending()
}

func (s generated) ReplayDeadLetter(context.Context, openapi.ReplayDeadLetterRequestObject) (openapi.ReplayDeadLetterResponseObject, error) {
	return nil, pending()
}

func (s generated) ExtendEvents(context.Context, openapi.ExtendEventsRequestObject) (openapi.ExtendEventsResponseObject, error) {
	return nil, pending()
}

func (s generated) ListSubscriptionMembers(context.Context, openapi.ListSubscriptionMembersRequestObject) (openapi.ListSubscriptionMembersResponseObject, error) {
	return nil, pending()
}

func (s generated) JoinSubscription(context.Context, openapi.JoinSubscriptionRequestObject) (openapi.JoinSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) LeaveSubscription(context.Context, openapi.LeaveSubscriptionRequestObject) (openapi.LeaveSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) HeartbeatSubscription(context.Context, openapi.HeartbeatSubscriptionRequestObject) (openapi.HeartbeatSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) NackEvents(context.Context, openapi.NackEventsRequestObject) (openapi.NackEventsResponseObject, error) {
	return nil, pending()
}

func (s generated) PauseSubscription(context.Context, openapi.PauseSubscriptionRequestObject) (openapi.PauseSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) ResumeSubscription(context.Context, openapi.ResumeSubscriptionRequestObject) (openapi.ResumeSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) SeekSubscription(context.Context, openapi.SeekSubscriptionRequestObject) (openapi.SeekSubscriptionResponseObject, error) {
	return nil, pending()
}

func (s generated) CreateTicket(context.Context, openapi.CreateTicketRequestObject) (openapi.CreateTicketResponseObject, error) {
	return nil, pending()
}
