package pgtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
)

// killVariable allows tests to kill workers of the cluster. Nothing else may use it meanwhile.
const killVariable = "MANIFOLD_TEST_CITUS_KILL"

// Worker is a node of a Citus cluster on this machine, which a test can kill and start again.
type Worker struct {
	Port int

	url, folder string
	programs    string // the folder of PostgreSQL's programs
}

// Workers returns the workers of the database's cluster, for a test that kills some. Such a test must not be parallel. It
// is skipped unless MANIFOLD_TEST_CITUS_KILL is set.
func (db DB) Workers(t testing.TB) (workers []Worker) {
	t.Helper()
	if !db.Distributed() || os.Getenv(killVariable) == "" {
		t.Skipf("needs a Citus cluster on this machine that nothing else uses: set %s, and %s=1 to let the test kill workers", clusterVariable, killVariable)
	}
	for number, node := range db.Nodes(t)[1:] {
		worker := Worker{url: db.cluster.superuser(number+1, "postgres")}
		var commits string
		err := node.QueryRow(t.Context(), "select current_setting('port')::int, current_setting('data_directory'), current_setting('synchronous_commit')").
			Scan(&worker.Port, &worker.folder, &commits)
		if err != nil {
			t.Fatalf("pgtest: %v", err)
		}
		if commits == "off" {
			t.Fatalf("pgtest: synchronous_commit is off on the worker at port %d, so a killed one loses commits: switch it on", worker.Port)
		}
		command, err := os.ReadFile(filepath.Join(worker.folder, "postmaster.opts"))
		if err != nil {
			t.Fatalf("pgtest: the worker at port %d cannot be controlled from here: %v", worker.Port, err)
		}
		server, _, _ := strings.Cut(string(command), " ")
		worker.programs = filepath.Dir(server)
		workers = append(workers, worker)
	}
	return workers
}

// Kill ends the worker's server with SIGKILL. If the test does not start it again, its end does.
func (w Worker) Kill(t testing.TB) {
	t.Helper()
	t.Cleanup(func() { w.Start(t) })
	if err := syscall.Kill(w.process(t), syscall.SIGKILL); err != nil {
		t.Fatalf("pgtest: kill the worker at port %d: %v", w.Port, err)
	}
}

// process returns the server's process id.
func (w Worker) process(t testing.TB) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.folder, "postmaster.pid"))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatalf("pgtest: the worker's process: %v", err)
	}
	return pid
}

// Start starts the worker's server unless it runs, and waits until it answers.
func (w Worker) Start(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	var out []byte
	var err error
	for ctx.Err() == nil {
		if conn, err := pgx.Connect(ctx, w.url); err == nil {
			_ = conn.Close(ctx)
			return
		}
		// It fails while processes of the killed server still hold its memory. Restart repeats the server's arguments.
		out, err = w.restart(ctx)
	}
	t.Errorf("pgtest: the worker at port %d does not start: %v: %s", w.Port, err, out)
}

// restart runs pg_ctl as the user that owns the server's files.
func (w Worker) restart(ctx context.Context) (out []byte, err error) {
	info, err := os.Stat(w.folder)
	if err != nil {
		return nil, err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("%s has no owner", w.folder)
	}
	command := exec.CommandContext(ctx, filepath.Join(w.programs, "pg_ctl"), "restart", "-w", "-D", w.folder, "-l", filepath.Join(w.folder, "restarts.log"))
	command.Dir = w.folder
	if int(owner.Uid) != os.Geteuid() {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	return command.CombinedOutput()
}
