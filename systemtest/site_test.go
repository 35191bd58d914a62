package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/client"
)

// site is where requests go: one or several processes over one database.
type site interface {
	// address returns the address of the nth process, or of another one if that is down. If all are down, it waits
	// for one.
	address(ctx context.Context, n int) (string, error)
}

// fixed is a process that never goes down.
type fixed string

func (f fixed) address(context.Context, int) (string, error) { return string(f), nil }

// services are processes that come and go.
type services []*service

func (s services) address(ctx context.Context, n int) (string, error) {
	for i := range s {
		address, up := s[(n+i)%len(s)].state()
		select {
		case <-up:
			return address, nil
		default:
		}
	}
	for {
		address, up := s[n%len(s)].state()
		select {
		case <-up:
			return address, nil
		case <-time.After(50 * time.Millisecond): // another one may be up
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		n++
	}
}

// user calls a site with a key. It may be used concurrently.
type user struct {
	site site
	key  string
	http *http.Client
}

func newUser(t testing.TB, at site, key string) user {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	return user{at, key, &http.Client{Transport: transport}}
}

// answer is a response that was read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// code is a problem's code.
func (a answer) code() string {
	var p client.Problem
	if json.Unmarshal(a.body, &p) != nil {
		return ""
	}
	return p.Code
}

func (a answer) String() string { return fmt.Sprintf("%d %.1000s", a.status, a.body) }

// decode reads an answer that must have the status.
func (a answer) decode(status int, to any) error {
	if a.status != status {
		return fmt.Errorf("answered %s; %d was expected", a, status)
	}
	return json.Unmarshal(a.body, to)
}

// once sends a request to the nth process. A body other than []byte is sent as JSON. A connection that breaks, even
// in the middle of an answer, is an error.
func (u user) once(ctx context.Context, n int, method, path string, body any, header ...string) (answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 40*time.Second, errors.New("no answer in 40 s"))
	defer cancel()
	address, err := u.site.address(ctx, n)
	if err != nil {
		return answer{}, err
	}
	content, raw := body.([]byte)
	if !raw && body != nil {
		if content, err = json.Marshal(body); err != nil {
			return answer{}, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, bytes.NewReader(content))
	if err != nil {
		return answer{}, err
	}
	if u.key != "" {
		request.Header.Set("Authorization", "Bearer "+u.key)
	}
	if content != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	response, err := u.http.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, got}, err
}

// call repeats a request until it is answered with something else than "not now". Only such may be called that can be
// repeated.
func (u user) call(ctx context.Context, n int, method, path string, body any, header ...string) (answer, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no answer in %s", patience))
	defer cancel()
	for ; ; n++ {
		a, err := u.once(waiting, n, method, path, body, header...)
		if err == nil && a.status != http.StatusServiceUnavailable && a.status != http.StatusTooManyRequests {
			return a, nil
		}
		select {
		case <-waiting.Done():
			return answer{}, fmt.Errorf("%s %s: %w; at last: %w, %s", method, path, context.Cause(waiting), err, a)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// must is call for requests that are not part of the tested property: the test ends if they fail.
func (u user) must(t testing.TB, status int, to any, method, path string, body any, header ...string) {
	t.Helper()
	a, err := u.call(t.Context(), 0, method, path, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	if to == nil {
		if a.status != status {
			t.Fatalf("%s %s: %s", method, path, a)
		}
		return
	}
	if err := a.decode(status, to); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
}

// newTenant creates a tenant with a key with all scopes.
func newTenant(t testing.TB, operator user, name string) (id string, tenant user) {
	t.Helper()
	var made client.Tenant
	operator.must(t, 201, &made, "POST", "/v1/tenants", client.NewTenant{Name: name})
	var key client.CreatedKey
	operator.must(t, 201, &key, "POST", "/v1/tenants/"+made.Id+"/keys", client.NewKey{Name: "all", Scopes: tenantScopes()})
	tenant = operator
	tenant.key = key.Key
	return made.Id, tenant
}

func tenantScopes() []string {
	var scopes []string
	for _, scope := range auth.TenantScopes {
		scopes = append(scopes, string(scope))
	}
	return scopes
}

// next is the path of the next page, "" where there is none.
func (a answer) next() string {
	link := a.header.Get("Link")
	path, found := strings.CutSuffix(strings.TrimPrefix(link, "<"), `>; rel="next"`)
	if !found {
		return ""
	}
	return path
}

// documents reads all documents of a projection, page by page, once it has seen the log up to minPosition.
func (u user) documents(ctx context.Context, name string, pageSize int, minPosition int64) ([]client.Document, error) {
	path := fmt.Sprintf("/v1/projections/%s/documents?pageSize=%d", name, pageSize)
	if minPosition > 0 {
		path += fmt.Sprintf("&minPosition=%d&timeout=30", minPosition)
	}
	var all []client.Document
	for path != "" {
		a, err := u.call(ctx, 0, "GET", path, nil)
		if err != nil {
			return nil, err
		}
		var page client.DocumentList
		if err := a.decode(200, &page); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, page.Documents...)
		path = a.next()
	}
	return all, nil
}
