// Package client calls Manifold's HTTP API. Types and operations are generated from openapi.yaml: Client has a method
// for each operation, which returns the *http.Response unread, and Read decodes it.
//
// Around these, WithKey and WithKeys give requests a credential, WithRetries sends them again, ProblemError is a
// refusal, Follow iterates over events as they are appended, Pages and Documents over pages of lists, and Consume
// handles the events of a group. README.md shows each.
//
// Use the plain methods to read long answers (an export, or events as NDJSON), since their response body is a stream.
// ClientWithResponses has methods that also read and decode the response.
package client

import (
	"context"
	"net/http"
)

//go:generate go run -C ../tools ./propertyorder ../openapi.yaml ../client/ordered.yaml
//go:generate go tool -modfile=../tools/go.mod oapi-codegen -config client.yaml ordered.yaml
//go:generate rm ordered.yaml
//go:generate go run -C ../tools ./clientgen ../openapi.yaml ../client/typescript/src/api.gen.ts ../client/repeatable.gen.go

// WithKey makes a client send the key with each request.
func WithKey(key string) ClientOption {
	return WithKeys(func(context.Context) (string, error) { return key, nil })
}

// WithKeys makes a client ask for the key or token of each request, for credentials that change. The function may be
// called concurrently.
func WithKeys(current func(ctx context.Context) (key string, err error)) ClientOption {
	return WithRequestEditorFn(func(ctx context.Context, request *http.Request) error {
		key, err := current(ctx)
		if err == nil {
			request.Header.Set("Authorization", "Bearer "+key)
		}
		return err
	})
}
