package group_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

type groupNotice struct {
	tenant domain.TenantID
	name   string
}

// listenGroups collects what ListenGroups tells, and returns when it is listening.
func listenGroups(t *testing.T, s *tables.Tables) <-chan groupNotice {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	told := make(chan groupNotice, 10_000)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.ListenGroups(ctx, func(tenant domain.TenantID, name string) { told <- groupNotice{tenant, name} }); err != nil {
			t.Errorf("ListenGroups: %v", err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	waitForNotice(t, told, groupNotice{domain.Everyone, ""})
	return told
}

func waitForNotice(t *testing.T, told <-chan groupNotice, want groupNotice) {
	t.Helper()
	for tablestest.Receive(t, told, fmt.Sprintf("a notice of %v", want)) != want {
	}
}

func TestGroupNotices(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	there := listenGroups(t, tablestest.OpenAgain(t, db))
	here := listenGroups(t, s)
	tenant := domain.NewTenantID()
	s.NotifyGroup(tenant, "mail-1")
	waitForNotice(t, there, groupNotice{tenant, "mail-1"})

	// Every change of a group is announced.
	group := tablestest.PutGroup(t, s, tenant, "mail", 0)
	waitForNotice(t, there, groupNotice{tenant, "mail"})
	fillPartition(t, s, tenant, group, 0, 2)
	changed := group.GroupDefinition
	changed.BatchSize++
	for what, do := range map[string]func() error{
		"a change": func() error {
			_, _, err := s.PutGroup(t.Context(), tenant, "mail", changed, 0)
			return err
		},
		"a pause": func() error {
			_, err := s.PauseGroup(t.Context(), tenant, "mail", true)
			return err
		},
		"a seek": func() error {
			_, err := s.SeekGroup(t.Context(), tenant, "mail", func(int, []byte) ([]byte, domain.PartitionStatus, error) { return nil, domain.PartitionStatus{}, nil })
			return err
		},
		"a replay": func() error {
			_, err := s.ReplayDeadLetters(t.Context(), tenant, "mail", domain.EventID{})
			return err
		},
		"a member": func() error {
			_, err := s.AnnounceGroupMember(t.Context(), tenant, "mail", domain.GroupMember{ID: domain.NewGroupMemberID()}, true)
			return err
		},
	} {
		if err := do(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		waitForNotice(t, there, groupNotice{tenant, "mail"})
	}

	// The session of the LISTEN is lost, and notices may have been lost with it.
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where query = 'listen manifold_groups' and datname = current_database()")
	tablestest.Must(t, err)
	waitForNotice(t, there, groupNotice{domain.Everyone, ""})
	waitForNotice(t, here, groupNotice{domain.Everyone, ""})
	s.NotifyGroup(tenant, "mail-2")
	waitForNotice(t, there, groupNotice{tenant, "mail-2"})
	for {
		select {
		case got := <-here:
			if got.tenant != domain.Everyone {
				t.Errorf("a process hears its own notice %v", got)
			}
			continue
		default:
		}
		break
	}
}

// failures is a log that counts what was said of notices that could not be sent.
type failures struct {
	slog.Handler
	of chan struct{}
}

func (f failures) Enabled(context.Context, slog.Level) bool { return true }

func (f failures) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "were not announced") {
		select {
		case f.of <- struct{}{}:
		default:
		}
	}
	return nil
}

// A notice that could not be sent is sent later.
func TestFailedNotificationIsRepeated(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	there := listenGroups(t, s)
	failed := failures{slog.DiscardHandler, make(chan struct{}, 1)}
	failing, err := tables.Open(t.Context(), tables.Config{
		AppURL: db.URL(migrations.RoleApp), SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention),
		MaxConns: 8, Log: slog.New(failed),
	})
	tablestest.Must(t, err)
	t.Cleanup(failing.Close)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err = super.Exec(t.Context(), "revoke execute on function pg_notify(text, text) from public")
	tablestest.Must(t, err)
	tenant := domain.NewTenantID()
	failing.NotifyGroup(tenant, "mail")
	tablestest.Receive(t, failed.of, "a notice that fails")
	_, err = super.Exec(t.Context(), "grant execute on function pg_notify(text, text) to public")
	tablestest.Must(t, err)
	waitForNotice(t, there, groupNotice{tenant, "mail"})
}

// A few hundred groups are announced by name, so that readers of other groups are not disturbed.
func TestManyGroupNoticesNameTheirGroups(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	there := listenGroups(t, tablestest.OpenAgain(t, db))
	tenant := domain.NewTenantID()
	wanted := make(map[groupNotice]bool)
	for i := range 500 {
		notice := groupNotice{tenant, fmt.Sprintf("send-mail-to-customers-%d", i)}
		wanted[notice] = true
		s.NotifyGroup(notice.tenant, notice.name)
	}
	for len(wanted) > 0 {
		got := tablestest.Receive(t, there, "a notice of each group")
		if got.tenant == domain.Everyone {
			t.Fatal("a notice names all groups of all tenants")
		}
		delete(wanted, got)
	}
}

// Very many groups at once are no list: all are meant. And what stands there when the store is closed is still told.
func TestVeryManyGroupNotices(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	there := listenGroups(t, tablestest.OpenAgain(t, db))
	tenant := domain.NewTenantID()
	for i := range 20_000 {
		s.NotifyGroup(tenant, fmt.Sprintf("mail-%d", i))
	}
	waitForNotice(t, there, groupNotice{domain.Everyone, ""})
	closing := tablestest.OpenAgain(t, db)
	closing.NotifyGroup(tenant, "last")
	closing.Close()
	waitForNotice(t, there, groupNotice{tenant, "last"})
	// What others send is not understood: anything may have changed.
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "select pg_notify('manifold_groups', 'hello')")
	tablestest.Must(t, err)
	waitForNotice(t, there, groupNotice{domain.Everyone, ""})
}
