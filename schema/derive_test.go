package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
	"github.com/manifold-es/manifold/upcasting"
)

// retagging returns the schemas of a process that retags a millisecond after a change, and how to know of its progress.
func retagging(t testing.TB, s *tables.Tables) (*schema.Schemas, *upcasting.Upcasters) {
	t.Helper()
	upcasters, err := upcasting.New(s.Registry, s.Log, nil)
	tablestest.Must(t, err)
	schemas, err := schema.New(schema.Config{
		Store: s.SchemaTables, Events: s.Log, Upcasters: upcasters, Settle: time.Millisecond, Owns: func(domain.TenantID) bool { return true },
	})
	tablestest.Must(t, err)
	return schemas, upcasters
}

// derives sets the expression for the tags of a type, which gets a schema if it has none.
func derives(t testing.TB, schemas *schema.Schemas, tenant domain.TenantID, eventType, expression string) {
	t.Helper()
	_, _, err := schemas.Put(t.Context(), tenant, schema.Put{Type: eventType, Schema: json.RawMessage(`{}`), Tags: &expression, By: "test"})
	tablestest.Must(t, err)
}

func event(eventType, data string, tags ...string) domain.NewEvent {
	return domain.NewEvent{ID: domain.NewEventID(), Type: eventType, Data: json.RawMessage(data), Tags: tags}
}

func to(stream string, events ...domain.NewEvent) domain.Append {
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}}
}

// tagsInLog returns the tags of a log's events, by position, as they are read and as queries find them.
func tagsInLog(t testing.TB, s *tables.Tables, tenant domain.TenantID) map[int64][]string {
	t.Helper()
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{Limit: 1 << 20})
	tablestest.Must(t, err)
	byTag, all := map[string][]int64{}, map[int64][]string{}
	for _, e := range events {
		all[e.Position] = e.Tags
		for _, tag := range e.Tags {
			byTag[tag] = append(byTag[tag], e.Position)
		}
	}
	for tag, want := range byTag {
		var got []int64
		found, _, err := s.ReadMatching(t.Context(), tenant, domain.MatchQuery{Query: domain.Query{{Tags: []string{tag}}}, Limit: 1 << 20})
		tablestest.Must(t, err)
		for _, e := range found {
			got = append(got, e.Position)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the tag %s is found at %v, and the events at %v have it", tag, got, want)
		}
	}
	return all
}

// rowsOfTags returns how many lines and rows the tables of tags have.
func rowsOfTags(t testing.TB, db pgtest.DB, tenant domain.TenantID) (lines, rows int) {
	t.Helper()
	err := db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), `
		select (select count(*) from manifold.event_tags cross join lateral string_to_table(tags, e'\n') as line where tenant_id = $1 and line <> ''),
		(select count(*) from manifold.tagged_events where tenant_id = $1)`, tenant).Scan(&lines, &rows)
	tablestest.Must(t, err)
	return lines, rows
}

