package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/cli/doctor"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// The command prints a line for each check, or JSON. It fails if any check fails.
func TestDoctorCommand(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	text := "database:\n  url: '" + db.URL(pgtest.RoleMigrator) + "'\n"
	for name, role := range map[string]migrations.Role{"app": migrations.RoleApp, "system": migrations.RoleSystem, "documents": migrations.RoleDocuments, "retention": migrations.RoleRetention} {
		text += "  " + name + ": {url: '" + db.URL(role) + "'}\n"
	}
	file := filepath.Join(t.TempDir(), "manifold.yaml")
	run := func(text string, args ...string) (string, error) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		command := Program{}.command(t.Context())
		var out bytes.Buffer
		command.SetOut(&out)
		command.SetArgs(append([]string{"doctor", "--config", file}, args...))
		err := command.ExecuteContext(t.Context())
		return out.String(), err
	}
	commits := "\nwarning  commits: "
	if db.Distributed() { // its nodes may sync
		commits = " commits: "
	}
	said, err := run(text)
	if err != nil || !strings.Contains(said, "\nok       login app: ") || !strings.Contains(said, commits) {
		t.Errorf("%v\n%s", err, said)
	}
	said, err = run(text, "--json")
	var report struct {
		OK     bool
		Checks []doctor.Finding
	}
	if jsonErr := json.Unmarshal([]byte(said), &report); err != nil || jsonErr != nil || !report.OK || len(report.Checks) < 8 {
		t.Errorf("%v, %v\n%s", err, jsonErr, said)
	}
	itself, err := url.Parse(db.URL(migrations.RoleApp))
	if err != nil {
		t.Fatal(err)
	}
	itself.User = nil
	said, err = run(text + "  replicas: ['" + itself.String() + "']\n")
	if err != nil || !strings.Contains(said, "\nwarning  replica ") || !strings.Contains(said, "it is not a replica: it was promoted, or it is the primary") {
		t.Errorf("%v\n%s", err, said)
	}
	said, err = run("listen: 1\nrolle: x\n")
	if !errors.Is(err, ErrShown) || !strings.HasPrefix(said, "failed   configuration: ") || !strings.Contains(said, "there is no setting rolle") || strings.Count(said, "\n") != 1 {
		t.Errorf("%v\n%s", err, said)
	}
}
