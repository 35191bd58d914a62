package schema_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
	"github.com/manifold-es/manifold/upcasting"
)

// open returns the schemas of a process on a database.
func open(t testing.TB, s *tables.Tables, violated func(mode string, events int)) *schema.Schemas {
	t.Helper()
	upcasters, err := upcasting.New(s.Registry, s.Log, nil)
	if err != nil {
		t.Fatal(err)
	}
	schemas, err := schema.New(schema.Config{Store: s.SchemaTables, Events: s.Log, Upcasters: upcasters, Violated: violated})
	if err != nil {
		t.Fatal(err)
	}
	return schemas
}

func placed(stream, data string) domain.Append {
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{Type: "Placed", Data: json.RawMessage(data)}}}}}
}

func put(t testing.TB, schemas *schema.Schemas, tenant domain.TenantID, eventType, text string) {
	t.Helper()
	if _, _, err := schemas.Put(t.Context(), tenant, schema.Put{Type: eventType, Schema: json.RawMessage(text), By: "test"}); err != nil {
		t.Fatal(err)
	}
}

func rule(t testing.TB, schemas *schema.Schemas, tenant domain.TenantID, mode schema.Mode) {
	t.Helper()
	if _, err := schemas.SetRule(t.Context(), tenant, schema.Rule{Category: "order", Mode: mode, By: "test"}); err != nil {
		t.Fatal(err)
	}
}

