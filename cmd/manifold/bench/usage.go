package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/procfs"
)

// processorTime returns how much processor time this process has used.
func processorTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// peakMemory returns a process's peak resident memory in megabytes (a million bytes), or 0 on a system without /proc.
func peakMemory(pid int) float64 {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0
	}
	return round(float64(status.VmHWM)/1e6, 1)
}

// resetPeakMemory makes peakMemory count from now on, where the system can.
func resetPeakMemory(pid int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0) // Linux: resets VmHWM
}

// stat returns what /proc reports for a process, or zeroes if there is no such process or no /proc.
func stat(pid int) procfs.ProcStat {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}
	}
	s, err := process.Stat()
	if err != nil {
		return procfs.ProcStat{}
	}
	return s
}

// familyTime returns the processor time of a process and its children, including those that have ended.
func familyTime(pid int) time.Duration {
	for {
		parent := stat(pid)
		total := parent.CPUTime() + float64(parent.CUTime+parent.CSTime)/100 // /proc always counts 100 ticks per second
		all, err := procfs.AllProcs()
		if err != nil {
			return time.Duration(total * float64(time.Second))
		}
		for _, process := range all {
			if s := stat(process.PID); s.PPID == pid {
				total += s.CPUTime()
			}
		}
		// A child that has ended meanwhile may have been counted in neither place.
		if now := stat(pid); now.CUTime == parent.CUTime && now.CSTime == parent.CSTime {
			return time.Duration(total * float64(time.Second))
		}
	}
}

// usage measures the processor time of the service, the database and this process.
type usage struct {
	service, server   int // process ids; 0: unknown
	began             time.Time
	atService, atBase time.Duration
	own               time.Duration
}

// watchUsage starts to measure processor time.
func (r *run) watchUsage(ctx context.Context) *usage {
	u := &usage{}
	if r.service.process != nil {
		u.service = r.service.process.Process.Pid
		u.atService = serviceTime(u.service)
		if server, err := r.db.postmaster(ctx); err == nil { // the server may be on another machine
			u.server = server
			u.atBase = familyTime(server)
		}
	}
	u.began, u.own = time.Now(), processorTime()
	return u
}

func serviceTime(pid int) time.Duration {
	return time.Duration(stat(pid).CPUTime() * float64(time.Second))
}

// load returns the load of events since the start.
func (u *usage) load(events int64) load {
	return load{events: events, took: time.Since(u.began), processor: processorTime() - u.own}
}

// addUsage adds the usage since the start, in processors.
func (r *Result) addUsage(u *usage) {
	r.addScaledUsage(u, 100/time.Since(u.began).Seconds(), "% of a processor", "")
}

// addUsagePerEvent adds the usage since the start per event.
func (r *Result) addUsagePerEvent(u *usage, events int64) {
	r.addScaledUsage(u, 1e6/float64(max(events, 1)), "µs", ", processor time for each event")
}

func (r *Result) addScaledUsage(u *usage, scale float64, unit, suffix string) {
	if u.service != 0 {
		r.addFigure((serviceTime(u.service)-u.atService).Seconds()*scale, unit, "service%s", suffix)
	}
	if u.server != 0 {
		r.addFigure((familyTime(u.server)-u.atBase).Seconds()*scale, unit, "database%s", suffix)
	}
}

// postmaster returns the parent process of all sessions of the database's server.
func (db *database) postmaster(ctx context.Context) (int, error) {
	conn, err := pgx.Connect(ctx, db.super)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) // while it is open, its process exists
	var pid int
	if err := conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		return 0, err
	}
	if parent := stat(pid).PPID; parent != 0 {
		return parent, nil
	}
	return 0, errors.New("the database's server is not a process of this machine")
}
