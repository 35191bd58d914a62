package embedded

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// helperDir, when set, makes this test binary a program that runs a server in that folder until it is killed.
const helperDir = "MANIFOLD_EMBEDDED_HELPER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		s, err := Start(context.Background(), Config{Dir: dir})
		if err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		fmt.Println(s.PID(), s.URL("postgres"))
		select {}
	}
	os.Exit(m.Run())
}

// folderForServer returns a temporary folder that the server's account can reach, even if root runs the tests.
func folderForServer(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "manifold-embedded-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "postgresql")
}

func startServer(t *testing.T, cfg Config) *Server {
	t.Helper()
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopServer(t, s) })
	return s
}

func stopServer(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func queryString(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	var text string
	if err := conn.QueryRow(t.Context(), sql).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return text
}

func TestDataIsFoundAgain(t *testing.T) {
	t.Parallel()
	dir := folderForServer(t)
	first := startServer(t, Config{Dir: dir})
	conn := connect(t, first.URL("postgres"))
	execute(t, conn, "create table kept as select 'still here' as text")
	stopServer(t, first)
	if _, err := pgx.Connect(t.Context(), first.URL("postgres")); err == nil {
		t.Error("the server answers after Stop")
	}
	stopServer(t, first) // does nothing

	second := startServer(t, Config{Dir: dir})
	if second.Password != first.Password {
		t.Error("the password has changed")
	}
	if got := queryString(t, connect(t, second.URL("postgres")), "select text from kept"); got != "still here" {
		t.Errorf("the table holds %q", got)
	}
	if log, err := os.ReadFile(filepath.Join(dir, "server.log")); err != nil || strings.Contains(string(log), "not properly shut down") {
		t.Errorf("Stop was no clean shutdown (%v):\n%s", err, log)
	}
}

func TestServerIsPrivateAndDurable(t *testing.T) {
	t.Parallel()
	s := startServer(t, Config{Dir: folderForServer(t), Settings: Settings{"max_connections": "17"}})
	conn := connect(t, s.URL("postgres"))
	for setting, want := range map[string]string{
		"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "on", "synchronous_commit": "on", "max_connections": "17",
		"server_encoding": "UTF8", "lc_collate": "C", "timezone": "UTC",
	} {
		if setting == "lc_collate" {
			if got := queryString(t, conn, "select datcollate from pg_database where datname = 'postgres'"); got != want {
				t.Errorf("collation is %q, want %q", got, want)
			}
			continue
		}
		if got := queryString(t, conn, "show "+setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
	_, err := pgx.Connect(t.Context(), s.URLAs("postgres", Superuser, "wrong"))
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || refused.Code != "28P01" {
		t.Errorf("a wrong password gives %v", err)
	}
	info, err := os.Stat(filepath.Join(s.Dir, "password"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the password's file has mode %o", mode)
	}
	if _, err := os.Stat(filepath.Join(s.Dir, "password.initdb")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the password given to initdb was left behind (%v)", err)
	}
	group, err := syscall.Getpgid(s.PID())
	if err != nil {
		t.Fatal(err)
	}
	if group != s.PID() {
		t.Errorf("the server %d is in the process group %d: a terminal's Ctrl-C would reach it", s.PID(), group)
	}
}

func TestKillIsACrashAndRestartRecovers(t *testing.T) {
	t.Parallel()
	s := startServer(t, Config{Dir: folderForServer(t), Disposable: true})
	conn := connect(t, s.URL("postgres"))
	execute(t, conn, "create table committed (n int)")
	execute(t, conn, "insert into committed values (1)")
	busy := connect(t, s.URL("postgres"))
	execute(t, busy, "begin")
	execute(t, busy, "insert into committed values (2)")
	pid := int(busy.PgConn().PID())
	exited := s.Exited()

	s.Kill()
	select {
	case <-exited:
	default:
		t.Error("Kill returned before the server was gone")
	}
	if alive(pid) {
		t.Errorf("the session %d outlived Kill", pid)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := connect(t, s.URL("postgres")) // the same port
	if got := queryString(t, again, "select string_agg(n::text, ',') from committed"); got != "1" {
		t.Errorf("after the crash the table holds %q, want what was committed", got)
	}
	if err := s.Restart(t.Context()); err != nil { // while it runs
		t.Fatal(err)
	}
	if got := queryString(t, connect(t, s.URL("postgres")), "select count(*)::text from committed"); got != "1" {
		t.Errorf("after a restart the table holds %s rows", got)
	}
	stopServer(t, s)
	if err := s.Restart(t.Context()); err == nil {
		t.Error("Restart works after Stop")
	}
}

func TestFolderInUse(t *testing.T) {
	t.Parallel()
	dir := folderForServer(t)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if InUse(dir) {
		t.Error("an empty folder is in use")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("asking has made %v (%v)", entries, err)
	}
	s := startServer(t, Config{Dir: dir, Disposable: true})
	if !InUse(dir) {
		t.Error("the server's folder is not in use")
	}
	_, err := Start(t.Context(), Config{Dir: dir, Disposable: true})
	if !errors.Is(err, ErrAlreadyRunning) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("a second server in the folder: %v", err)
	}
	stopServer(t, s)
	if InUse(dir) {
		t.Error("the folder is in use after Stop")
	}
}

// A closed lock is free at once, even while the process starts others, which briefly have its files open.
func TestFolderIsFreeWhileChildrenBegin(t *testing.T) {
	t.Parallel()
	f := folder{dir: t.TempDir()}
	stop := make(chan struct{})
	var begin sync.WaitGroup
	for range 4 {
		begin.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := exec.Command("/bin/true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 500 {
		lock, err := f.lock(t.Context(), 0)
		if err != nil {
			t.Error(err)
			break
		}
		if err := lock.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	begin.Wait()
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	dir := folderForServer(t)
	_, err = Start(t.Context(), Config{Dir: dir, Port: port, Disposable: true})
	if !errors.Is(err, ErrPortTaken) || !strings.Contains(err.Error(), strconv.Itoa(port)) {
		t.Errorf("a taken port: %v", err)
	}
	// The failed start does not obstruct the next.
	startServer(t, Config{Dir: dir, Disposable: true})
}

func TestStaleLocksAndHalfMadeDataAreNoObstacle(t *testing.T) {
	t.Parallel()
	dir := folderForServer(t)
	// An initdb that was interrupted.
	if err := os.MkdirAll(filepath.Join(dir, "data.new", "base"), 0o700); err != nil {
		t.Fatal(err)
	}
	account, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	if err := account.own(dir); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, Config{Dir: dir, Disposable: true})
	stopServer(t, s)

	// The number in the stale lock now belongs to another program of the same user: PostgreSQL itself would refuse.
	other := account.command("/", "/bin/sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		other.Process.Kill()
		other.Wait()
	}()
	lock := filepath.Join(dir, "data", "postmaster.pid")
	text := fmt.Sprintf("%d\n%s\n%d\n%d\n\n127.0.0.1\n", other.Process.Pid, filepath.Join(dir, "data"), time.Now().Unix(), s.Port)
	if err := os.WriteFile(lock, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := account.own(lock); err != nil {
		t.Fatal(err)
	}
	stopServer(t, startServer(t, Config{Dir: dir, Disposable: true}))
}

func TestAnotherServerOnTheDataIsRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t, Config{Dir: folderForServer(t), Disposable: true})
	err := s.folder.awaitEarlierServer(t.Context(), 0)
	if !errors.Is(err, ErrAlreadyRunning) || !strings.Contains(err.Error(), fmt.Sprintf("kill -INT %d", s.PID())) {
		t.Errorf("data with a running server: %v", err)
	}
}

// A killed process takes its server with it, and the next one finds what was committed.
func TestServerEndsWithItsProcess(t *testing.T) {
	t.Parallel()
	dir := folderForServer(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helper := exec.Command(self)
	helper.Env = append(os.Environ(), helperDir+"="+dir)
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	defer helper.Wait()
	defer helper.Process.Kill()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	var url string
	if _, err := fmt.Sscan(line, &pid, &url); err != nil {
		t.Fatalf("the helper says %q: %v", line, err)
	}
	conn := connect(t, url)
	execute(t, conn, "create table kept as select 'committed' as text")

	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The session ends with the server; a reply would mean that the server lives on.
	if err := conn.PgConn().WaitForNotification(t.Context()); err == nil || t.Context().Err() != nil {
		t.Fatalf("the session continues: %v", err)
	}
	s := startServer(t, Config{Dir: dir}) // waits for the end of the first
	if alive(pid) {
		t.Errorf("the server %d outlived its process", pid)
	}
	if got := queryString(t, connect(t, s.URL("postgres")), "select text from kept"); got != "committed" {
		t.Errorf("the table holds %q", got)
	}
}

func TestDataOfAnotherVersionIsRefused(t *testing.T) {
	t.Parallel()
	dir := folderForServer(t)
	s := startServer(t, Config{Dir: dir, Disposable: true})
	b := s.binaries
	stopServer(t, s)
	b.Major++
	_, err := Start(t.Context(), Config{Dir: dir, Disposable: true, Binaries: b})
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("install PostgreSQL %d", b.Major-1)) {
		t.Errorf("data of another version: %v", err)
	}
}

func TestWrongSettingIsReportedInTheServersWords(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Config{Dir: folderForServer(t), Disposable: true, Settings: Settings{"no_such_setting": "1"}})
	if err == nil || !strings.Contains(err.Error(), "no_such_setting") {
		t.Errorf("a wrong setting: %v", err)
	}
}

func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := folderForServer(t)
	if _, err := Start(ctx, Config{Dir: dir, Disposable: true}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with a cancelled context: %v", err)
	}
	if InUse(dir) {
		t.Error("the folder is still in use")
	}
}

func TestRootsUnreachableFolderIsReplaced(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root's server runs as another user")
	}
	private, err := os.MkdirTemp("", "manifold-embedded-") // mode 0700
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(private)
	var said strings.Builder
	cfg := Config{Dir: filepath.Join(private, "postgresql"), Disposable: true, Log: slog.New(slog.NewTextHandler(&said, nil))}
	first := startServer(t, cfg)
	defer os.RemoveAll(first.Dir)
	if !strings.HasPrefix(first.Dir, "/var/lib/manifold/") {
		t.Errorf("the folder used is %s", first.Dir)
	}
	if !InUse(cfg.Dir) {
		t.Error("the folder asked for counts as free while its substitute is in use")
	}
	if !strings.Contains(said.String(), first.Dir) {
		t.Errorf("the log does not name the folder used:\n%s", said.String())
	}
	execute(t, connect(t, first.URL("postgres")), "create table kept as select 'still here' as text")
	stopServer(t, first)
	second := startServer(t, cfg)
	if got := queryString(t, connect(t, second.URL("postgres")), "select text from kept"); got != "still here" {
		t.Errorf("the table holds %q", got)
	}
	stopServer(t, second)
}

func TestURLQuotesWhatItHolds(t *testing.T) {
	t.Parallel()
	s := &Server{Port: 5432}
	u, err := url.Parse(s.URLAs("my db", "me@home", "p:/?#%'"))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	if u.User.Username() != "me@home" || password != "p:/?#%'" || u.Path != "/my db" || u.Host != "127.0.0.1:5432" {
		t.Errorf("the URL is %s", u)
	}
}
