package group_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestGroup(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 5))
	_, err := s.Group(t.Context(), tenant, "mail")
	tablestest.WantCode(t, err, domain.CodeNotFound)
	_, err = s.GroupStatus(t.Context(), tenant, "mail")
	tablestest.WantCode(t, err, domain.CodeNotFound)

	definition := tablestest.GroupDefinition(3)
	made, created, err := s.PutGroup(t.Context(), tenant, "mail", definition, 4)
	tablestest.Must(t, err)
	if !created || made.Name != "mail" || made.Paused || made.CreatedAt.IsZero() || !reflect.DeepEqual(made.GroupDefinition, definition) {
		t.Errorf("made %+v, %v", made, created)
	}
	got, err := s.Group(t.Context(), tenant, "mail")
	if err != nil || !reflect.DeepEqual(got, made) {
		t.Errorf("read %+v, %v; want %+v", got, err, made)
	}
	status, err := s.GroupStatus(t.Context(), tenant, "mail")
	tablestest.Must(t, err)
	want := domain.GroupStatus{Group: made, Head: 5, Partitions: []domain.PartitionStatus{{Checkpoint: 3, ReadTo: 3}, {Partition: 1, Checkpoint: 3, ReadTo: 3}, {Partition: 2, Checkpoint: 3, ReadTo: 3}}}
	if !reflect.DeepEqual(status, want) {
		t.Errorf("the status is %+v, want %+v", status, want)
	}

	same, created, err := s.PutGroup(t.Context(), tenant, "mail", definition, 1)
	if err != nil || created || !reflect.DeepEqual(same, made) {
		t.Errorf("put once more: %+v, %v, %v", same, created, err)
	}
	definition.MaxInFlight, definition.Types = 99, nil
	changed, created, err := s.PutGroup(t.Context(), tenant, "mail", definition, 1)
	tablestest.Must(t, err)
	if created || changed.Revision <= made.Revision || !reflect.DeepEqual(changed.GroupDefinition, definition) || changed.UpdatedAt.Before(made.UpdatedAt) {
		t.Errorf("changed to %+v, %v", changed, created)
	}
	for where, change := range map[string]func(*domain.GroupDefinition){
		"partitions": func(d *domain.GroupDefinition) { d.Partitions = 4 },
		"ordering":   func(d *domain.GroupDefinition) { d.Ordering = domain.OrderingNone },
	} {
		other := definition
		change(&other)
		_, _, err := s.PutGroup(t.Context(), tenant, "mail", other, 1)
		tablestest.WantCode(t, err, domain.CodeConflict)
		if e, _ := errors.AsType[*domain.Error](err); e.Where != where {
			t.Errorf("the place is %q, want %q", e.Where, where)
		}
	}
	_, _, err = s.PutGroup(t.Context(), tenant, "Mail!", definition, 1)
	tablestest.WantCode(t, err, domain.CodeInvalidRequest)

	for _, paused := range []bool{true, true, false} {
		before := changed
		changed, err = s.PauseGroup(t.Context(), tenant, "mail", paused)
		tablestest.Must(t, err)
		if changed.Paused != paused || (changed.Revision > before.Revision) != (before.Paused != paused) {
			t.Errorf("paused: %v; from %+v to %+v", paused, before, changed)
		}
	}
	_, err = s.PauseGroup(t.Context(), tenant, "none", true)
	tablestest.WantCode(t, err, domain.CodeNotFound)
}

func TestGroupsAreListedByName(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.None, 7))
	for i := range 5 {
		tablestest.PutGroup(t, s, tenant, fmt.Sprintf("group-%d", 4-i), i)
	}
	var names []string
	for after := ""; ; {
		page, err := s.Groups(t.Context(), tenant, after, 2)
		tablestest.Must(t, err)
		if len(page) == 0 {
			break
		}
		for _, g := range page {
			names = append(names, g.Name)
			if g.Head != 7 || len(g.Partitions) != max(1, g.Group.GroupDefinition.Partitions) || g.BatchSize != 10 {
				t.Errorf("listed is %+v", g)
			}
		}
		after = page[len(page)-1].Name
	}
	if want := []string{"group-0", "group-1", "group-2", "group-3", "group-4"}; !reflect.DeepEqual(names, want) {
		t.Errorf("listed are %v", names)
	}
}

// If two processes create the same group at once, one creates it, and the others find it.
func TestGroupIsCreatedOnce(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	other := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	var made, conflicts int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			process := s
			if i%2 == 0 {
				process = other
			}
			_, created, err := process.PutGroup(t.Context(), tenant, "mail", tablestest.GroupDefinition(i%3), 1)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case created:
				made++
			case err != nil:
				if tablestest.CodeOf(err) != domain.CodeConflict {
					t.Error(err)
				}
				conflicts++
			}
		})
	}
	wg.Wait()
	if made != 1 || conflicts != 8 {
		t.Errorf("%d made it, %d found another one", made, conflicts)
	}
	status, err := s.GroupStatus(t.Context(), tenant, "mail")
	tablestest.Must(t, err)
	if len(status.Partitions) != max(1, status.Group.GroupDefinition.Partitions) {
		t.Errorf("it has %d ledgers for %d partitions", len(status.Partitions), status.Group.GroupDefinition.Partitions)
	}
}

