// Package client calls Manifold's HTTP API. It is generated from openapi.yaml. Client has a method for each
// operation, which returns the *http.Response unread. ClientWithResponses has methods that also read and decode the
// response.
//
// Use the plain Client to read long answers (an export, or events as NDJSON), since its response body is a stream.
package client

import (
	"context"
	"net/http"
)

//go:generate go run -C ../tools ./propertyorder ../openapi.yaml ../client/ordered.yaml
//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config client.yaml ordered.yaml
//go:generate rm ordered.yaml
//go:generate go run -C ../tools ./typescriptclient ../openapi.yaml ../client/typescript/src/api.gen.ts

// WithKey makes a client send the key with each request.
func WithKey(key string) ClientOption {
	return WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+key)
		return nil
	})
}
