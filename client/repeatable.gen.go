// Code generated from openapi.yaml by tools/clientgen. DO NOT EDIT.

package client

// repeatable has the operations, besides GET, PUT and DELETE, that may be sent again after a lost answer. The value
// says whether that takes an Idempotency-Key.
var repeatable = map[string]bool{
	"POST /v1/streams/{streamId}/events": true,
	"POST /v1/append":                    true,
	"POST /v1/publish":                   true,
	"POST /v1/query":                     false,
	"POST /v1/aggregates/preview":        false,
	"POST /v1/aggregates/{category}/{id}/commands/{command}":   true,
	"POST /v1/projections/preview":                             false,
	"POST /v1/projections/plan":                                false,
	"POST /v1/projections/{name}/catch-up":                     false,
	"POST /v1/projections/{name}/retry":                        false,
	"POST /v1/projections/{name}/rebuilds/{rebuildId}/cancel":  false,
	"POST /v1/projections/{name}/rebuilds/{rebuildId}/approve": false,
	"POST /v1/projections/{name}/rebuilds/{rebuildId}/pause":   false,
	"POST /v1/projections/{name}/rebuilds/{rebuildId}/resume":  false,
	"POST /v1/schemas/{type}/check":                            false,
	"POST /v1/upcasters/preview":                               false,
	"POST /v1/tickets":                                         false,
	"POST /v1/subscriptions/{name}/receive":                    false,
	"POST /v1/subscriptions/{name}/ack":                        false,
	"POST /v1/subscriptions/{name}/ack/{eventId}":              false,
	"POST /v1/subscriptions/{name}/nack":                       false,
	"POST /v1/subscriptions/{name}/extend":                     false,
	"POST /v1/subscriptions/{name}/seek":                       false,
	"POST /v1/subscriptions/{name}/pause":                      false,
	"POST /v1/subscriptions/{name}/resume":                     false,
	"POST /v1/subjects/{subjectId}/erase":                      false,
	"POST /v1/erasures/{erasureId}/approve":                    false,
	"POST /v1/erasures/{erasureId}/cancel":                     false,
	"POST /v1/webhooks/{name}/pause":                           false,
	"POST /v1/webhooks/{name}/resume":                          false,
	"PATCH /v1/tenants/{tenantId}":                             false,
}