func TestTenantHasSoManyGroups(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
		insert into manifold.subscriptions (tenant_id, name, definition, revision) select $1, 'made-' || n, '{}', 1 from generate_series(1, $2::int) n`,
		tenant, group.MaxGroups-1)
	tablestest.Must(t, err)
	tablestest.PutGroup(t, s, tenant, "last", 0)
	_, _, err = s.PutGroup(t.Context(), tenant, "another", tablestest.GroupDefinition(0), 1)
	tablestest.WantCode(t, err, domain.CodeQuotaExceeded)
	_, err = s.Group(t.Context(), tenant, "another")
	tablestest.WantCode(t, err, domain.CodeNotFound)
	_, _, err = s.PutGroup(t.Context(), tenant, "last", tablestest.GroupDefinition(0), 1)
	tablestest.Must(t, err)
}

// What the next release keeps in a definition is no obstacle for this one.
func TestGroupOfTheNextRelease(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	made := tablestest.PutGroup(t, s, tenant, "mail", 0)
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
		update manifold.subscriptions set definition = definition || '{"fromTheFuture": {"a": [1]}}' where tenant_id = $1`, tenant)
	tablestest.Must(t, err)
	got, err := s.Group(t.Context(), tenant, "mail")
	if err != nil || !reflect.DeepEqual(got, made) {
		t.Errorf("read %+v, %v", got, err)
	}
}

func TestGroupIsRemovedWithAllThatBelongsToIt(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	for _, name := range []string{"mail", "kept"} {
		mail := tablestest.PutGroup(t, s, tenant, name, 2)
		for partition := range 2 {
			fillPartition(t, s, tenant, mail, partition, 3)
		}
		_, err := s.AnnounceGroupMember(t.Context(), tenant, name, domain.GroupMember{ID: domain.NewGroupMemberID(), Label: "one"}, true)
		tablestest.Must(t, err)
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	rows := func(name string) map[string]int {
		found := make(map[string]int)
		for _, table := range []string{"subscriptions", "subscription_ledgers", "subscription_retries", "dead_letters", "subscription_members"} {
			var n int
			tablestest.Must(t, super.QueryRow(t.Context(), "select count(*) from manifold."+table+" where tenant_id = $1 and name = $2", tenant, name).Scan(&n))
			if n > 0 {
				found[table] = n
			}
		}
		return found
	}
	before := rows("kept")
	if len(before) != 5 || !reflect.DeepEqual(rows("mail"), before) {
		t.Fatalf("there are %v and %v", rows("mail"), before)
	}
	tablestest.Must(t, s.DeleteGroup(t.Context(), tenant, "mail"))
	if left := rows("mail"); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
	if left := rows("kept"); !reflect.DeepEqual(left, before) {
		t.Errorf("of the other group there are %v, want %v", left, before)
	}
	tablestest.WantCode(t, s.DeleteGroup(t.Context(), tenant, "mail"), domain.CodeNotFound)
}

// A save fails if its ledger belongs to a group that was removed and created again, whatever the new group's progress.
func TestRecreatedGroupRefusesOldSaves(t *testing.T) {
	t.Parallel()
	s, _ := tablestest.Open(t)
	tenant := domain.NewTenantID()
	old := tablestest.PutGroup(t, s, tenant, "mail", 0)
	row := ledgerOf(t, s, tenant, "mail", 0)
	tablestest.Must(t, s.DeleteGroup(t.Context(), tenant, "mail"))
	if _, saved := save(t, s, tenant, old, row.Revision, group.LedgerChange{Ledger: []byte("late")}); saved {
		t.Error("saved without a group")
	}
	again := tablestest.PutGroup(t, s, tenant, "mail", 0)
	if made := ledgerOf(t, s, tenant, "mail", 0); again.Revision == old.Revision || made.Revision == row.Revision {
		t.Errorf("it has the revision %d, and its ledger %d, again", again.Revision, made.Revision)
	}
	if _, saved := save(t, s, tenant, old, row.Revision, group.LedgerChange{Ledger: []byte("late")}); saved {
		t.Error("saved for the group before")
	}
	if row := ledgerOf(t, s, tenant, "mail", 0); row.Ledger != nil {
		t.Errorf("the ledger is %q", row.Ledger)
	}
}

func TestGroupDefinitionIsKeptInWords(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := domain.NewTenantID()
	tablestest.PutGroup(t, s, tenant, "mail", 2)
	var raw []byte
	tablestest.Must(t, db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(t.Context(), "select definition from manifold.subscriptions where tenant_id = $1", tenant).Scan(&raw))
	var got, want map[string]any
	tablestest.Must(t, json.Unmarshal(raw, &got))
	tablestest.Must(t, json.Unmarshal([]byte(`{"categories": ["order", "invoice"], "types": ["Placed"], "query": {"items": [{"types": ["Placed"], "tags": ["shop:s1"]}]},
		"filter": "event.data.n > 1", "from": "start", "batchSize": 10,
		"maxInFlight": 50, "ackTimeout": 1500, "maxAttempts": 3, "backoffMin": 250, "backoffMax": 60000, "ordering": "stream", "partitions": 2}`), &want))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("kept is %s: what an earlier release has kept must stay readable", raw)
	}
}
