package embedded

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// folder contains a server's files:
//
//	data/       PostgreSQL's data folder
//	password    the superuser's password, readable by its owner only
//	server.log  the server's log
//	lock        locked, with flock, by the process that runs the server; contains that process's number
type folder struct {
	dir     string
	account account
}

func (f folder) data() string     { return filepath.Join(f.dir, "data") }
func (f folder) password() string { return filepath.Join(f.dir, "password") }
func (f folder) log() string      { return filepath.Join(f.dir, "server.log") }
func (f folder) lockFile() string { return filepath.Join(f.dir, "lock") }

// folderLock excludes other processes from a folder until it is closed, or this process ends.
type folderLock struct{ file *os.File }

// Close unlocks the file before it closes it. A child that this process is just starting has the file open until it
// runs its program, and would keep the lock until then.
func (l folderLock) Close() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}

// lock locks the folder for this process. A process that was just killed may still hold the lock for some milliseconds,
// so lock retries until patience is over.
func (f folder) lock(ctx context.Context, patience time.Duration) (io.Closer, error) {
	file, err := os.OpenFile(f.lockFile(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the folder's lock: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || ctx.Err() != nil {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		var buf [32]byte
		n, _ := file.Read(buf[:]) // without the number the message is still correct
		file.Close()
		holder := strings.TrimSpace(string(buf[:n]))
		return nil, fmt.Errorf("%w: process %s has %s; stop it, or choose another folder", ErrAlreadyRunning, holder, f.dir)
	}
	if err == nil {
		err = file.Truncate(0)
	}
	if err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", f.dir, err)
	}
	return folderLock{file}, nil
}

// major returns the version of PostgreSQL that created the data, or 0 if there is none yet.
func (f folder) major() (int, error) {
	text, err := os.ReadFile(filepath.Join(f.data(), "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the data's version: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s is damaged: it says %q, which is no version", filepath.Join(f.data(), "PG_VERSION"), text)
	}
	return major, nil
}

// createData runs initdb with a new password, which it returns. It creates the data in a temporary folder and renames
// it, so that an interrupted initdb is never mistaken for data.
func (f folder) createData(ctx context.Context, b Binaries, disposable bool) (string, error) {
	incomplete := f.data() + ".new"
	if err := os.RemoveAll(incomplete); err != nil {
		return "", fmt.Errorf("remove an interrupted initdb: %w", err)
	}
	password := rand.Text()
	if err := writeFile(f.password(), password); err != nil {
		return "", err
	}
	// initdb reads this copy as the server's account, which may not be able to read the other file.
	passwordCopy := filepath.Join(f.dir, "password.initdb")
	if err := writeFile(passwordCopy, password); err != nil {
		return "", err
	}
	defer os.Remove(passwordCopy)
	if err := f.account.own(passwordCopy); err != nil {
		return "", err
	}
	args := []string{
		"--pgdata=" + incomplete, "--username=" + Superuser, "--pwfile=" + passwordCopy, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C", "--no-instructions",
	}
	if disposable {
		args = append(args, "--no-sync")
	}
	if err := f.runInto(ctx, incomplete, f.account.command(f.dir, b.path("initdb"), args...)); err != nil {
		return "", err
	}
	return password, nil
}

// copyData runs pg_basebackup, which copies the data of a running server, so that this server follows it.
func (f folder) copyData(ctx context.Context, b Binaries, primary *Server) error {
	incomplete := f.data() + ".new"
	if err := os.RemoveAll(incomplete); err != nil {
		return fmt.Errorf("remove an interrupted copy: %w", err)
	}
	if err := writeFile(f.password(), primary.Password); err != nil {
		return err
	}
	return f.runInto(ctx, incomplete, f.account.command(f.dir, b.path("pg_basebackup"), "--pgdata="+incomplete,
		"--dbname="+primary.URL("postgres"), "--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream",
		"--no-sync"))
}

// runInto runs a program that creates the data in a temporary folder, which it then renames.
func (f folder) runInto(ctx context.Context, incomplete string, program *exec.Cmd) error {
	name := filepath.Base(program.Path)
	var output bytes.Buffer
	program.Stdout, program.Stderr = &output, &output
	if err := program.Start(); err != nil {
		return fmt.Errorf("start %s: %w", name, err)
	}
	stop := context.AfterFunc(ctx, func() { program.Process.Kill() })
	err := program.Wait()
	stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("%s in %s: %w:\n%s", name, f.dir, err, bytes.TrimSpace(output.Bytes()))
	}
	if err := os.Rename(incomplete, f.data()); err != nil {
		return fmt.Errorf("move the new data to its place: %w", err)
	}
	return nil
}

// readPassword returns the password that createData stored.
func (f folder) readPassword() (string, error) {
	text, err := os.ReadFile(f.password())
	if err != nil {
		return "", fmt.Errorf("read the superuser's password (without it the data in %s cannot be reached; put it back, or remove the folder and its data): %w", f.dir, err)
	}
	return strings.TrimSpace(string(text)), nil
}

// awaitEarlierServer handles a postmaster.pid that an earlier server left. If that server still runs without us, as
// when our process was just killed, it is about to end, and awaitEarlierServer gives it some time. If its number now
// belongs to another program, awaitEarlierServer removes the file, because PostgreSQL would mistake that program for a
// server. PostgreSQL itself removes any other stale file.
func (f folder) awaitEarlierServer(ctx context.Context, patience time.Duration) error {
	file := filepath.Join(f.data(), "postmaster.pid")
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the server's lock: %w", err)
		}
		first, _, _ := strings.Cut(string(text), "\n")
		pid, err := strconv.Atoi(strings.TrimSpace(first))
		if err != nil || pid <= 0 || !alive(pid) || !isPostgres(pid) {
			if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
				return fmt.Errorf("remove the server's stale lock: %w", err)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: PostgreSQL runs on %s as process %d; stop it (kill -INT %d), or choose another folder", ErrAlreadyRunning, f.data(), pid, pid)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// openLog opens the server's log for the server to write to, and returns where the new output begins. Beyond 16 MB the
// log starts over.
func (f folder) openLog() (file *os.File, begins int64, err error) {
	flags := os.O_CREATE | os.O_WRONLY | os.O_APPEND
	info, err := os.Stat(f.log())
	switch {
	case err == nil && info.Size() > 16<<20:
		flags |= os.O_TRUNC
	case err == nil:
		begins = info.Size()
	case !errors.Is(err, os.ErrNotExist):
		return nil, 0, fmt.Errorf("look at the server's log: %w", err)
	}
	file, err = os.OpenFile(f.log(), flags, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open the server's log: %w", err)
	}
	return file, begins, nil
}

// serverOutput returns the end of what the server logged after offset, at most a screenful.
func (f folder) serverOutput(offset int64) string {
	text, err := os.ReadFile(f.log())
	if err != nil || int64(len(text)) < offset {
		return "(its log cannot be read)"
	}
	text = text[offset:]
	if len(text) > 4096 {
		text = text[len(text)-4096:]
	}
	return strings.TrimSpace(string(text))
}

func writeFile(path, text string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace a file: %w", err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		return fmt.Errorf("write a file: %w", err)
	}
	return nil
}