// A change is in force at once in its process, and after its notice in others.
func TestChangesReachOtherProcesses(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenWith(t, db, func(*tables.Config) {})
	tenant := tablestest.NewTenant(t, s)
	here, there := open(t, s, nil), open(t, other, nil)
	noticed := make(chan domain.TenantID, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var listening sync.WaitGroup
	listening.Go(func() {
		_ = other.ListenSchemas(ctx, func(of domain.TenantID) {
			there.Notice(of)
			noticed <- of
		})
	})
	defer listening.Wait()
	defer cancel()
	<-noticed // it listens
	valid := func(of *schema.Schemas, want bool) {
		t.Helper()
		if _, err := of.Validate(t.Context(), tenant, placed("order-1", `{"n": "x"}`)); (err == nil) != want {
			t.Errorf("the event is accepted: %v", err)
		}
	}
	valid(here, true)
	valid(there, true)
	put(t, here, tenant, "Placed", `{"properties": {"n": {"type": "integer"}}}`)
	<-noticed
	rule(t, here, tenant, schema.ModeEnforce)
	valid(here, false)
	<-noticed
	valid(there, false)
	if _, _, err := here.Put(t.Context(), tenant, schema.Put{Type: "Placed", Schema: json.RawMessage(`{}`), Compatibility: schema.NoCompatibility}); err != nil {
		t.Fatal(err)
	}
	valid(here, true)
	<-noticed
	valid(there, true)
}

// Validation needs no query once a tenant's schemas are known.
func TestValidationNeedsNoQuery(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant, none := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
	schemas := open(t, s, nil)
	put(t, schemas, tenant, "Placed", `{"type": "object"}`)
	rule(t, schemas, tenant, schema.ModeEnforce)
	process := tablestest.OpenWith(t, db, func(*tables.Config) {})
	cached := open(t, process, nil)
	for range 2 {
		for _, of := range []domain.TenantID{tenant, none} {
			if _, err := cached.Validate(t.Context(), of, placed("order-1", `{}`)); err != nil {
				t.Fatal(err)
			}
		}
		process.DB.Close() // the second time there is no database
	}
	_, err := cached.Validate(t.Context(), domain.NewTenantID(), placed("order-1", `{}`))
	if err == nil {
		t.Error("a tenant that is not in memory was validated without a database")
	}
}

// Two changes of a type at once never lose one, and a tenant's limits hold.
func TestConcurrentPuts(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	schemas := open(t, s, nil)
	var group sync.WaitGroup
	var added atomic.Int64
	for i := range 8 {
		group.Go(func() {
			_, _, err := schemas.Put(t.Context(), tenant, schema.Put{Type: "Placed", Schema: json.RawMessage(fmt.Sprintf(`{"title": "%d"}`, i)), By: "test"})
			switch {
			case err == nil:
				added.Add(1)
			case !domain.IsCode(err, domain.CodeConflict):
				t.Error(err)
			}
		})
	}
	group.Wait()
	found, err := schemas.Get(t.Context(), tenant, "Placed")
	if err != nil || int64(len(found.Versions)) != added.Load() {
		t.Errorf("%d versions were added, there are %d, %v", added.Load(), len(found.Versions), err)
	}
	large := `{"description": "` + strings.Repeat("a", 60_000) + `"}`
	for i := 0; ; i++ {
		_, _, err := schemas.Put(t.Context(), tenant, schema.Put{Type: fmt.Sprintf("Type%d", i), Schema: json.RawMessage(large)})
		if domain.IsCode(err, domain.CodeQuotaExceeded) && i > 30 {
			break
		}
		if err != nil || i > 40 {
			t.Fatalf("after %d types: %v", i, err)
		}
	}
}

// A type that others add and remove meanwhile is read with its versions or not at all.
func TestGetDuringDeletes(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	schemas := open(t, s, nil)
	ctx, stop := context.WithCancel(t.Context())
	var changing sync.WaitGroup
	for range 2 {
		changing.Go(func() {
			for ctx.Err() == nil {
				_, _, err := schemas.Put(t.Context(), tenant, schema.Put{Type: "Placed", Schema: json.RawMessage("true")})
				for _, err := range []error{err, schemas.Delete(t.Context(), tenant, "Placed")} {
					if err != nil && !domain.IsCode(err, domain.CodeNotFound) && !domain.IsCode(err, domain.CodeConflict) {
						t.Error(err)
					}
				}
			}
		})
	}
	defer changing.Wait()
	defer stop()
	for range 2000 {
		switch found, err := schemas.Get(t.Context(), tenant, "Placed"); {
		case err == nil && len(found.Versions) == 0:
			t.Fatal("a type without versions was read")
		case err != nil && !domain.IsCode(err, domain.CodeNotFound):
			t.Fatal(err)
		}
	}
}

// An event that takes too long to check is refused, or with warn accepted as a violation.
func TestCostlyEvents(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	counted := map[string]int{}
	schemas := open(t, s, func(mode string, events int) { counted[mode] += events })
	put(t, schemas, tenant, "Placed", `{"items": {"allOf": [`+strings.TrimSuffix(strings.Repeat(`{"minimum": 0},`, 1000), ",")+`]}}`)
	rule(t, schemas, tenant, schema.ModeEnforce)
	event := placed("order-1", "["+strings.TrimSuffix(strings.Repeat("1,", 10_000), ",")+"]")
	if _, err := schemas.Append(t.Context(), tenant, event); !domain.IsCode(err, domain.CodeTooCostly) {
		t.Errorf("a costly event: %v", err)
	}
	// One that merely takes longer waits for its turn.
	if _, err := schemas.Append(t.Context(), tenant, placed("order-1", "["+strings.TrimSuffix(strings.Repeat("1,", 100), ",")+"]")); err != nil {
		t.Error(err)
	}
	rule(t, schemas, tenant, schema.ModeWarn)
	appended, err := schemas.Append(t.Context(), tenant, event)
	if err != nil || appended.Violations != 1 || counted["warn"] != 1 || counted["enforce"] != 0 {
		t.Errorf("with warn: %d violations, %v; counted %v", appended.Violations, err, counted)
	}
}

// A check of all events continues where the last one ended.
func TestCheckAllStoredEvents(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	schemas := open(t, s, nil)
	put(t, schemas, tenant, "Counted", `true`)
	const events = schema.CheckLooks + 500
	for i := 0; i < events; i += 500 {
		tablestest.Append(t, s, tenant, tablestest.Counted(fmt.Sprintf("order-%d", i), domain.None, 500))
	}
	checked, invalid, calls := 0, 0, 0
	for from := int64(1); from > 0; calls++ {
		result, err := schemas.Check(t.Context(), tenant, schema.Check{Type: "Counted", Schema: json.RawMessage(`{"properties": {"n": {"maximum": 499}}}`), Source: schema.Source{From: from}})
		if err != nil {
			t.Fatal(err)
		}
		checked, invalid, from = checked+result.Events, invalid+result.Invalid, result.Next
	}
	if checked != events || invalid != events/500 || calls != 2 {
		t.Errorf("%d events were checked in %d calls, %d are invalid", checked, calls, invalid)
	}
}

// No schema and no event makes the service fail.
func FuzzSchemas(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type": "object", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"pattern": "^a"}}}`, `{"a": "b"}`},
		{`{"if": {"minimum": 1e300}, "then": false, "unevaluatedItems": {"uniqueItems": true}}`, `[[1, 1.0]]`},
		{`{"$anchor": "x", "items": {"$ref": "#x"}, "multipleOf": 0.1}`, `[[[1e-5]]]`},
		{`{"$ref": "#/%7E1~1"}`, `null`},
		{`{"enum": [{"b": 1, "a": [1e2]}], "patternProperties": {"": true}}`, `{"a": [100], "b": 1}`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, text, data string) {
		compiled, err := schema.Compile([]byte(text))
		if err != nil {
			return
		}
		schema.TryForTest(compiled, data)
	})
}

