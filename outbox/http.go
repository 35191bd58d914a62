package outbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Limits of a request, below those of the service.
const (
	requestRows  = 1000
	requestBytes = 4 << 20
)

// HTTP publishes to a Manifold service over its API. It may be used by many goroutines.
type HTTP struct {
	url    string
	key    string
	client *http.Client
}

// NewHTTP returns a publisher for the service at an address such as https://manifold.example.com. The key needs
// events:append for the published topics. If client is nil, requests may take half a minute.
func NewHTTP(service, key string, client *http.Client) (*HTTP, error) {
	u, err := url.Parse(service)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("outbox: %q is not a service's URL such as https://manifold.example.com", service)
	}
	if key == "" {
		return nil, errors.New("outbox: key missing")
	}
	if client == nil {
		client = &http.Client{Timeout: 30 * time.Second}
	}
	return &HTTP{url: strings.TrimSuffix(service, "/") + "/v1/publish", key: key, client: client}, nil
}

// Publish implements Config.Publish: it publishes rows in one request, all or none.
func (h *HTTP) Publish(ctx context.Context, rows []Row) error {
	size := 2
	for _, row := range rows {
		size += len(row.Message) + len(row.ID) + len(`"id":"",,`)
	}
	body := append(make([]byte, 0, size), '[')
	for i, row := range rows {
		if i > 0 {
			body = append(body, ',')
		}
		body = appendMessage(body, row)
	}
	body = append(body, ']')
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+h.key)
	response, err := h.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer %s: %w", response.Status, err)
	case response.StatusCode == http.StatusOK, response.StatusCode == http.StatusCreated:
		// Any other server at a wrong address has not published them.
		var published struct{ Events []struct{ Position int64 } }
		if json.Unmarshal(answer, &published) != nil || len(published.Events) != len(rows) {
			return fmt.Errorf("the answer %s is not from Manifold: %.200q", response.Status, answer)
		}
		return nil
	}
	var problem struct{ Code, Detail, Where string }
	if json.Unmarshal(answer, &problem) != nil || problem.Code == "" {
		return fmt.Errorf("the service answered %s: %.200q", response.Status, answer)
	}
	reason := problem.Code
	if problem.Where != "" {
		reason += " at " + problem.Where
	}
	reason += ": " + problem.Detail
	if refuses(problem.Code) {
		return &RefusedError{Reason: reason}
	}
	return errors.New(reason)
}

// appendMessage appends a row's message. If a producer has left out the message's id, it is the row's.
func appendMessage(body []byte, row Row) []byte {
	var message struct{ ID json.RawMessage }
	members, isObject := bytes.CutPrefix(bytes.TrimLeft(row.Message, " \t\r\n"), []byte("{"))
	if json.Unmarshal(row.Message, &message) != nil || message.ID != nil || !isObject {
		return append(body, row.Message...)
	}
	body = append(body, `{"id":"`+row.ID+`"`...)
	if bytes.TrimLeft(members, " \t\r\n")[0] != '}' {
		body = append(body, ',')
	}
	return append(body, members...)
}

// refuses reports whether a code is about the rows, so that sending them again cannot help. Every other error, about
// the key, the tenant or the service, may be temporary, and affects all rows alike.
func refuses(code string) bool {
	switch domain.Code(code) {
	case domain.CodeInvalidRequest, domain.CodeInvalidJSON, domain.CodeDuplicateID, domain.CodeTooLarge, domain.CodeForbidden,
		domain.CodeEventIDConflict, domain.CodePartialDuplicate, domain.CodeRefused:
		return true
	}
	return false
}

// RefusedError says that rows were refused because of their content. Any of them may be the cause. Each row alone may
// be accepted: the service also refuses a request that combines new rows with ones that it already has.
type RefusedError struct {
	Reason string // for people
}

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Reason }
