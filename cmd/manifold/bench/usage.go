package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// processorTime returns how much processor time this process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakMemory returns a process's peak resident memory in megabytes (a million bytes). It reads /proc, and returns 0
// if the system has none.
func peakMemory(pid int) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			if err != nil {
				return 0
			}
			return round(kib*1024/1e6, 1)
		}
	}
	return 0
}

// resetPeakMemory makes peakMemory count from now on, where the system can.
func resetPeakMemory(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // Linux: resets VmHWM
}

// stat is what /proc reports for a process.
type stat struct {
	parent int
	own    time.Duration // processor time
	ended  time.Duration // processor time of its children that have ended
}

// readStat reads /proc. ok is false if there is no such process or no /proc.
func readStat(pid int) (s stat, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, false
	}
	// The second field, a name in parentheses, may contain blanks and parentheses.
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 15 {
		return stat{}, false
	}
	ticks := func(i int) time.Duration {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0
		}
		return time.Duration(n) * (time.Second / 100) // USER_HZ in /proc is always 100 on Linux
	}
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return stat{}, false
	}
	s.own, s.ended = ticks(11)+ticks(12), ticks(13)+ticks(14)
	return s, true
}

// processTime returns the processor time of a process, or 0 if it is unknown.
func processTime(pid int) time.Duration {
	s, _ := readStat(pid)
	return s.own
}

// familyTime returns the processor time of a process and its children, including those that have ended.
func familyTime(pid int) time.Duration {
	for {
		s, _ := readStat(pid)
		total := s.own + s.ended
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return total
		}
		for _, entry := range entries {
			if child, err := strconv.Atoi(entry.Name()); err == nil {
				if s, ok := readStat(child); ok && s.parent == pid {
					total += s.own
				}
			}
		}
		// A child that has ended meanwhile may have been counted in neither place.
		if again, _ := readStat(pid); again.ended == s.ended {
			return total
		}
	}
}

// postmaster returns the parent process of all sessions of the database's server.
func (db *database) postmaster(ctx context.Context) (int, error) {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var pid int
	if err := conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		return 0, err
	}
	stat, ok := readStat(pid)
	if !ok {
		return 0, errors.New("the database's server is not a process of this machine")
	}
	return stat.parent, nil
}