func TestAppendsGetDerivedTags(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant, other := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	schemas, _ := retagging(t, s)
	derives(t, schemas, tenant, "Placed", `'customer:' + event.data.customer`)
	request := to("order-1", event("Placed", `{"customer": "ann"}`), event("Placed", `{"customer": "bob"}`, "customer:bob", "z"), event("Other", `{}`), event("Placed", `{"customer": "cy"}`, "a"))
	given := slices.Clone(request.Streams[0].Events)
	for _, of := range []domain.TenantID{tenant, other} {
		_, err := schemas.Append(t.Context(), of, request)
		tablestest.Must(t, err)
	}
	for i, e := range request.Streams[0].Events {
		if !slices.Equal(e.Tags, given[i].Tags) || e.Derived != nil {
			t.Errorf("the caller's event %d was changed to %+v", i, e)
		}
	}
	want := map[int64][]string{1: {"customer:ann"}, 2: {"customer:bob", "z"}, 3: nil, 4: {"a", "customer:cy"}}
	if got := tagsInLog(t, s, tenant); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the tags are %v, want %v", got, want)
	}
	if got := tagsInLog(t, s, other); fmt.Sprint(got) != fmt.Sprint(map[int64][]string{1: nil, 2: {"customer:bob", "z"}, 3: nil, 4: {"a"}}) {
		t.Errorf("the other tenant's tags are %v", got)
	}
	if lines, rows := rowsOfTags(t, db, tenant); lines != 3 || rows != 5 {
		t.Errorf("%d lines and %d rows of tags; want 3 and 5", lines, rows)
	}
	// To be derived twice changes nothing.
	tagger, err := schemas.Tagger(t.Context(), tenant)
	tablestest.Must(t, err)
	once, err := tagger(t.Context(), request)
	tablestest.Must(t, err)
	twice, err := tagger(t.Context(), once)
	tablestest.Must(t, err)
	if fmt.Sprint(once) != fmt.Sprint(twice) {
		t.Errorf("once %v, twice %v", once, twice)
	}
	// A condition sees them.
	condition := to("order-2", event("Placed", `{"customer": "dee"}`))
	condition.Conditions = []domain.Condition{{FailIfEventsMatch: domain.Query{{Types: []string{"Placed"}, Tags: []string{"customer:ann"}}}}}
	_, err = schemas.Append(t.Context(), tenant, condition)
	tablestest.Problem(t, err, domain.CodeConditionFailed)
	// Without the derivation, the tags of an earlier call go.
	_, _, err = schemas.Put(t.Context(), tenant, schema.Put{Type: "Placed", Tags: new(string), By: "test"})
	tablestest.Must(t, err)
	if tagger, err := schemas.Tagger(t.Context(), tenant); err != nil || tagger != nil {
		t.Errorf("the tenant's schemas derive tags; %v", err)
	}
	late := event("Placed", `{"customer": "eve"}`)
	late.Tags, late.Derived = []string{"customer:eve", "z"}, []string{"customer:eve"}
	appended, err := schemas.Append(t.Context(), tenant, to("order-3", late))
	tablestest.Must(t, err)
	if got := tagsInLog(t, s, tenant)[appended.Position]; !slices.Equal(got, []string{"z"}) {
		t.Errorf("the tags are %v, want [z]", got)
	}
}

func TestUnderivableTagsRefuseTheAppend(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	schemas, _ := retagging(t, s)
	early := to("order-1", event("Placed", `{"n": 1}`))
	_, err := schemas.Append(t.Context(), tenant, early)
	tablestest.Must(t, err)
	derives(t, schemas, tenant, "Placed", `event.data.tags`)
	many := make([]string, 31)
	for i := range many {
		many[i] = fmt.Sprintf("t%02d", i)
	}
	for data, want := range map[string]string{
		`{"n": 1}`: "tags", `{"tags": "a b"}`: `' '`, `{"tags": 1}`: "tags are a string", `{"tags": ["x", "y"]}`: "more than 32 tags", `{"tags": ["x", null]}`: "tag 1 is",
	} {
		request := to("order-2", event("Other", `{}`), event("Placed", data, many...))
		_, err := schemas.Append(t.Context(), tenant, request)
		problem := tablestest.Problem(t, err, domain.CodeSchemaViolation)
		if problem.Where != "events[1].data" || !strings.Contains(problem.Message, want) || len(problem.Violations) != 1 || problem.Violations[0].Rule != "tags" {
			t.Errorf("%s: %s: %s, %+v; want %s", data, problem.Where, problem.Message, problem.Violations, want)
		}
		if _, err := schemas.Validate(t.Context(), tenant, request); err == nil {
			t.Errorf("%s is valid", data)
		}
	}
	if appended, err := schemas.Append(t.Context(), tenant, early); err != nil || !appended.Duplicate {
		t.Errorf("a repeated append is answered %+v, %v", appended, err)
	}
	appended, err := schemas.AppendAnyway(t.Context(), tenant, to("order-3", event("Placed", `{"tags": "ok"}`, "a"), event("Placed", `{}`, "b")))
	if err != nil || appended.Position != 3 {
		t.Fatalf("%+v, %v", appended, err)
	}
	if got := tagsInLog(t, s, tenant); fmt.Sprint(got) != fmt.Sprint(map[int64][]string{1: nil, 2: {"a", "ok"}, 3: {"b"}}) {
		t.Errorf("the tags are %v", got)
	}
}

