package systemtest

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Two tenants have the same events, groups, faults and reports, except for a mark. Reports, alerts, documents that one
// event touches, states of aggregates and documents of a shared projection with totals are their tenant's alone. The
// totals have sums, but no other fields of the documents. A third tenant, which does nothing, sees none of this.
func TestReportsAndTotalsAreIsolated(t *testing.T) {
	t.Parallel()
	operator := newUser(t, inside(t, configuration(pgtest.Database(t))), operatorKey)
	sides := newSides(t, operator, "acmemark", "umbrellamark", "idlemark")
	const orders = `"source":{"categories":["order"]}`
	operator.must(t, 201, nil, "PUT", "/v1/projections/everyone", []byte(`{"name":"everyone",`+orders+`,"on":{"*":"event.data"},"totals":{"sum":["n"]}}`))
	documents := map[string]string{ // definitions of projections, whose documents have the tenant's mark
		"fan":    orders + `,"key":"['a', 'b', event.data.mark]","on":{"*":"event.data"}`,
		"inline": orders + `,"mode":"inline","key":"['a', 'b', event.data.mark]","on":{"*":"event.data"},"indexes":["mark"]`,
		"states": `"aggregate":"order"`,
	}
	for i, s := range sides {
		s.must(t, 200, nil, "PUT", "/v1/reports", []byte(`{"enabled":true}`))
		s.must(t, 200, nil, "PUT", "/v1/aggregates/order", []byte(`{"on":{"*":"event.data"}}`))
		for name, definition := range documents {
			s.must(t, 201, nil, "PUT", "/v1/projections/"+name, fmt.Appendf(nil, `{"name":%q,%s}`, name, definition))
		}
		for name, onError := range map[string]string{"stops": "stop", "parks": "park"} {
			s.must(t, 201, nil, "PUT", "/v1/projections/"+name, fmt.Appendf(nil, `{"name":%q,%s,"onError":%q,"on":{"*":"{'n': 1 + event.data.mark}"}}`, name, orders, onError))
		}
		s.must(t, 201, nil, "PUT", "/v1/subscriptions/work", []byte(`{`+orders+`,"from":"start"}`))
		if s.mark == "idlemark" {
			continue
		}
		s.must(t, 201, nil, "POST", "/v1/streams/order-1/events", fmt.Appendf(nil, `[{"id":%q,"type":"Placed","data":{"n":%d,"mark":%q,"note":"only for %[3]s"}}]`, sharedID, i+1, s.mark))
		s.must(t, 200, nil, "POST", "/v1/subscriptions/work/receive", []byte(`{"wait":30}`))
		s.must(t, 200, nil, "POST", "/v1/subscriptions/work/nack", fmt.Appendf(nil, sharedAnswer+`,"action":"park","reason":"by %s"}`, s.mark))
	}
	active, idle := sides[:2], sides[2]
	get := func(who user, path string) string {
		t.Helper()
		a, err := who.call(t.Context(), 0, "GET", path, nil)
		if err != nil || a.status != http.StatusOK {
			t.Fatalf("GET %s: %s, %v", path, a, err)
		}
		return string(a.body)
	}
	reports := map[string]string{"dlq.work": "EventDeadLettered", "dlq.projection.parks": "DocumentParked", "manifold.alerts": "ProjectionStopped"}
	for _, s := range active {
		for category, report := range reports {
			for !strings.Contains(get(s.user, "/v1/categories/"+category+"/events"), report) {
				pauseBriefly(t.Context()) // a look takes place every few seconds
			}
		}
	}
	for _, s := range sides {
		paths := []string{"/v1/export", "/v1/streams/$all", "/v1/subscriptions/work/dead-letters", "/v1/projections/parks/parked", "/v1/projections/stops/state", "/v1/reports"}
		for category := range reports {
			paths = append(paths, "/v1/categories/"+category+"/events")
		}
		for _, name := range []string{"everyone", "fan", "inline", "states"} {
			list := "/v1/projections/" + name + "/documents?timeout=30"
			if s != idle {
				list += "&minPosition=1"
			}
			paths = append(paths, list, list+"&orderBy=mark", list+"&filter="+url.QueryEscape(`doc.mark >= ""`))
			if s == idle {
				continue
			}
			for _, other := range sides {
				if other == s {
					continue
				}
				if found := get(s.user, list+"&count=exact&filter="+url.QueryEscape(fmt.Sprintf("doc.mark == %q", other.mark))); strings.Contains(found, other.mark) {
					t.Errorf("%s finds documents of %s in %s: %s", s.mark, other.mark, name, found)
				}
				if a, err := s.user.call(t.Context(), 0, "GET", "/v1/projections/"+name+"/documents/"+other.mark, nil); err != nil || a.status != http.StatusNotFound {
					t.Errorf("%s gets a document of %s from %s: %s, %v", s.mark, other.mark, name, a, err)
				}
			}
			if seen := get(s.user, list); !strings.Contains(seen, s.mark) {
				t.Errorf("%s sees none of its documents in %s: %s", s.mark, name, seen)
			}
		}
		for _, path := range paths {
			s.wantNothingOf(t, sides, path, get(s.user, path))
		}
		for _, path := range []string{"/v1/subscribe/categories/dlq.work", "/v1/subscribe/categories/manifold.alerts", "/v1/subscribe/$all"} {
			s.wantNothingOf(t, sides, path, string(s.untilCaughtUp(t, path).body))
		}
		for _, path := range []string{"/v1/admin/totals/everyone", "/v1/admin/projections/everyone/documents"} {
			if a, err := s.user.call(t.Context(), 0, "GET", path, nil); err != nil || a.status != http.StatusForbidden {
				t.Errorf("GET %s by %s: %s, %v", path, s.mark, a, err)
			}
		}
	}
	if log := get(idle.user, "/v1/export"); log != "" {
		t.Errorf("the log of the idle tenant has %s", log)
	}

	var totals client.TotalsPage
	for totals.All.Documents != 2 {
		pauseBriefly(t.Context()) // they follow some seconds after the documents
		operator.must(t, 200, &totals, "GET", "/v1/admin/totals/everyone", nil)
	}
	if totals.All.Sums["n"] != "3" {
		t.Errorf("all documents have the sums %v", totals.All.Sums)
	}
	for i, s := range active {
		var of client.TotalsPage
		operator.must(t, 200, &of, "GET", "/v1/admin/totals/everyone?tenant="+s.id, nil)
		if of.All.Documents != 1 || of.All.Sums["n"] != fmt.Sprint(i+1) {
			t.Errorf("the totals of %s are %+v", s.mark, of.All)
		}
		path := "/v1/admin/projections/everyone/documents?tenant=" + s.id
		listed := get(operator, path)
		s.wantNothingOf(t, sides, path, listed)
		if !strings.Contains(listed, s.mark) {
			t.Errorf("the operator's list for %s is %s", s.mark, listed)
		}
	}
	for _, per := range []string{"tenant", "key", "both"} {
		if page := get(operator, "/v1/admin/totals/everyone?per="+per); strings.Contains(page, "only for") {
			t.Errorf("the totals contain a text of a document: %s", page)
		}
	}
}

// wantNothingOf fails the test if an answer to a side has a mark or an id of another one.
func (s *side) wantNothingOf(t *testing.T, sides []*side, path, answer string) {
	t.Helper()
	for _, other := range sides {
		if other != s && (strings.Contains(answer, other.mark) || strings.Contains(answer, other.id)) {
			t.Errorf("GET %s shows %s what is %s's: %s", path, s.mark, other.mark, answer)
		}
	}
}
