package aggregate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/upcasting"
)

// withoutCommands is courses with its other commands than names, which registerCourses registers.
func withoutCommands(names ...string) Definition {
	d := courses()
	for _, name := range names {
		delete(d.Commands, name)
	}
	return d
}

// registerCourses registers the commands Subscribe and Rename of courses as deciders in Go.
func registerCourses(t testing.TB, c *Commands) {
	t.Helper()
	type course struct{ Capacity, Students int }
	type student struct{ Courses []string }
	type data struct{ Student, Name string }
	read := func(text json.RawMessage) (d data, err error) {
		if err = json.Unmarshal(text, &d); err == nil && d.Student == "nobody" {
			err = &Rejection{Code: "nobody"}
		}
		return d, err
	}
	must(t, c.Register("course", "Subscribe", func(_ context.Context, d Decision) ([]NewEvent, error) {
		var course course
		var student student
		if err := json.Unmarshal(d.Boundary["course"], &course); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(d.Boundary["student"], &student); err != nil {
			return nil, err
		}
		id, asked := domain.Key(d.Stream), data{}
		if err := json.Unmarshal(d.Data, &asked); err != nil || d.State != nil || d.Version != 0 {
			return nil, fmt.Errorf("the decision is %+v, %w", d, err)
		}
		switch {
		case slices.Contains(student.Courses, id):
			return nil, &Rejection{Code: "twice"}
		case course.Students >= course.Capacity:
			return nil, &Rejection{Rule: 1, Code: "full", Message: strconv.Itoa(course.Students) + " students"}
		case len(student.Courses) >= 3:
			return nil, &Rejection{Rule: 2, Code: "busy"}
		}
		return []NewEvent{{
			Stream: "student-" + asked.Student, Type: "StudentSubscribed", Data: json.RawMessage(`{"course":"` + id + `"}`),
			Tags: []string{"student:" + asked.Student, "course:" + id},
		}}, nil
	}, WithoutState(), WithBoundary("course", func(d Decision) (domain.Query, error) {
		return domain.Query{{Types: []string{"StudentSubscribed", "CourseDefined"}, Tags: []string{"course:" + domain.Key(d.Stream)}}}, nil
	}, func(value *course, event NewEvent) error {
		if event.Type == "StudentSubscribed" {
			value.Students++
			return nil
		}
		return json.Unmarshal(event.Data, value)
	}), WithBoundary("student", func(d Decision) (domain.Query, error) {
		asked, err := read(d.Data)
		return domain.Query{{Types: []string{"StudentSubscribed"}, Tags: []string{"student:" + asked.Student}}}, err
	}, func(value *student, event NewEvent) error {
		var data struct{ Course string }
		err := json.Unmarshal(event.Data, &data)
		value.Courses = append(value.Courses, data.Course)
		return err
	})))
	type names struct{ Taken bool }
	must(t, c.Register("course", "Rename", func(_ context.Context, d Decision) ([]NewEvent, error) {
		var names names
		var state, asked data
		if err := json.Unmarshal(d.Boundary["names"], &names); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(d.State, &state); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(d.Data, &asked); err != nil {
			return nil, err
		}
		if names.Taken {
			return nil, &Rejection{Code: "taken"}
		}
		if state.Name == asked.Name {
			return nil, &Rejection{Rule: 1, Code: "same"}
		}
		return []NewEvent{{Type: "CourseRenamed", Data: json.RawMessage(`{"name":"` + asked.Name + `"}`), Tags: []string{"name:" + asked.Name}}}, nil
	}, WithBoundary("names", func(d Decision) (domain.Query, error) {
		asked, err := read(d.Data)
		return domain.Query{{Types: []string{"CourseRenamed"}, Tags: []string{"name:" + asked.Name}}}, err
	}, func(value *names, _ NewEvent) error {
		value.Taken = true
		return nil
	})))
}

// Deciders in Go decide as the commands of a definition do, in two processes.
func TestDecidersDecideAsDefinitions(t *testing.T) {
	t.Parallel()
	s, _, _ := begin(t, false)
	both := []*Commands{process(t, s), process(t, s)}
	for _, c := range both {
		registerCourses(t, c)
	}
	rapid.Check(t, func(r *rapid.T) {
		declared, inGo := domain.NewTenantID(), domain.NewTenantID()
		must(r, both[0].states.Put(t.Context(), declared, courses()))
		must(r, both[0].states.Put(t.Context(), inGo, withoutCommands("Subscribe", "Rename")))
		one := func(what string) string { return rapid.SampledFrom([]string{"1", "2"}).Draw(r, what) }
		for range rapid.IntRange(1, 8).Draw(r, "commands") {
			c := rapid.SampledFrom(both).Draw(r, "process")
			command := Command{Stream: "course-" + one("course"), DryRun: rapid.Bool().Draw(r, "dry")}
			switch command.Name = rapid.SampledFrom([]string{"Define", "Subscribe", "Subscribe", "Rename"}).Draw(r, "command"); command.Name {
			case "Define":
				command.Data = json.RawMessage(`{"capacity": ` + one("capacity") + `}`)
			case "Subscribe":
				command.Data = json.RawMessage(`{"student": "` + one("student") + `"}`)
			case "Rename":
				command.Data = json.RawMessage(`{"name": "` + one("name") + `"}`)
			}
			want, wantErr := send(r, c, declared, command)
			got, err := send(r, c, inGo, command)
			shown := func(o Outcome) string {
				text := fmt.Sprint(o.Kind, o.Version, o.Position, string(o.State), o.Rejected)
				for _, e := range o.Events {
					text += fmt.Sprint(e.Stream, e.Type, string(e.NewEvent.Data), e.Tags, e.Version)
				}
				return text
			}
			if shown(got) != shown(want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				r.Fatalf("%s in Go gives %s, %v; declared %s, %v", command.Name, shown(got), err, shown(want), wantErr)
			}
		}
	})
}

