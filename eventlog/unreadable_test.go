package eventlog_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// An event may be too long to be read only by its data and metadata together.
func TestDataAndMetadataAreTooLongTogether(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	tenant := tablestest.NewTenant(t, s)
	tablestest.Append(t, s, tenant, tablestest.Counted("order-1", domain.Any, 1))
	// As an earlier release has taken it: 200 numbers of 131 kB in each, 13 MB or more as they are estimated, 26 MB as
	// printed.
	_, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), "update manifold.events set event_data = $2::jsonb, metadata = $2::jsonb where tenant_id = $1",
		tenant, `{"l":[1`+strings.Repeat(",1e131071", 200)+`]}`)
	tablestest.Must(t, err)
	events, err := s.ReadPositions(t.Context(), tenant, []int64{1})
	tablestest.Must(t, err)
	if len(events) != 1 || events[0].Gap == nil || events[0].Gap.Reason != domain.GapUnreadable {
		t.Errorf("the events are %+v; want one that is unreadable", events)
	}
}
