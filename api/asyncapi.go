package api

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"regexp"
	"strconv"
	"sync"

	"github.com/goccy/go-yaml"
	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/schema"
)

const (
	// maxEventContractBytes limits how much longer references make the schemas of an event contract.
	maxEventContractBytes = 8 << 20
	// eventContractForm is a part of the tag. Raise it when describeEvents writes something else than before.
	eventContractForm = 1
)

// asyncContractJSON is asyncapi.yaml as JSON.
var asyncContractJSON = sync.OnceValues(func() ([]byte, error) { return yaml.YAMLToJSON(openapi.AsyncYAML) })

// eventContract is GET /v1/asyncapi.json: asyncapi.yaml with a message for each event type that has a schema. It does
// not use the generated code, because it may answer 304.
func (s *Server) eventContract(c echo.Context, caller access.Caller) error {
	request, header := c.Request(), c.Response().Header()
	revision, err := s.config.Schemas.Revision(request.Context(), caller.Tenant)
	if err != nil {
		return err
	}
	header.Set("Cache-Control", "private, no-cache") // caches may store it, but must revalidate it each time
	protocol, form := "ws", fnv.New64a()
	if request.TLS != nil || request.Header.Get("X-Forwarded-Proto") == "https" {
		protocol = "wss"
	}
	fmt.Fprintf(form, "%d %s %s %s", eventContractForm, protocol, request.Host, openapi.AsyncYAML)
	setTag := func(revision int64) string {
		tag := fmt.Sprintf(`"%x-%d"`, form.Sum64(), revision)
		header.Set("ETag", tag)
		return tag
	}
	if noneMatches(request.Header.Values("If-None-Match"), setTag(revision)) {
		return c.NoContent(http.StatusNotModified)
	}
	contents, err := s.config.Schemas.Contents(request.Context(), caller.Tenant)
	if err != nil {
		return err
	}
	setTag(contents.Revision)
	bytes := 0
	for _, of := range contents.Types {
		for _, version := range of.Versions {
			bytes += len(version.Schema)
		}
	}
	var text []byte
	err = s.config.Schemas.Work(request.Context(), caller.Tenant, bytes, func() (err error) {
		text, err = describeEvents(contents, protocol, request.Host)
		return err
	})
	if err != nil {
		return err
	}
	return c.Blob(http.StatusOK, "application/json", text)
}

// describeEvents returns an AsyncAPI document of a tenant's events, for the service at a host.
func describeEvents(contents schema.Contents, protocol, host string) ([]byte, error) {
	text, err := asyncContractJSON()
	if err != nil {
		return nil, err
	}
	var document struct {
		AsyncAPI           string                    `json:"asyncapi"`
		Info               map[string]any            `json:"info"`
		DefaultContentType string                    `json:"defaultContentType"`
		Servers            map[string]map[string]any `json:"servers"`
		Channels           map[string]map[string]any `json:"channels"`
		Operations         map[string]any            `json:"operations"`
		Components         map[string]map[string]any `json:"components"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	document.Info["title"] = "Events"
	document.Info["version"] = strconv.FormatInt(contents.Revision, 10)
	document.Info["description"] = "The events of a tenant, with a message for each event type that has a schema; and the protocol of the WebSockets " +
		"over which they are followed and published. Events of other types are the message `event`.\n\n" + fmt.Sprint(document.Info["description"])
	server := document.Servers["local"]
	server["description"] = "The service that returned this document."
	server["host"], server["protocol"] = host, protocol
	document.Servers = map[string]map[string]any{"service": server}

	schemas, messages := document.Components["schemas"], document.Components["messages"]
	grown, keys := 0, make(map[string]bool)
	var followed []any // the channels' messages
	for _, channel := range []string{"followAll", "followStream", "followCategory"} {
		followed = append(followed, document.Channels[channel]["messages"])
	}
	for _, of := range contents.Types {
		key := componentKey(of.Name, keys)
		var versions []any
		for i := len(of.Versions) - 1; i >= 0; i-- { // the newest first
			name := fmt.Sprintf("data.%s.%d", key, of.Versions[i].Number)
			pointer := "/components/schemas/" + name + "/schema"
			moved, more, err := schema.Relocate(of.Versions[i].Schema, pointer)
			if err != nil {
				return nil, fmt.Errorf("version %d of the schema of %s: %w", of.Versions[i].Number, of.Name, err)
			}
			if grown += more; grown > maxEventContractBytes {
				return nil, domain.Errorf(domain.CodeTooLarge, "", "with the references of all schemas, the document has more than %d bytes; remove schemas that are no longer needed", maxEventContractBytes)
			}
			schemas[name] = jsonSchema(moved)
			versions = append(versions, object{"$ref": "#" + pointer})
		}
		event := "event." + key
		schemas[event] = jsonSchema(object{
			"allOf":      []any{object{"$ref": "#/components/schemas/Event"}},
			"properties": object{"type": object{"const": of.Name}, "data": object{"anyOf": versions}},
		})
		messages[event] = object{
			"name": of.Name, "title": of.Name,
			"payload": jsonSchema(object{
				"type": "object", "required": []string{"event"}, "additionalProperties": false,
				"properties": object{"event": object{"$ref": "#/components/schemas/" + event + "/schema"}},
			}),
		}
		for _, channel := range followed {
			channel.(map[string]any)[event] = object{"$ref": "#/components/messages/" + event}
		}
	}
	if len(contents.Rules) > 0 {
		categories := make([]string, len(contents.Rules))
		for i, rule := range contents.Rules {
			categories[i] = rule.Category
		}
		document.Channels["followCategory"]["parameters"].(map[string]any)["category"].(map[string]any)["examples"] = categories
	}
	return json.Marshal(document)
}

// object is a JSON object.
type object = map[string]any

// jsonSchema says in AsyncAPI that a schema is of JSON Schema 2020-12, not AsyncAPI's own kind.
func jsonSchema(of any) object {
	return object{"schemaFormat": "application/schema+json;version=2020-12", "schema": of}
}

var notInKeys = regexp.MustCompile(`[^A-Za-z0-9._-]`)

// componentKey returns an event type's name as a key of components. Different types get different keys.
func componentKey(eventType string, taken map[string]bool) string {
	name := notInKeys.ReplaceAllString(eventType, "-")
	key := name
	for i := 2; taken[key]; i++ {
		key = name + "-" + strconv.Itoa(i)
	}
	taken[key] = true
	return key
}