func TestQueriesOfDecidersMayReject(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	registerCourses(t, c)
	must(t, c.states.Put(t.Context(), tenant, withoutCommands("Subscribe", "Rename")))
	for range 2 {
		_, err := send(t, c, tenant, Command{Stream: "course-1", Name: "Subscribe", Key: "k", Data: json.RawMessage(`{"student": "nobody"}`)})
		wantRejected(t, "nobody", err, "nobody")
	}
}

// The fold of a boundary gets events in their newest form, and its errors name the event.
func TestBoundariesOfDecidersFoldUpcastEvents(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	type total struct{ Sum int }
	must(t, c.Register("counter", "Add", func(_ context.Context, d Decision) ([]NewEvent, error) {
		return []NewEvent{{Type: "Added", Data: json.RawMessage(`{"n": ` + string(d.Boundary["total"][len(`{"Sum":`):len(d.Boundary["total"])-1]) + `}`), Tags: []string{"all"}}}, nil
	}, WithBoundary("total", func(Decision) (domain.Query, error) {
		return domain.Query{{Tags: []string{"all"}}}, nil
	}, func(value *total, event NewEvent) error {
		var data struct{ Amount int }
		err := json.Unmarshal(event.Data, &data)
		if data.Amount == 0 && err == nil {
			return fmt.Errorf("no amount in %s", event.Data)
		}
		value.Sum += data.Amount
		return err
	})))
	set, err := upcasting.NewSet([]domain.Upcaster{{Type: "Added", Version: 1, Expression: `{"Amount": event.data.n + 1}`}})
	must(t, err)
	definition := Definition{Category: "counter", On: map[string]string{"*": "state"}}
	must(t, c.states.Put(t.Context(), tenant, definition))
	_, err = send(t, c, tenant, Command{Stream: "counter-1", Name: "Add"})
	if code(err) != domain.CodeFaulted || !strings.Contains(err.Error(), "commands.Add.boundary.total") || !strings.Contains(err.Error(), "no amount in") {
		t.Fatalf("an event that cannot be folded gives %v", err)
	}
	f, ok := c.states.recentFold(tenant, "counter")
	if !ok {
		t.Fatal("the definition is not in memory")
	}
	f.upcasters = set
	f.checked.Store(time.Now().Add(time.Hour).UnixNano())
	for _, want := range []string{`{"n": 0}`, `{"n": 1}`, `{"n": 3}`} {
		got, err := send(t, c, tenant, Command{Stream: "counter-1", Name: "Add"})
		if err != nil || string(got.Events[0].Data) != want {
			t.Fatalf("got %+v, %v; want %s", got, err, want)
		}
	}
}

func TestDecidersThatCannotBeRegistered(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	decide := func(context.Context, Decision) ([]NewEvent, error) { return nil, nil }
	query := func(Decision) (domain.Query, error) { return domain.Query{{Types: []string{"A"}}}, nil }
	good := WithBoundary("b", query, func(*struct{}, NewEvent) error { return nil })
	for _, tried := range []struct {
		options []DeciderOption
		says    string
	}{
		{[]DeciderOption{WithoutState()}, "it has neither state nor boundary"},
		{[]DeciderOption{good, good}, "two boundaries have the name b"},
		{[]DeciderOption{WithBoundary("b-c", query, func(*struct{}, NewEvent) error { return nil })}, "the name has '-'"},
		{[]DeciderOption{WithBoundary("b", query, func(*[]int, NewEvent) error { return nil })}, "the value of boundary b: a document is a JSON object"},
		{slices.Repeat([]DeciderOption{good}, 9), "there are 9 boundaries; at most 8"},
	} {
		if err := c.Register("a", "C", decide, tried.options...); err == nil || !strings.Contains(err.Error(), tried.says) {
			t.Errorf("got %v, want %q", err, tried.says)
		}
	}
	must(t, c.Register("a", "C", decide, good))
	must(t, c.states.Put(t.Context(), tenant, Definition{Category: "a", On: map[string]string{"*": "state"}}))
	if _, err := send(t, c, tenant, Command{Stream: "a-1", Name: "C"}); err == nil || !strings.Contains(err.Error(), "invalid query for b: each item needs tags") {
		t.Errorf("a query without tags gives %v", err)
	}
}
