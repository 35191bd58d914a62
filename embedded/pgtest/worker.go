package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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

// Workers returns the workers of the database's cluster, for a test that kills some. Such a test must not be parallel.
// It is skipped unless MANIFOLD_TEST_CITUS_KILL is set.
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

// Hang stops all processes of the worker's server until resume is called, or the test ends. Meanwhile its connections
// stay open, and nothing is answered.
func (w Worker) Hang(t testing.TB) (resume func()) {
	t.Helper()
	server := w.process(t)
	resume = func() { w.signal(t, server, syscall.SIGCONT) }
	t.Cleanup(resume)
	w.signal(t, server, syscall.SIGSTOP)
	return resume
}

// Vanish drops all packets from and to the worker until resume is called, or the test ends. It needs root and iptables;
// without them the test is skipped.
func (w Worker) Vanish(t testing.TB) (resume func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to drop packets")
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		t.Skipf("needs iptables, to drop packets: %v", err)
	}
	rule := func(operation, port string) error {
		output, err := exec.Command("iptables", operation, "INPUT", "--protocol", "tcp", port, strconv.Itoa(w.Port), "--jump", "DROP").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	}
	resume = sync.OnceFunc(func() {
		if err := errors.Join(rule("--delete", "--dport"), rule("--delete", "--sport")); err != nil {
			t.Errorf("pgtest: the worker at port %d can no longer be reached: %v", w.Port, err)
		}
	})
	for _, port := range []string{"--dport", "--sport"} {
		if err := rule("--append", port); err != nil {
			t.Fatalf("pgtest: %v", err)
		}
	}
	t.Cleanup(resume)
	return resume
}

// signal sends a signal to the server, and then to its children: a stopped server begins no others.
func (w Worker) signal(t testing.TB, server int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(server, signal); err != nil {
		t.Fatalf("pgtest: send a signal to the worker at port %d: %v", w.Port, err)
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // the process has ended
		}
		// After the name in parentheses come the state and the parent.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(server) {
			continue
		}
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat)))
		if err == nil {
			err = syscall.Kill(child, signal)
		}
		if err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatalf("pgtest: send a signal to a process of the worker at port %d: %v", w.Port, err)
		}
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
	command.Env = append(os.Environ(), "HOME="+w.folder) // where that user may look for certificates
	if int(owner.Uid) != os.Geteuid() {
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
	}
	return command.CombinedOutput()
}
