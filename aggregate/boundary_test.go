package aggregate

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// courses is an aggregate whose students subscribe to courses within limits of both: the example of dcb.events.
func courses() Definition {
	commands, err := ParseCommands(json.RawMessage(`{
		"Define": {"emit": [{"CourseDefined": "{'capacity': command.capacity}", "tags": "['course:' + id]"}]},
		"Subscribe": {
			"boundary": {
				"course": {
					"query": [{"tags": "['course:' + id]"}],
					"initial": {"capacity": 0, "students": 0},
					"on": {
						"CourseDefined": "merge(state, {'capacity': event.data.capacity})",
						"StudentSubscribed": "merge(state, {'students': state.students + 1})"
					}
				},
				"student": {
					"query": [{"types": ["StudentSubscribed"], "tags": "['student:' + command.student]"}],
					"initial": {"courses": []},
					"on": {"*": "merge(state, {'courses': state.courses + [event.data.course]})"}
				}
			},
			"require": [
				{"if": "!(id in boundary.student.courses)", "reject": "twice"},
				{"if": "boundary.course.students < boundary.course.capacity", "reject": "full", "message": "string(boundary.course.students) + ' students'"},
				{"if": "boundary.student.courses.size() < 3", "reject": "busy"}
			],
			"emit": [{"StudentSubscribed": "{'course': id}", "stream": "'student-' + command.student", "tags": "['student:' + command.student, 'course:' + id]"}]
		},
		"Rename": {
			"boundary": {"names": {"query": [{"tags": "['name:' + command.name]"}], "initial": {"taken": false}, "on": {"CourseRenamed": "{'taken': true}"}}},
			"require": [{"if": "!boundary.names.taken", "reject": "taken"}, {"if": "state.name != command.name", "reject": "same"}],
			"emit": [{"CourseRenamed": "{'name': command.name}", "tags": "['name:' + command.name]"}]
		}
	}`))
	if err != nil {
		panic(err)
	}
	return Definition{
		Category: "course", Initial: json.RawMessage(`{"name": ""}`),
		On: map[string]string{"CourseRenamed": `merge(state, {"name": event.data.name})`}, Commands: commands,
	}
}

// students returns who subscribed to each course, and to how many courses each student did, by the log.
func students(t testing.TB, s *watched, tenant domain.TenantID) (ofCourse map[string][]string, ofStudent map[string]int) {
	t.Helper()
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 1000})
	must(t, err)
	ofCourse, ofStudent = make(map[string][]string), make(map[string]int)
	for _, e := range events {
		if e.Type == "StudentSubscribed" {
			var data struct{ Course string }
			must(t, json.Unmarshal(e.Data, &data))
			student := domain.Key(e.Stream)
			ofCourse[data.Course] = append(ofCourse[data.Course], student)
			ofStudent[student]++
		}
	}
	return ofCourse, ofStudent
}

// inBothForms runs a test with courses whose commands are declared, and with deciders in Go.
func inBothForms(t *testing.T, processes int, test func(t *testing.T, s *watched, tenant domain.TenantID, all []*Commands)) {
	t.Parallel()
	for _, inGo := range []bool{false, true} {
		t.Run(map[bool]string{false: "declared", true: "in Go"}[inGo], func(t *testing.T) {
			t.Parallel()
			s, _, tenant := begin(t, false)
			definition, all := courses(), make([]*Commands, processes)
			for i := range all {
				if all[i] = process(t, s); inGo {
					registerCourses(t, all[i])
					definition = withoutCommands("Subscribe", "Rename")
				}
			}
			must(t, all[0].states.Put(t.Context(), tenant, definition))
			test(t, s, tenant, all)
		})
	}
}

// However many subscribe at once, in two processes, no limit is exceeded, and nobody is rejected without reason.
func TestBoundaryHoldsUnderRaces(t *testing.T) { inBothForms(t, 2, testBoundaryHoldsUnderRaces) }