func TestPutChecksExpressionsForTags(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	schemas, _ := retagging(t, s)
	try := func(of schema.Put) error {
		of.Type, of.By = "Placed", "test"
		_, _, err := schemas.Put(t.Context(), tenant, of)
		return err
	}
	valid, invalid, empty := `event.data.x`, `event.position`, ""
	tablestest.Problem(t, try(schema.Put{Tags: &valid}), domain.CodeNotFound)
	tablestest.Problem(t, try(schema.Put{}), domain.CodeInvalidRequest)
	problem := tablestest.Problem(t, try(schema.Put{Schema: json.RawMessage(`{}`), Tags: &invalid}), domain.CodeInvalidDefinition)
	if problem.Where != "tags" || !strings.Contains(problem.Message, "line 1, column") {
		t.Errorf("%s: %s", problem.Where, problem.Message)
	}
	tablestest.Must(t, try(schema.Put{Schema: json.RawMessage(`{}`), Tags: &valid}))
	tablestest.Must(t, try(schema.Put{Schema: json.RawMessage(`{"type": "object"}`), Compatibility: schema.NoCompatibility}))
	of, err := schemas.Get(t.Context(), tenant, "Placed")
	if err != nil || of.Tags != valid || len(of.Versions) != 2 || of.Retagging == nil || of.Retagging.State != schema.RetagWaiting {
		t.Errorf("the type is %+v, %v", of, err)
	}
	tablestest.Must(t, try(schema.Put{Tags: &empty}))
	of, err = schemas.Get(t.Context(), tenant, "Placed")
	if err != nil || of.Tags != "" || len(of.Versions) != 2 {
		t.Errorf("the type is %+v, %v", of, err)
	}
	long := strings.Repeat(" ", 16_000) + "null"
	for i := range 200 {
		eventType := fmt.Sprintf("T%d", i)
		_, _, err = schemas.Put(t.Context(), tenant, schema.Put{Type: eventType, Schema: json.RawMessage(`{}`), Tags: &long, By: "test"})
		if err != nil {
			break
		}
	}
	tablestest.Problem(t, err, domain.CodeQuotaExceeded)
}

// Tags are derived from events in their newest form, before the append and afterwards.
func TestTagsAreDerivedFromUpcastEvents(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	schemas, upcasters := retagging(t, s)
	_, _, err := upcasters.Put(t.Context(), domain.Upcaster{Owner: tenant, Type: "Placed", Version: 1, Expression: `{'customer': {'id': event.data.customer}}`, By: "test"})
	tablestest.Must(t, err)
	derives(t, schemas, tenant, "Placed", `'customer:' + event.data.customer.id`)
	renewed := event("Placed", `{"customer": {"id": "bob"}}`)
	renewed.Metadata = json.RawMessage(`{"schemaVersion": 2}`)
	_, err = schemas.Append(t.Context(), tenant, to("order-1", event("Placed", `{"customer": "ann"}`), renewed))
	tablestest.Must(t, err)
	if got := tagsInLog(t, s, tenant); fmt.Sprint(got) != fmt.Sprint(map[int64][]string{1: {"customer:ann"}, 2: {"customer:bob"}}) {
		t.Errorf("the tags are %v", got)
	}
	// An upcaster that needs what only the append determines cannot run before it.
	_, _, err = upcasters.Put(t.Context(), domain.Upcaster{Owner: tenant, Type: "Late", Version: 1, Expression: `{'at': event.recordedAt}`, By: "test"})
	tablestest.Must(t, err)
	late, _ := retagging(t, s)
	derives(t, late, tenant, "Late", `'x'`)
	_, err = late.Append(t.Context(), tenant, to("order-1", event("Late", `{}`)))
	tablestest.Problem(t, err, domain.CodeSchemaViolation)
}

// A tenant without derivations needs no query, nor a copy of its requests.
func TestTenantsWithoutDerivationsPayNothing(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	process := tablestest.OpenWith(t, db, func(*tables.Config) {})
	schemas := open(t, process, nil)
	put(t, schemas, tenant, "Placed", `{}`)
	request := to("order-1", event("Placed", `{}`))
	for range 2 {
		if _, err := schemas.Validate(t.Context(), tenant, request); err != nil {
			t.Fatal(err)
		}
		process.DB.Close() // the second time there is no database
	}
}

// run runs a process's retagging until the test ends, or stop is called.
func run(t testing.TB, schemas *schema.Schemas) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := schemas.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}
