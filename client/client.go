// Package client calls Manifold's HTTP API. It is generated from openapi.yaml: a method for each operation, which
// gives the *http.Response as it comes, and in ClientWithResponses one that reads and decodes it.
//
// Reading a long answer (export, or events as NDJSON) calls for the plain Client, whose response body is a stream.
package client

import (
	"context"
	"net/http"
)

//go:generate go run -C ../tools ./propertyorder ../openapi.yaml ../client/ordered.yaml
//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config client.yaml ordered.yaml
//go:generate rm ordered.yaml

// WithKey makes a client send the key with each request.
func WithKey(key string) ClientOption {
	return WithRequestEditorFn(func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+key)
		return nil
	})
}