func testBoundaryHoldsUnderRaces(t *testing.T, s *watched, tenant domain.TenantID, both []*Commands) {
	const capacity, atOnce, courseCount, studentCount = 4, 12, 5, 6
	for course := range courseCount {
		_, err := send(t, both[0], tenant, Command{Stream: fmt.Sprintf("course-%d", course), Name: "Define", Data: json.RawMessage(fmt.Sprintf(`{"capacity": %d}`, capacity))})
		must(t, err)
	}
	var mu sync.Mutex
	rejected := make(map[string][][2]string) // by code: course and student
	accepted := 0
	asks := make(chan [2]int, courseCount*studentCount*2)
	for course := range courseCount {
		for student := range studentCount {
			asks <- [2]int{course, student}
			asks <- [2]int{course, student} // twice
		}
	}
	close(asks)
	var racing sync.WaitGroup
	for i := range atOnce {
		racing.Go(func() {
			for ask := range asks {
				course, student := fmt.Sprint(ask[0]), fmt.Sprint(ask[1])
				_, err := send(t, both[i%2], tenant, Command{Stream: "course-" + course, Name: "Subscribe", Data: json.RawMessage(`{"student": "` + student + `"}`)})
				mu.Lock()
				if problem, ok := err.(*domain.Error); ok && problem.Code == domain.CodeRejected {
					rejected[problem.Reason] = append(rejected[problem.Reason], [2]string{course, student})
				} else if accepted++; err != nil {
					t.Error(err)
				}
				mu.Unlock()
			}
		})
	}
	racing.Wait()
	ofCourse, ofStudent := students(t, s, tenant)
	total := 0
	for course, list := range ofCourse {
		total += len(list)
		slices.Sort(list)
		if len(list) > capacity || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("course %s has %q", course, list)
		}
	}
	for student, n := range ofStudent {
		if n > 3 {
			t.Errorf("student %s has %d courses", student, n)
		}
	}
	if total != accepted || accepted == 0 {
		t.Errorf("%d were accepted, there are %d", accepted, total)
	}
	for code, list := range rejected {
		for _, ask := range list {
			course, student := ask[0], ask[1]
			if code == "full" && len(ofCourse[course]) < capacity || code == "busy" && ofStudent[student] < 3 || code == "twice" && !slices.Contains(ofCourse[course], student) {
				t.Errorf("student %s was rejected from course %s: %s", student, course, code)
			}
		}
	}
}

// While a process serves a boundary, a command reads nothing, and does not depend on the version of its own stream.
func TestHotBoundariesAreNotRead(t *testing.T) { inBothForms(t, 1, testHotBoundariesAreNotRead) }

func testHotBoundariesAreNotRead(t *testing.T, s *watched, tenant domain.TenantID, all []*Commands) {
	c := all[0]
	_, err := send(t, c, tenant, Command{Stream: "course-1", Name: "Define", Data: json.RawMessage(`{"capacity": 9}`)})
	must(t, err)
	subscribe := func(student, key string) (Outcome, error) {
		return send(t, c, tenant, Command{Stream: "course-1", Name: "Subscribe", Key: key, Data: json.RawMessage(`{"student": "` + student + `"}`)})
	}
	_, err = subscribe("a", "")
	must(t, err)
	before := s.DB.App.Stat().AcquireCount()
	_, err = subscribe("a", "")
	wantRejected(t, "the second time", err, "twice")
	if n := s.DB.App.Stat().AcquireCount() - before; n > 5 {
		t.Errorf("a rejection used %d connections, want those for the definition, the head and each query", n)
	}
	// The queries of another student are new, so send them once first.
	_, err = send(t, c, tenant, Command{Stream: "course-2", Name: "Subscribe", Data: json.RawMessage(`{"student": "b"}`)})
	wantRejected(t, "an unknown course", err, "full")
	before = s.DB.App.Stat().AcquireCount()
	got, err := subscribe("b", "")
	if err != nil || got.Kind != Accepted || got.State != nil || len(got.Events) != 1 || !slices.Equal(got.Events[0].Tags, []string{"course:1", "student:b"}) {
		t.Errorf("the outcome is %+v, %v", got, err)
	}
	if n := s.DB.App.Stat().AcquireCount() - before; n != 1 {
		t.Errorf("a command used %d connections, want one, for its append", n)
	}
	// Others append what concerns the boundary, and what does not.
	for _, tag := range []string{"course:1", "course:7"} {
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "course-1", Expected: domain.Any, Events: []domain.NewEvent{
			{Type: "CourseDefined", Data: json.RawMessage(`{"capacity": 3}`), Tags: []string{tag}},
		}}}})
		must(t, err)
	}
	_, err = subscribe("c", "key")
	must(t, err)
	_, err = subscribe("d", "")
	wantRejected(t, "the new limit", err, "full")
	// The key's command was accepted, although it would be rejected now.
	again, err := subscribe("c", "key")
	if err != nil || !again.Duplicate || len(again.Events) != 1 || again.Events[0].Stream != "student-c" {
		t.Errorf("the key gives %+v, %v", again, err)
	}
}