// BenchmarkAppend compares appends of a category without a rule with those of an enforced one.
func BenchmarkAppend(b *testing.B) {
	s := tablestest.OpenWith(b, pgtest.Database(b), func(*tables.Config) {})
	tenant := domain.NewTenantID()
	schemas := open(b, s, nil)
	put(b, schemas, tenant, "Placed", schema.OrderSchema)
	rule(b, schemas, tenant, schema.ModeEnforce)
	for _, category := range []string{"other", "order"} {
		b.Run(map[string]string{"other": "off", "order": "enforce"}[category], func(b *testing.B) {
			b.SetParallelism(32)
			var client atomic.Int64
			b.RunParallel(func(p *testing.PB) {
				stream := fmt.Sprintf("%s-%d", category, client.Add(1))
				for p.Next() {
					if _, err := schemas.Append(b.Context(), tenant, placed(stream, schema.OrderEvent)); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// Each version has its own personal fields, also an older one. Those of another version never count: their fields may
// be elsewhere.
func TestPersonalFieldsBelongToAVersion(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant, schemas := tablestest.NewTenant(t, s), open(t, s, nil)
	ctx := t.Context()
	change := func(put schema.Put) error {
		put.Type, put.By, put.Compatibility = "Placed", "test", schema.Compatibility(map[bool]string{true: "none"}[put.Schema != nil])
		_, _, err := schemas.Put(ctx, tenant, put)
		return err
	}
	fields := func(pointers ...string) *[]string { return &pointers }
	want := func(when string, fields ...[]string) {
		t.Helper()
		personal, err := s.Personal(ctx, tenant)
		tablestest.Must(t, err)
		for i, pointers := range append([][]string{fields[len(fields)-1]}, fields...) { // events without a version are of the newest form here
			if got := personal("Placed", int64(i)); !slices.Equal(got, pointers) {
				t.Errorf("%s, an event that names version %d has the personal fields %q; want %q", when, i, got, pointers)
			}
		}
		if got := personal("Placed", int64(len(fields)+1)); got != nil {
			t.Errorf("%s, a version that does not exist has the personal fields %q", when, got)
		}
	}
	tablestest.Must(t, change(schema.Put{Schema: json.RawMessage(`{"title": "1"}`)}))
	tablestest.Must(t, change(schema.Put{Schema: json.RawMessage(`{"title": "2"}`), Personal: fields("/email")}))
	want("after a version with fields", nil, []string{"/email"})
	tablestest.Must(t, change(schema.Put{Version: 1, Personal: fields("/mail")}))
	want("after a change of the older one", []string{"/mail"}, []string{"/email"})
	tablestest.Must(t, change(schema.Put{Schema: json.RawMessage(`{"title": "3"}`)}))
	want("after a further version", []string{"/mail"}, []string{"/email"}, []string{"/email"})
	tablestest.Must(t, change(schema.Put{Version: 2, Personal: fields()}))
	want("after they are removed from one", []string{"/mail"}, nil, []string{"/email"})

	tablestest.WantCode(t, change(schema.Put{Version: 4, Personal: fields("/a")}), domain.CodeNotFound)
	tablestest.WantCode(t, change(schema.Put{Version: 1}), domain.CodeInvalidRequest)
	tablestest.WantCode(t, change(schema.Put{Version: 1, Personal: fields("mail")}), domain.CodeInvalidRequest)
	tablestest.WantCode(t, change(schema.Put{Version: 1, Personal: fields("/a"), Schema: json.RawMessage(`true`)}), domain.CodeInvalidRequest)
}
