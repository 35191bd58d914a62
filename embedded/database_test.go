package embedded

import "testing"

func TestCreateDatabaseMayBeRepeated(t *testing.T) {
	t.Parallel()
	s := startServer(t, Config{Dir: folderForServer(t), Disposable: true})
	const name = `a "quoted" name`
	for range 2 {
		if err := s.CreateDatabase(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if got := queryString(t, connect(t, s.URL(name)), "select current_database()"); got != name {
		t.Errorf("connected to %q", got)
	}
	stopServer(t, s)
	if err := s.CreateDatabase(t.Context(), "other"); err == nil {
		t.Error("a stopped server makes databases")
	}
}
