// Package openapi is the HTTP contract in Go: the types and handler signatures that are generated from openapi.yaml at
// the module's root, and the contract itself, a copy of that file. Register connects the operations with their
// handlers.
package openapi

import _ "embed"

// Answers have their properties in the contract's order, which people prefer: id comes first.
//
//go:generate cp ../../openapi.yaml openapi.yaml
//go:generate cp ../../asyncapi.yaml asyncapi.yaml
//go:generate go run -C ../../tools ./propertyorder ../openapi.yaml ../api/openapi/ordered.yaml
//go:generate go tool -modfile=../../tools/go.mod oapi-codegen -config server.yaml ordered.yaml
//go:generate rm ordered.yaml

// YAML is the contract as it is served at /openapi.yaml.
//
//go:embed openapi.yaml
var YAML []byte

// AsyncYAML is the contract of WebSocket messages, as it is served at /asyncapi.yaml.
//
//go:embed asyncapi.yaml
var AsyncYAML []byte
