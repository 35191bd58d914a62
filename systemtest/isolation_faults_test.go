package systemtest

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// lagSeconds matches the part of a projection's state that changes by itself.
var lagSeconds = regexp.MustCompile(`"lagSeconds":[^,}]*`)

// Two tenants have the same faults, at the same positions, in shared and in private projections, except for a mark.
// What one tenant or the operator on its behalf does about its faults must not change the other tenant's.
func TestFaultsAreIsolated(t *testing.T) {
	t.Parallel()
	operator := newUser(t, inside(t, configuration(pgtest.Database(t))), operatorKey)
	sides := newSides(t, operator, "acmemark", "umbrellamark")
	definition := func(name, onError string) []byte {
		return fmt.Appendf(nil, `{"name":%q,"onError":%q,"on":{"Set":"{'n': 1 + event.data.n, 'mark': event.data.mark}"}}`, name, onError)
	}
	names := []string{"own-stops", "own-parks", "all-stops", "all-parks"}
	for _, name := range names {
		if strings.HasPrefix(name, "all") {
			operator.must(t, 201, nil, "PUT", "/v1/projections/"+name, definition(name, name[4:len(name)-1]))
		}
	}
	for _, s := range sides {
		for _, name := range names {
			if strings.HasPrefix(name, "own") {
				s.must(t, 201, nil, "PUT", "/v1/projections/"+name, definition(name, name[4:len(name)-1]))
			}
		}
		for _, n := range []string{"1", `"no number"`, "2"} {
			s.must(t, 201, nil, "POST", "/v1/streams/doc-1/events", fmt.Appendf(nil, `[{"type":"Set","data":{"n":%s,"mark":%q}}]`, n, s.mark))
		}
	}
	// view returns what a side sees of its faults, after its projections have come as far as they can.
	view := func(s *side) string {
		t.Helper()
		var seen strings.Builder
		for _, name := range names {
			a, err := s.user.call(t.Context(), 0, "GET", "/v1/projections/"+name+"/documents/doc-1?minPosition=3&timeout=30", nil)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&seen, "%s: %d %s\n", name, a.status, inPassing.ReplaceAll(a.body, nil))
			for _, part := range []string{"state", "skipped", "parked"} {
				a, err := s.user.call(t.Context(), 0, "GET", "/v1/projections/"+name+"/"+part, nil)
				if err != nil {
					t.Fatal(err)
				}
				if a.status != http.StatusOK {
					t.Fatal(a)
				}
				body := lagSeconds.ReplaceAll(a.body, nil)
				fmt.Fprintf(&seen, "%s %s: %s\n", name, part, body)
			}
		}
		if !strings.Contains(seen.String(), s.mark) {
			t.Errorf("%s sees none of its data: %s", s.mark, seen.String())
		}
		return seen.String()
	}
	for i, s := range sides {
		other := sides[1-i]
		before := view(other)
		if strings.Contains(before, s.mark) {
			t.Errorf("%s sees what is %s's: %s", other.mark, s.mark, before)
		}
		view(s)
		var state client.ProjectionState
		s.must(t, 200, &state, "GET", "/v1/projections/all-stops/state", nil)
		if state.State != "faulted" || state.Fault == nil || state.Fault.Position != 2 || !strings.Contains(string(state.Fault.Before), s.mark) {
			t.Fatalf("the state of %s is %+v", s.mark, state)
		}
		for _, name := range names {
			path := "/v1/projections/" + name
			// In the other's name: refused, whatever it is.
			for _, call := range []struct{ method, path, body string }{
				{"POST", "/retry", ""}, {"POST", "/skip", `{"position":2}`}, {"GET", "/skipped", ""}, {"GET", "/parked", ""},
				{"POST", "/parked/replay", ""}, {"POST", "/parked/doc-1/replay", ""}, {"DELETE", "/parked/doc-1", ""},
			} {
				var body any
				if call.body != "" {
					body = []byte(call.body)
				}
				a, err := s.user.call(t.Context(), 0, call.method, path+call.path+"?tenant="+url.QueryEscape(other.id), body)
				if err != nil || a.status != http.StatusForbidden {
					t.Errorf("%s %s of %s by %s: %s, %v", call.method, call.path, other.mark, s.mark, a, err)
				}
			}
			who, query := s.user, ""
			if i == 1 {
				who, query = operator, "?tenant="+s.id
				if strings.HasPrefix(name, "own") {
					who.must(t, 200, nil, "GET", path+"/skipped"+query, nil) // the operator acts for a tenant's own ones, too
				}
			}
			who.must(t, 202, nil, "POST", path+"/retry"+query, nil)
			if strings.HasSuffix(name, "stops") {
				if a, err := s.user.call(t.Context(), 0, "GET", path+"/documents/doc-1?minPosition=3&timeout=30", nil); err != nil || a.status != http.StatusConflict {
					t.Errorf("it does not stand again: %s, %v", a, err)
				}
				who.must(t, 200, nil, "POST", path+"/skip"+query, []byte(`{"position":2,"reason":"by `+s.mark+`"}`))
				continue
			}
			var replayed client.Replayed
			who.must(t, 200, &replayed, "POST", path+"/parked/replay"+query, nil)
			who.must(t, 200, nil, "POST", path+"/parked/doc-1/replay"+query, nil)
			if replayed.StillParked != 1 || replayed.Events != 0 {
				t.Errorf("replayed for %s: %+v", s.mark, replayed)
			}
			who.must(t, 204, nil, "DELETE", path+"/parked/doc-1"+query, nil)
		}
		if after := view(other); after != before {
			t.Errorf("what %s does about its faults changes what %s sees:%s", s.mark, other.mark, changed(before, after))
		}
		var now client.ProjectionState
		s.must(t, 200, &now, "GET", "/v1/projections/all-stops/state", nil)
		if now.Fault != nil {
			t.Errorf("it is still there: %+v", now)
		}
	}
}
