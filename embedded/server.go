// Package embedded runs a private PostgreSQL as a child process, for `manifold dev`, the benchmarks and the tests.
// Start with Config, Start and Server.
//
// The server listens only on a loopback port (no Unix socket), requires a password, and ends with the process that
// started it, even if that is killed. Its data stays in its folder, and the next Start finds it again. Linux and macOS
// are supported.
package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// Superuser is the name of the server's superuser.
const Superuser = "postgres"

// ErrAlreadyRunning is wrapped by Start's error if another process already runs the folder's server.
var ErrAlreadyRunning = errors.New("already running")

// ErrPortTaken is wrapped by the error of Start and Restart if another program listens on the port.
var ErrPortTaken = errors.New("port taken")

// Config configures a server.
type Config struct {
	// Dir is the folder for everything that the server stores: data, password, log. It is created if missing. For root,
	// the server runs as the user postgres (or nobody). If that user cannot reach Dir, as below /root, a folder below
	// /var/lib/manifold replaces it, the same one at each start. See Server.Dir.
	Dir string

	// Port to listen on at 127.0.0.1; 0 chooses a free one.
	Port int

	// Binaries to run; the zero value uses what FindBinaries finds for the existing data.
	Binaries Binaries

	// Settings are added to DurableSettings or DisposableSettings, and override them.
	Settings Settings

	// Primary makes new data a copy of this running server's, which the server then follows as a streaming replica,
	// until it is promoted. The primary allows replication: wal_level is replica, and max_wal_senders is not 0. This
	// needs pg_basebackup beside the other binaries.
	Primary *Server

	// Disposable marks data that need not outlive the machine: nothing is synced, and stopping is immediate.
	Disposable bool

	// Log receives the server's life-cycle events; nil: none. The server's own log is in Dir/server.log.
	Log *slog.Logger
}

// Server is a PostgreSQL that runs as a child process. Its methods may be called concurrently.
type Server struct {
	// Dir is the folder that is used: Config.Dir as an absolute path, or its replacement.
	Dir string
	// Port is where the server listens, at 127.0.0.1. Restart keeps it.
	Port int
	// Password is the superuser's.
	Password string

	folder     folder
	binaries   Binaries
	primary    *Server // of new data; nil: none
	settings   Settings
	disposable bool
	log        *slog.Logger

	mu      sync.Mutex // held while the server is being started or stopped
	lock    io.Closer  // the folder's; nil after Stop
	process *process   // the current one, or the last
}

// Start starts a server and returns when it accepts connections. The first start in a folder creates the data (initdb).
// ctx limits only the start, including recovery after a crash; the server runs until Stop, or until this process ends.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start PostgreSQL: no folder given")
	}
	s, err := start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, cfg Config) (_ *Server, err error) {
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	home, err := account.home(dir)
	if err != nil {
		return nil, err
	}
	if home != dir {
		log.Warn("the database server's user cannot reach the requested folder; its data is elsewhere", "user", account.name, "asked", dir, "used", home)
	}
	settings := DurableSettings()
	if cfg.Disposable {
		settings = DisposableSettings()
	}
	maps.Copy(settings, cfg.Settings)
	s := &Server{
		Dir: home, Port: cfg.Port, folder: folder{home, account}, binaries: cfg.Binaries,
		settings: settings, disposable: cfg.Disposable, log: log, primary: cfg.Primary,
	}
	s.lock, err = s.folder.lock(ctx, time.Second)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.lock.Close()
		}
	}()
	if err := s.prepare(ctx); err != nil {
		return nil, err
	}
	const attempts = 8 // a free port may be taken a moment later
	for attempt := 1; ; attempt++ {
		if cfg.Port == 0 {
			if s.Port, err = freePort(); err != nil {
				return nil, err
			}
		}
		err = s.run(ctx)
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, ErrPortTaken) || cfg.Port != 0 || attempt == attempts {
			return nil, err
		}
	}
}

// prepare finds the binaries and creates the data, or checks that both fit.
func (s *Server) prepare(ctx context.Context) error {
	major, err := s.folder.major()
	if err != nil {
		return err
	}
	if s.binaries == (Binaries{}) {
		if s.binaries, err = FindBinaries(ctx, major, s.log); err != nil {
			return err
		}
	}
	if major == 0 && s.primary != nil {
		s.log.Info("copying the primary's data", "dir", s.Dir, "port", s.primary.Port)
		s.Password = s.primary.Password
		return s.folder.copyData(ctx, s.binaries, s.primary)
	}
	if major == 0 {
		s.log.Info("making a new database", "dir", s.Dir, "postgresql", s.binaries.Major)
		s.Password, err = s.folder.createData(ctx, s.binaries, s.disposable)
		return err
	}
	if major != s.binaries.Major {
		return fmt.Errorf("the data in %s is PostgreSQL %d's, and %s is version %d: install PostgreSQL %d, or choose another folder",
			s.Dir, major, s.binaries.Dir, s.binaries.Major, major)
	}
	if s.Password, err = s.folder.readPassword(); err != nil {
		return err
	}
	return s.folder.awaitEarlierServer(ctx, 30*time.Second)
}

