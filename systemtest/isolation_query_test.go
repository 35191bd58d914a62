package systemtest

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Two tenants have documents with the same ids and values in the same projections, except for a mark. Whatever one
// requests, by filters, orders, counts and page tokens (even the other's tokens), it gets its own documents or
// nothing.
func TestTenantsAreIsolatedInQueries(t *testing.T) {
	t.Parallel()
	operator := newUser(t, inside(t, configuration(pgtest.Database(t))), operatorKey)
	sides := newSides(t, operator, "acmemark", "umbrellamark")
	definition := func(name string) []byte {
		return fmt.Appendf(nil, `{"name":%q,"on":{"Set":"event.data"},"indexes":["n","mark"]}`, name)
	}
	operator.must(t, 201, nil, "PUT", "/v1/projections/everyones", definition("everyones"))
	const documents = 9
	for _, s := range sides {
		s.must(t, 201, nil, "PUT", "/v1/projections/own", definition("own"))
		for i := range documents {
			event := fmt.Appendf(nil, `[{"type":"Set","data":{"n":%d,"mark":%q,"list":[%q],"mine":{%q:1}}}]`, i%4, s.mark, s.mark, s.mark)
			s.must(t, 201, nil, "POST", fmt.Sprintf("/v1/streams/doc-%d/events", i), event)
		}
	}
	for _, name := range []string{"own", "everyones"} {
		path := "/v1/projections/" + name + "/documents"
		tokens := map[*side][]string{} // for each of the orders
		orders := []string{"", "n", "n desc,mark", "mark,list"}
		for i, s := range sides {
			other := sides[1-i]
			for _, filter := range []string{
				"", "true", "doc.n >= 0", `doc.mark != "x"`, `!(doc.mark in ["x", "y"])`, "has(doc.mark)",
				fmt.Sprintf("doc.mark == %q || doc.mark == %q", s.mark, other.mark), fmt.Sprintf("%q in doc.list || %q in doc.list", s.mark, other.mark),
			} {
				for _, orderBy := range orders {
					s.wantOwn(t, path, filter, orderBy, documents)
				}
			}
			for _, filter := range []string{
				fmt.Sprintf("doc.mark == %q", other.mark), fmt.Sprintf("%q in doc.list", other.mark), fmt.Sprintf("%q in doc.mine", other.mark),
				fmt.Sprintf("has(doc.mine.%s)", other.mark), fmt.Sprintf("doc.mark.startsWith(%q)", other.mark[:3]), fmt.Sprintf("doc.mark.matches(%q)", "^"+other.mark[:3]),
			} {
				s.wantOwn(t, path, filter, "", 0)
			}
			for _, orderBy := range orders {
				a := s.read(t, path, "orderBy", orderBy, "pageSize", "3")
				next, err := url.Parse(a.next())
				if err != nil || a.next() == "" {
					t.Fatalf("there is no further page: %s", a)
				}
				tokens[s] = append(tokens[s], next.Query().Get("pageToken"))
			}
		}
		for i, s := range sides {
			other := sides[1-i]
			for k, orderBy := range orders {
				if a := s.read(t, path, "orderBy", orderBy, "pageSize", "3", "pageToken", tokens[other][k]); a.status != http.StatusBadRequest || strings.Contains(string(a.body), other.mark) {
					t.Errorf("with a token of %s %s is answered %s", other.mark, s.mark, a)
				}
				// A forged token must not work either: one with the place of the other's token, as if it had been
				// issued to this tenant.
				forged := combineTokens(t, tokens[s][k], tokens[other][k])
				if a := s.read(t, path, "orderBy", orderBy, "pageSize", "3", "pageToken", forged); a.status != http.StatusBadRequest || strings.Contains(string(a.body), other.mark) {
					t.Errorf("with a forged token %s is answered %s", s.mark, a)
				}
			}
			// Only the operator may have queries explained. No tenant may, not even for its own queries.
			for _, of := range sides {
				if a := s.read(t, path, "explain", "true", "tenant", of.id); a.status != http.StatusForbidden {
					t.Errorf("%s explains a query of %s: %s", s.mark, of.mark, a)
				}
				if a := s.read(t, path, "tenant", of.id); a.status != http.StatusForbidden {
					t.Errorf("%s names the tenant %s: %s", s.mark, of.mark, a)
				}
			}
			asOperator := *s
			asOperator.user.key = operatorKey
			a := asOperator.read(t, path, "explain", "true", "tenant", s.id, "filter", "doc.n == 1", "orderBy", "n")
			if a.status != http.StatusOK || strings.Contains(string(a.body), s.mark) || strings.Contains(string(a.body), other.mark) || strings.Contains(string(a.body), other.id) {
				t.Errorf("the operator is explained %s", a)
			}
		}
	}
}

// read asks for documents with parameters: name, value, name, value ... Those without a value are left out.
func (s *side) read(t *testing.T, path string, parameters ...string) answer {
	t.Helper()
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		if parameters[i+1] != "" {
			query.Set(parameters[i], parameters[i+1])
		}
	}
	a, err := s.user.call(t.Context(), 0, "GET", path+"?"+query.Encode(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// wantOwn reads all pages and fails the test unless they have so many documents, each the side's own.
func (s *side) wantOwn(t *testing.T, path, filter, orderBy string, want int) {
	t.Helper()
	a := s.read(t, path, "filter", filter, "orderBy", orderBy, "pageSize", "4", "count", "exact", "minPosition", "9", "timeout", "30")
	var ids []string
	for {
		var page client.DocumentList
		if err := a.decode(200, &page); err != nil {
			t.Fatalf("%s, %s by %q: %v", s.mark, filter, orderBy, err)
		}
		if page.Count == nil || *page.Count != int64(want) {
			t.Errorf("%s, %s: the count is %v, want %d", s.mark, filter, page.Count, want)
		}
		for _, document := range page.Documents {
			ids = append(ids, document.Id)
			if !strings.Contains(string(document.Document), s.mark) {
				t.Errorf("%s, %s by %q gives %s, which is not its own", s.mark, filter, orderBy, document.Document)
			}
		}
		next := a.next()
		if next == "" {
			break
		}
		var err error
		if a, err = s.user.call(t.Context(), 0, "GET", next, nil); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != want {
		t.Errorf("%s, %s by %q gives %v, want %d documents", s.mark, filter, orderBy, ids, want)
	}
}

// combineTokens returns a page token with the head of one token, which says where it is valid, and the place of
// another. The numbers of both builds must be small.
func combineTokens(t *testing.T, head, place string) string {
	t.Helper()
	const headBytes = 1 + 1 + 8
	a, errA := base64.RawURLEncoding.DecodeString(head)
	b, errB := base64.RawURLEncoding.DecodeString(place)
	if errA != nil || errB != nil || len(a) <= headBytes || len(b) <= headBytes {
		t.Fatalf("%s and %s are not page tokens (%v, %v)", head, place, errA, errB)
	}
	return base64.RawURLEncoding.EncodeToString(append(a[:headBytes:headBytes], b[headBytes:]...))
}