// A boundary beside the stream's state: both must be the newest.
func TestBoundaryBesideTheState(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c, other := process(t, s), process(t, s)
	must(t, c.states.Put(t.Context(), tenant, courses()))
	rename := func(c *Commands, course, name string) (Outcome, error) {
		return send(t, c, tenant, Command{Stream: "course-" + course, Name: "Rename", Data: json.RawMessage(`{"name": "` + name + `"}`)})
	}
	got, err := rename(c, "1", "Go")
	wantOutcome(t, "a name", got, err, Accepted, 1, `{"name":"Go"}`)
	_, err = rename(other, "2", "Go")
	wantRejected(t, "the same name", err, "taken")
	got, err = rename(other, "2", "SQL")
	wantOutcome(t, "another name", got, err, Accepted, 1, `{"name":"SQL"}`)
	got, err = rename(other, "1", "Rust") // c does not know
	wantOutcome(t, "a new name", got, err, Accepted, 2, `{"name":"Rust"}`)
	_, err = rename(c, "1", "SQL")
	wantRejected(t, "a name that another process gave", err, "taken")
	got, err = rename(c, "1", "C")
	wantOutcome(t, "the next name", got, err, Accepted, 3, `{"name":"C"}`)
	dry, err := send(t, c, tenant, Command{Stream: "course-1", Name: "Rename", Data: json.RawMessage(`{"name": "SQL"}`), DryRun: true, Explain: true})
	if err != nil || dry.Kind != Rejected || string(dry.Rules[0].Values[0].Value) != "true" {
		t.Errorf("a dry run gives %+v, %v", dry, err)
	}
}

// Events that retention has removed count for a minute at most.
func TestBoundariesAreReadAgainAfterAMinute(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, courses()))
	rename := Command{Stream: "course-1", Name: "Rename", Data: json.RawMessage(`{"name": "Go"}`)}
	_, err := send(t, c, tenant, rename)
	must(t, err)
	rename.Stream = "course-2"
	_, err = send(t, c, tenant, rename)
	wantRejected(t, "the same name", err, "taken")
	s.db.Remove(t, tenant, "course", 1)
	hot := c.hot.tenants[tenant].streams
	for _, key := range hot.Keys() {
		state, _ := hot.Peek(key)
		state.since = state.since.Add(-boundaryAge)
		hot.Add(key, state)
	}
	_, err = send(t, c, tenant, rename)
	must(t, err)
}

