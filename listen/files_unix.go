//go:build unix

package listen

import "syscall"

// MaxFiles returns how many files and connections the process may have open; 0 means unknown.
func MaxFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return int(min(uint64(limit.Cur), 1<<30))
}
