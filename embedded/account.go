package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the system user that runs the server.
type account struct {
	name     string
	uid, gid int
	switched bool // not this process's user: programs must be started as this user, and files given to it
}

// serverAccount returns this process's user. PostgreSQL refuses to run as root, so for root it returns the user
// `postgres` that PostgreSQL's package creates, or else `nobody`.
func serverAccount() (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		return account{name: strconv.Itoa(uid), uid: uid, gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.Atoi(u.Uid)
		if err != nil {
			return account{}, fmt.Errorf("user %s has an invalid id %q", name, u.Uid)
		}
		gid, err := strconv.Atoi(u.Gid)
		if err != nil {
			return account{}, fmt.Errorf("user %s has an invalid group %q", name, u.Gid)
		}
		return account{name: name, uid: uid, gid: gid, switched: true}, nil
	}
	return account{}, fmt.Errorf("PostgreSQL refuses to run as root, and neither the user postgres nor nobody exists: run Manifold as another user, or create one (useradd --system postgres)")
}

// command prepares a program that runs as the account, in dir. Its environment contains none of our variables (PGDATA,
// PGPORT, a locale) that would change what the server does.
func (a account) command(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC", "HOME=" + dir}
	if v, ok := os.LookupEnv("LD_LIBRARY_PATH"); ok {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if a.switched {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return cmd
}

// own makes the account the owner of a file or folder.
func (a account) own(path string) error {
	if !a.switched {
		return nil
	}
	if err := os.Chown(path, a.uid, a.gid); err != nil {
		return fmt.Errorf("give %s to the user %s: %w", path, a.name, err)
	}
	return nil
}

// canUse reports whether the account can reach and write the folder dir. It tries, because on some file systems the
// permission bits are not enough to know.
func (a account) canUse(dir string) bool {
	return a.command("/", "/bin/sh", "-c", `cd "$1" && : >.probe && rm -f .probe`, "sh", dir).Run() == nil
}

// home creates the folder for the server's files, owned by the account, and returns it. That is dir, unless the account
// cannot reach dir, as when root works below /root. Then it is a folder below /var/lib/manifold, always the same for
// the same dir, so that a restart finds its data.
func (a account) home(dir string) (string, error) {
	if err := a.makeDir(dir); err != nil {
		return "", err
	}
	if a.canUse(dir) {
		return dir, nil
	}
	if !a.switched {
		return "", fmt.Errorf("the folder %s cannot be written: choose another", dir)
	}
	_ = os.Remove(dir) // if it was created just now; a folder with content stays
	other := replacementDir(dir)
	if err := a.makeDir(other); err != nil {
		return "", err
	}
	if !a.canUse(other) {
		return "", fmt.Errorf("the database server cannot run as root, and its user %s can reach neither %s nor %s: choose a folder that it can reach (every folder above it needs the permission x for others), or run Manifold as another user",
			a.name, dir, other)
	}
	return other, nil
}

// replacementDir returns the folder that replaces dir, an absolute path, if root's server cannot reach it.
func replacementDir(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join("/var/lib/manifold", filepath.Base(dir)+"-"+hex.EncodeToString(sum[:6]))
}

// makeDir creates a folder for the account alone. An existing folder with content stays as it is.
func (a account) makeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make the server's folder: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !os.IsExist(err) {
		return fmt.Errorf("make the server's folder: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("read the server's folder: %w", err)
	}
	if len(entries) == 0 {
		// Some file systems (a container's mounts) have no owners; canUse finds out whether the account can use the
		// folder.
		_ = a.own(dir)
	}
	return nil
}
