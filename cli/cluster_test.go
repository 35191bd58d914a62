package cli_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestClusterCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	cluster := func(arguments ...string) outcome {
		return run(t, []string{"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator)}, nil, append([]string{"cluster", "--url", db.URL(pgtest.RoleSuperuser)}, arguments...)...)
	}
	if o := cluster("isolate", "nobody"); o.code == 0 {
		t.Errorf("isolate takes any text: %s", o.out)
	}
	if !db.Distributed() {
		for _, command := range [][]string{{"status"}, {"rebalance"}, {"isolate", domain.NewTenantID().String()}} {
			if o := cluster(command...); o.code == 0 || !strings.Contains(o.err, "manifold migrate up --distribute") {
				t.Errorf("%s without a cluster: %+v", command, o)
			}
		}
		return
	}
	for _, c := range []struct {
		says      string
		arguments []string
	}{
		{"SHARDS", []string{"status"}},
		{"balanced", []string{"rebalance"}},
		{"the tenant's log is alone in shard", []string{"isolate", domain.NewTenantID().String()}},
	} {
		if o := cluster(c.arguments...); o.code != 0 || !strings.Contains(o.out, c.says) {
			t.Errorf("%s: %+v", c.arguments, o)
		}
	}
}
