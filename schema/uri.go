package schema

import (
	"net/url"
	"strconv"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/upcasting"
)

// VersionURI returns a function that returns the URI of the schema version that an event names in its metadata, as the
// API has it: https://events.example.com/v1/schemas/OrderPlaced/versions/2. It is empty for an event that names none,
// or none that a schema can have. The function does not know which schemas a tenant has. publicURL is the service's
// address without a slash at its end; if it is empty, VersionURI returns nil.
func VersionURI(publicURL string) func(event *domain.Event) string {
	if publicURL == "" {
		return nil
	}
	return func(event *domain.Event) string {
		version, ok := upcasting.NamedVersion(event.Metadata)
		if !ok || version > MaxVersions {
			return ""
		}
		return publicURL + "/v1/schemas/" + url.PathEscape(event.Type) + "/versions/" + strconv.FormatInt(version, 10)
	}
}
