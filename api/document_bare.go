package api

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/domain"
)

// headerPosition says up to which position an answer's body is current.
const headerPosition = "Manifold-Position"

// snap is GET and HEAD /v1/snap/{projection}/{key}: a document without any wrapper, for caches and simple clients. It
// does not use the generated code, because it sends the stored bytes as they are.
func (s *Server) snap(c echo.Context, caller access.Caller) error {
	request := c.Request()
	name := c.Param("projection")
	key := c.Param("key")
	minPosition, err := integer(c.QueryParams(), "minPosition")
	if err != nil {
		return err
	}
	var timeout *int
	if text := c.QueryParam("timeout"); text != "" {
		seconds, err := strconv.Atoi(text)
		if err != nil {
			return domain.Errorf(domain.CodeInvalidRequest, "query timeout", "%q is not a number of seconds", domain.Clip(text, 40))
		}
		timeout = &seconds
	}
	document, err := s.config.Projections.Document(request.Context(), caller.Tenant, name, key, freshness(&minPosition, timeout))
	if err != nil {
		return inSnap(err)
	}
	tag := snapTag(document)
	header := c.Response().Header()
	header.Set("ETag", tag)
	header.Set("Cache-Control", "private, no-cache") // caches may store it, but must revalidate it each time
	header.Set(headerPosition, strconv.FormatInt(document.Version, 10))
	if noneMatches(request.Header.Values("If-None-Match"), tag) {
		return c.NoContent(http.StatusNotModified)
	}
	return c.Blob(http.StatusOK, "application/json", document.Data)
}

// inSnap changes an error's parameter names to those of this operation.
func inSnap(err error) error {
	if e, ok := errors.AsType[*domain.Error](err); ok {
		switch e.Where {
		case "name":
			e.Where = "projection"
		case "id":
			e.Where = "key"
		}
	}
	return err
}

// snapTag returns a tag for the current state of a document. The position alone is not enough: a rebuild can make a
// different document from the same events.
func snapTag(document domain.Document) string {
	hash := sha256.Sum256(document.Data)
	return `"` + strconv.FormatInt(document.Version, 10) + "-" + hex.EncodeToString(hash[:8]) + `"`
}

// noneMatches reports whether an If-None-Match names the tag or is *. Tags are compared weakly, as RFC 9110 requires
// (section 13.1.2).
func noneMatches(values []string, tag string) bool {
	for _, value := range values {
		for item := range strings.SplitSeq(value, ",") { // these tags contain no comma
			item = strings.TrimSpace(item)
			if item == "*" || strings.TrimPrefix(item, "W/") == tag {
				return true
			}
		}
	}
	return false
}