// A trial decides as the service does, boundaries included.
func TestTrialsHaveBoundaries(t *testing.T) {
	t.Parallel()
	s, _, _ := begin(t, false)
	c := process(t, s)
	trial, err := NewTrial(t.Context(), courses(), nil)
	must(t, err)
	rapid.Check(t, func(r *rapid.T) {
		tenant := domain.NewTenantID()
		must(r, c.states.Put(t.Context(), tenant, courses()))
		one := func(what string) string { return rapid.SampledFrom([]string{"1", "2"}).Draw(r, what) }
		for range rapid.IntRange(1, 6).Draw(r, "commands") {
			command := Command{Stream: "course-" + one("course"), DryRun: true, Explain: true}
			switch command.Name = rapid.SampledFrom([]string{"Define", "Subscribe", "Subscribe", "Rename"}).Draw(r, "command"); command.Name {
			case "Define":
				command.Data = json.RawMessage(`{"capacity": ` + one("capacity") + `}`)
			case "Subscribe":
				command.Data = json.RawMessage(`{"student": "` + one("student") + `"}`)
			case "Rename":
				command.Data = json.RawMessage(`{"name": "` + one("name") + `"}`)
			}
			want, wantErr := send(r, c, tenant, command)
			logged, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 100})
			must(r, err)
			got, err := trial.Run(t.Context(), domain.Key(command.Stream), logged, &TrialCommand{Name: command.Name, Data: command.Data, Now: time.Now()})
			if err != nil || wantErr != nil || !reflect.DeepEqual(*got.Outcome, want) {
				r.Fatalf("the trial decides %+v, %v, the service %+v, %v", got.Outcome, err, want, wantErr)
			}
			command.DryRun, command.Explain = false, false
			if _, err := send(r, c, tenant, command); err != nil && code(err) != domain.CodeRejected {
				r.Fatal(err)
			}
		}
	})
}

// What the tags of a command's boundary and events must be, and how much a boundary may read.
func TestBoundariesThatCannotBeRead(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	c := process(t, s)
	for _, tried := range []struct{ tags, emit, says string }{
		{`[]`, "", "commands.C.boundary.b.query[0].tags: the command cannot be decided: there are 0 tags; 1 to 10 are possible"},
		{`[1]`, "", "tag 0 is an int; tags are strings"},
		{`["a b"]`, "", `the tag has ' ' at byte 2`},
		{`["1","2","3","4","5","6","7","8","9","10","11"]`, "", "there are 11 tags; 1 to 10 are possible"},
		{`["a"]`, `["` + strings.Repeat("x", 101) + `"]`, "commands.C.emit[0].tags: the command cannot be decided: the tag has 101 bytes"},
		{`["a"]`, `lists.range(33).map(n, string(n))`, "the event has 33 tags; at most 32 are allowed"},
	} {
		must(t, states.Put(t.Context(), tenant, Definition{Category: "a", On: map[string]string{"*": "state"}, Commands: map[string]CommandDefinition{"C": {
			Boundary: map[string]BoundaryDefinition{"b": {Query: []BoundaryItem{{Tags: tried.tags}}, On: map[string]string{"*": "state"}}},
			Emit:     []Emission{{Type: "A", Data: "1", Tags: tried.emit}},
		}}}))
		fresh := process(t, s)
		_, err := send(t, fresh, tenant, Command{Stream: "a-1", Name: "C"})
		if code(err) != domain.CodeFaulted || !strings.Contains(err.Error(), tried.says) {
			t.Errorf("%s %s: got %v, want %q", tried.tags, tried.emit, err, tried.says)
		}
	}
	must(t, c.states.Put(t.Context(), tenant, courses()))
	events := make([]domain.NewEvent, 1000)
	for i := range events {
		events[i] = domain.NewEvent{Type: "StudentSubscribed", Data: json.RawMessage(`{"course": "2"}`), Tags: []string{"course:1"}}
	}
	for range maxBoundaryEvents/len(events) + 2 {
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "student-1", Expected: domain.Any, Events: events}}})
		must(t, err)
	}
	if _, err := send(t, c, tenant, Command{Stream: "course-1", Name: "Subscribe", Data: json.RawMessage(`{"student": "1"}`)}); code(err) != domain.CodeTooCostly {
		t.Errorf("a boundary of too many events gives %v", err)
	}
}
