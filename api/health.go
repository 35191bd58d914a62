package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

// Check is the state of one dependency of the service.
type Check struct {
	Name string
	Err  error // nil if healthy; shown to everyone, so it must contain no secrets

	// Optional means that the service can serve some requests without it. The check is shown but does not affect
	// readiness.
	Optional bool
}

func (s *Server) livez(c echo.Context, _ access.Caller) error {
	return c.String(http.StatusOK, "ok\n")
}

func (s *Server) readyz(c echo.Context, _ access.Caller) error {
	answer := openapi.Readiness{Ready: true}
	for _, check := range s.config.Ready(c.Request().Context()) {
		message := ""
		if check.Err != nil {
			answer.Ready = answer.Ready && check.Optional
			message = check.Err.Error()
		}
		answer.Checks = append(answer.Checks, openapi.ReadinessCheck{Name: check.Name, Ok: check.Err == nil, Message: message})
	}
	status := http.StatusOK
	if !answer.Ready {
		status = http.StatusServiceUnavailable
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.JSON(status, answer)
}

func (s *Server) metrics(c echo.Context, _ access.Caller) error {
	if s.config.Metrics == nil {
		return domain.Errorf(domain.CodeNotFound, "", "this service has no metrics")
	}
	if s.config.AdminMetrics && !isAdmin(c.Request().Context()) {
		return domain.Errorf(domain.CodeNotFound, "", "metrics are on the admin listener; see admin.listen in the configuration")
	}
	s.config.Metrics.ServeHTTP(c.Response(), c.Request())
	return nil
}

func (s *Server) serveContract(c echo.Context, _ access.Caller) error {
	return c.Blob(http.StatusOK, "application/yaml", openapi.YAML)
}

// serveAsyncContract serves the contract of the WebSocket messages.
func (s *Server) serveAsyncContract(c echo.Context, _ access.Caller) error {
	return c.Blob(http.StatusOK, "application/yaml", openapi.AsyncYAML)
}
