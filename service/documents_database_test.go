package service_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A database of documents that does not answer is reported, and affects nothing else.
func TestDocumentsDatabaseThatIsDown(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	c.Databases = map[string]config.DocumentsDatabase{"reports": {Driver: "postgres", URL: "postgres://nobody@127.0.0.1:1/reports"}}
	p := start(t, c)
	status, body := get(t, p, "/readyz")
	for late := time.Now().Add(time.Minute); strings.Contains(body, "it did not answer within") && time.Now().Before(late); {
		status, body = get(t, p, "/readyz") // the machine is busy
	}
	if status != http.StatusOK || !strings.Contains(body, "documents: reports") || !strings.Contains(body, `"ok":false`) {
		t.Errorf("/readyz answers %d: %s", status, body)
	}
	if strings.Contains(body, "nobody") || strings.Contains(body, "127.0.0.1") {
		t.Errorf("/readyz tells anybody logins and addresses: %s", body)
	}
	awaitMetric(t, p, `manifold_database_up{database="default"} 1`)
	awaitMetric(t, p, `manifold_database_up{database="reports"} 0`)
	acme := as(t, p, newTenant(t, p, "acme"))
	if r := acme.put(counting); r.JSON201 == nil {
		t.Fatalf("create a projection: %s", r.Body)
	}
	position := acme.add("thing-1", "Added", `{"n":1}`)
	if got := acme.document("counts", "thing-1", position); got != `{"n":1}` {
		t.Errorf("the document is %s", got)
	}
	elsewhere := strings.Replace(strings.Replace(counting, "{", `{"database":"reports",`, 1), "counts", "elsewhere", 1)
	if r := acme.put(elsewhere); r.StatusCode() != http.StatusServiceUnavailable && r.JSON201 == nil {
		t.Errorf("a projection in the database that is down: %d %s", r.StatusCode(), r.Body)
	}
}

// A shared projection whose table has vanished reports that. It is rebuilt automatically as soon as someone reads it.
func TestTableThatVanishes(t *testing.T) {
	t.Parallel()
	db, folder := pgtest.Database(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "counts.json"), []byte(counting), 0o600); err != nil {
		t.Fatal(err)
	}
	c := configuration(db)
	c.Projections = []string{folder}
	p := start(t, c)
	acme := as(t, p, newTenant(t, p, "acme"))
	position := acme.add("thing-1", "Added", `{"n":2}`)
	if got := acme.document("counts", "thing-1", position); got != `{"n":2}` {
		t.Fatalf("the document is %s", got)
	}
	if _, err := db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `drop table manifold_documents."counts.1" cascade`); err != nil {
		t.Fatal(err)
	}
	if r, err := acme.GetDocumentWithResponse(t.Context(), "counts", "thing-1", nil); err != nil || r.StatusCode() != http.StatusServiceUnavailable || !strings.Contains(string(r.Body), "rebuild") {
		t.Errorf("a read is answered %d %s, %v", r.StatusCode(), r.Body, err)
	}
	// The worker learns of it only from that read, since no event arrives.
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(time.Minute); ; {
		list, err := as(t, p, operatorKey).ListRebuildsWithResponse(t.Context(), "counts")
		if err != nil || list.JSON200 == nil {
			t.Fatalf("the rebuilds: %v, %s", err, list.Body)
		}
		if all := list.JSON200.Rebuilds; len(all) == 1 && all[0].EndedAt != nil {
			break
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the rebuilds are %s", list.Body)
		}
	}
	position = acme.add("thing-1", "Added", `{"n":3}`)
	if got := acme.document("counts", "thing-1", position); got != `{"n":5}` {
		t.Errorf("rebuilt, the document is %s", got)
	}
}