// run launches the server and waits until it accepts connections. The caller holds mu, or nobody else knows s yet.
func (s *Server) run(ctx context.Context) error {
	if err := checkPort(s.Port); err != nil {
		return err
	}
	logFile, begins, err := s.folder.openLog()
	if err != nil {
		return err
	}
	defer logFile.Close() // the child has its own copy
	args := []string{
		"-D", s.folder.data(),
		"-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(s.Port), "-c", "unix_socket_directories=",
		"-c", "timezone=UTC", "-c", "log_timezone=UTC", "-c", "logging_collector=off", "-c", "cluster_name=manifold",
	}
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		args = append(args, "-c", name+"="+s.settings[name])
	}
	cmd := s.folder.account.command(s.folder.dir, s.binaries.path("postgres"), args...)
	cmd.Stdout, cmd.Stderr = logFile, logFile
	p, err := launch(cmd, s.stopSignal())
	if err != nil {
		return fmt.Errorf("run %s: %w", s.binaries.path("postgres"), err)
	}
	s.process = p
	if err := s.waitUntilReady(ctx, p); err != nil {
		select {
		case <-p.exited:
			if taken := checkPort(s.Port); taken != nil {
				return taken
			}
			return fmt.Errorf("the server ended (%w); its output:\n%s", errors.Join(err, p.err), s.folder.serverOutput(begins))
		default:
		}
		s.stopProcess(context.WithoutCancel(ctx), p, 10*time.Second)
		return fmt.Errorf("the server does not answer: %w; its output:\n%s", err, s.folder.serverOutput(begins))
	}
	s.log.Info("PostgreSQL is ready", "dir", s.Dir, "port", s.Port, "version", s.binaries.Major, "pid", p.pid)
	return nil
}

// waitUntilReady connects repeatedly until that succeeds.
func (s *Server) waitUntilReady(ctx context.Context, p *process) error {
	next := time.NewTicker(15 * time.Millisecond)
	defer next.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		conn, err := pgx.Connect(attempt, s.URL("postgres"))
		cancel()
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.exited:
			return errors.New("before it was ready")
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-next.C:
		}
	}
}

// URL returns the superuser's postgres:// URL for a database, with the password.
func (s *Server) URL(database string) string {
	return s.URLAs(database, Superuser, s.Password)
}

// URLAs returns another login's postgres:// URL for a database, with the password.
func (s *Server) URLAs(database, user, password string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(user, password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// PID returns the process id of the server's main process.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.pid
}

// Exited is closed when the current process of the server has ended, for whatever reason.
func (s *Server) Exited() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.exited
}

// Stop shuts the server down: it ends its sessions, writes everything to disk, and returns when it is gone. If ctx ends
// first, the server stops at once instead, and recovers at its next start: no committed transaction is lost either way.
// A disposable server always stops at once. After Stop, others may use the folder; stopping again does nothing.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return nil
	}
	s.stopProcess(ctx, s.process, time.Minute)
	err := s.lock.Close()
	s.lock = nil
	s.log.Info("PostgreSQL has stopped", "dir", s.Dir)
	if err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	return nil
}

// stopSignal returns the signal that stops the server: SIGINT is PostgreSQL's fast shutdown, SIGQUIT its immediate one.
func (s *Server) stopSignal() syscall.Signal {
	if s.disposable {
		return syscall.SIGQUIT
	}
	return syscall.SIGINT
}

// stopProcess stops a process with increasing force, and returns when it is gone.
func (s *Server) stopProcess(ctx context.Context, p *process, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.signal(s.stopSignal())
	select {
	case <-p.exited:
		return
	case <-ctx.Done():
	}
	s.log.Warn("PostgreSQL does not stop in time; stopping it at once", "pid", p.pid)
	p.signal(syscall.SIGQUIT)
	select {
	case <-p.exited:
	case <-time.After(10 * time.Second):
		killAll(p)
	}
}

// Kill ends the server and all its sessions with SIGKILL, as a crash would, and returns when they are gone. Restart
// starts it again.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	killAll(s.process)
}

// Restart starts the server again on the same port and data: after Kill, after a crash, or while it runs, in which case
// it stops it first. It fails after Stop.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return errors.New("restart PostgreSQL: it was stopped; use Start")
	}
	s.stopProcess(ctx, s.process, time.Minute)
	err := s.folder.awaitEarlierServer(ctx, 30*time.Second)
	if err == nil {
		err = s.run(ctx)
	}
	if err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	return nil
}

// killAll ends a postmaster and its children with SIGKILL and waits for them. Each child has a separate group, so
// killAll finds them by their parent, which it halts first so that it cannot start more.
func killAll(p *process) {
	select {
	case <-p.exited:
		return
	default:
	}
	p.signal(syscall.SIGSTOP)
	all := children(p.pid)
	p.signal(syscall.SIGKILL)
	for _, pid := range all {
		// An error means that the child has ended meanwhile. A halted parent does not reap its children, so the number
		// still belongs to the child.
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	<-p.exited
	for _, pid := range all {
		for alive(pid) {
			<-time.After(time.Millisecond)
		}
	}
}

// InUse reports whether a process uses the server's folder dir, or its replacement, as Start would find out.
func InUse(dir string) bool {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false // Start will return the error
	}
	for _, dir := range []string{dir, replacementDir(dir)} {
		f := folder{dir: dir}
		if _, err := os.Stat(f.lockFile()); err != nil {
			continue // no server was ever started there; and checking creates no file
		}
		lock, err := f.lock(context.Background(), 0)
		if errors.Is(err, ErrAlreadyRunning) {
			return true
		}
		if err == nil {
			lock.Close()
		}
	}
	return false
}

// checkPort reports whether the port is free to listen on.
func checkPort(port int) error {
	l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: another program listens on 127.0.0.1:%d; stop it, or choose another port (0 takes a free one)", ErrPortTaken, port)
	}
	if err != nil {
		return fmt.Errorf("listen on 127.0.0.1:%d: %w; choose another port", port, err)
	}
	return l.Close()
}

// freePort chooses a port below the range that systems use for outgoing connections, because such a connection could
// take it between a server's stop and its restart.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 15000 + rand.IntN(17000)
		if err = checkPort(port); err == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port between 15000 and 31999: %w", err)
}
