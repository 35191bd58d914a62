package eventlog_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// These are the well-known examples of decisions that depend on events of several streams (dcb.events).

// decider decides in one tenant's log.
type decider struct {
	t      *testing.T
	s      *tables.Tables
	tenant domain.TenantID
}

func newDecider(t *testing.T) decider {
	t.Parallel()
	s, _ := tablestest.Open(t)
	return decider{t, s, domain.NewTenantID()}
}

// read returns the events that the items match, and the position up to which they are complete.
func (d decider) read(items ...domain.QueryItem) ([]domain.Event, int64) {
	d.t.Helper()
	head, err := d.s.Head(d.t.Context(), d.tenant)
	tablestest.Must(d.t, err)
	events, _, err := d.s.ReadMatching(d.t.Context(), d.tenant, domain.MatchQuery{Query: items, Before: head.Position + 1, Limit: 1000})
	tablestest.Must(d.t, err)
	return events, head.Position
}

// append appends an event unless a condition fails, and reports whether it did.
func (d decider) append(event domain.NewEvent, conditions ...domain.Condition) bool {
	d.t.Helper()
	_, err := d.s.Append(d.t.Context(), d.tenant, with(to("example-"+event.ID.String(), event), conditions...))
	if err != nil {
		tablestest.Problem(d.t, err, domain.CodeConditionFailed)
	}
	return err == nil
}

func typed(eventType string, tags ...string) domain.QueryItem {
	return domain.QueryItem{Types: []string{eventType}, Tags: tags}
}

func TestUniqueUserName(t *testing.T) {
	d := newDecider(t)
	claim := func(name, from string) bool {
		return d.append(tagged("NameClaimed", "username:"+name, "user:"+from), unless(0, typed("NameClaimed", "username:"+name)))
	}
	for _, c := range []struct {
		name, user string
		want       bool
	}{{"ann", "1", true}, {"ann", "2", false}, {"bob", "2", true}, {"ann", "1", false}} {
		if got := claim(c.name, c.user); got != c.want {
			t.Errorf("user %s claims %s: %t", c.user, c.name, got)
		}
	}
}

func TestCourseEnrolment(t *testing.T) {
	d := newDecider(t)
	const places, courses, students, each = 3, 4, 8, 2
	for course := range courses {
		d.append(tagged("Defined", fmt.Sprintf("course:%d", course)))
	}
	var racing sync.WaitGroup
	for student := range students {
		racing.Go(func() {
			for course := range courses {
				c, s := fmt.Sprintf("course:%d", course), fmt.Sprintf("student:%d", student)
				for done := false; !done; {
					query := []domain.QueryItem{typed("Enrolled", c), typed("Enrolled", s)}
					events, position := d.read(query...)
					taken, attended := 0, 0
					for _, e := range events {
						if slices.Contains(e.Tags, c) {
							taken++
						}
						if slices.Contains(e.Tags, s) {
							attended++
						}
					}
					done = taken == places || attended == each || d.append(tagged("Enrolled", c, s), unless(position, query...))
				}
			}
		})
	}
	racing.Wait()
	events, _ := d.read(typed("Enrolled"))
	counts := make(map[string]int)
	for _, e := range events {
		for _, tag := range e.Tags {
			counts[tag]++
		}
	}
	for course := range courses {
		if n := counts[fmt.Sprintf("course:%d", course)]; n > places {
			t.Errorf("course %d has %d students", course, n)
		}
	}
	for student := range students {
		if n := counts[fmt.Sprintf("student:%d", student)]; n > each {
			t.Errorf("student %d attends %d courses", student, n)
		}
	}
	if len(events) != places*courses { // 12 places, and room for 16
		t.Errorf("%d places are taken, want %d", len(events), places*courses)
	}
}

func TestDynamicPrice(t *testing.T) {
	d := newDecider(t)
	d.append(tagged("PriceChanged", "product:1"))
	_, seen := d.read(typed("PriceChanged", "product:1"))
	order := func() bool {
		return d.append(tagged("Ordered", "product:1"), unless(seen, typed("PriceChanged", "product:1")))
	}
	d.append(tagged("PriceChanged", "product:2"))
	for range 2 {
		if !order() {
			t.Error("the price that was seen is valid, and orders do not disturb each other")
		}
	}
	d.append(tagged("PriceChanged", "product:1"))
	if order() {
		t.Error("the price has changed")
	}
}

func TestGaplessInvoiceNumbers(t *testing.T) {
	d := newDecider(t)
	const clients, each = 4, 5
	var racing sync.WaitGroup
	for range clients {
		racing.Go(func() {
			for range each {
				for done := false; !done; {
					events, position := d.read(typed("InvoiceCreated", "invoices"))
					event := tagged("InvoiceCreated", "invoices")
					event.Data = fmt.Appendf(nil, "%d", len(events)+1)
					done = d.append(event, unless(position, typed("InvoiceCreated", "invoices")))
				}
			}
		})
	}
	racing.Wait()
	events, _ := d.read(typed("InvoiceCreated", "invoices"))
	for i, e := range events {
		var number int
		tablestest.Must(t, json.Unmarshal(e.Data, &number))
		if number != i+1 {
			t.Errorf("invoice %d has the number %d", i+1, number)
		}
	}
	if len(events) != clients*each {
		t.Errorf("there are %d invoices", len(events))
	}
}

func TestOptInToken(t *testing.T) {
	d := newDecider(t)
	d.append(tagged("SignUpRequested", "token:1"))
	var used atomic.Int64
	var racing sync.WaitGroup
	for range 8 {
		racing.Go(func() {
			if d.append(tagged("SignUpConfirmed", "token:1"), unless(0, typed("SignUpConfirmed", "token:1"))) {
				used.Add(1)
			}
		})
	}
	racing.Wait()
	if used.Load() != 1 {
		t.Errorf("the token was used %d times", used.Load())
	}
}

func TestIdempotentImport(t *testing.T) {
	d := newDecider(t)
	for round := range 2 {
		for record := range 5 {
			tag := fmt.Sprintf("record:%d", record)
			if imported := d.append(tagged("Imported", tag), unless(0, tags(tag))); imported != (round == 0) {
				t.Errorf("round %d: record %d is imported: %t", round, record, imported)
			}
		}
	}
	if events, _ := d.read(typed("Imported")); len(events) != 5 {
		t.Errorf("there are %d records", len(events))
	}
}
