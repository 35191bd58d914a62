package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/manifold-es/manifold/domain"
)

// roleAppend is the child process of `bench append --direct --processes`.
const roleAppend = "append"

// These environment variables pass a child what must not be in its arguments, such as a password.
const (
	childDatabase = "MANIFOLD_BENCH_DATABASE"
	childTenants  = "MANIFOLD_BENCH_TENANTS"
)

// report is what a child prints after its measurement.
type report struct {
	Events    int64         `json:"events"`
	Took      time.Duration `json:"took"`
	Latencies []byte        `json:"latencies"` // in HdrHistogram's compressed form
}

// appendProcesses starts the children, lets them begin at the same time, and adds up their reports.
func appendProcesses(ctx context.Context, f *flags, db *database, tenants []domain.TenantID) (load, error) {
	self, err := os.Executable()
	if err != nil {
		return load{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends children that still run
	type child struct {
		cmd *exec.Cmd
		in  io.WriteCloser
		out *bufio.Reader
	}
	names := make([]string, len(tenants))
	for i, tenant := range tenants {
		names[i] = tenant.String()
	}
	var children []child
	for i := range f.processes {
		clients := f.clients / f.processes
		if i < f.clients%f.processes {
			clients++
		}
		cmd := exec.CommandContext(ctx, self, "bench", "append", "--direct", "--child", roleAppend,
			"--clients", strconv.Itoa(clients), "--batch", strconv.Itoa(f.batch),
			"--duration", f.duration.String(), "--warm-up", f.warmUp.String(), "--events", strconv.Itoa(f.events/f.processes))
		cmd.Env = append(os.Environ(), childDatabase+"="+db.super, childTenants+"="+strings.Join(names, ","))
		cmd.Stderr = os.Stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			return load{}, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return load{}, err
		}
		if err := cmd.Start(); err != nil {
			return load{}, fmt.Errorf("start a child: %w", err)
		}
		children = append(children, child{cmd, in, bufio.NewReader(out)})
	}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); err != nil || line != "ready\n" {
			return load{}, fmt.Errorf("a child process did not get ready: %q, %w", line, errors.Join(err, c.cmd.Wait()))
		}
	}
	for _, c := range children {
		if _, err := io.WriteString(c.in, "go\n"); err != nil {
			return load{}, fmt.Errorf("a child process has gone: %w", err)
		}
	}
	total := load{latencies: newHistogram()}
	for _, c := range children {
		var r report
		err := json.NewDecoder(c.out).Decode(&r)
		if err := errors.Join(err, c.cmd.Wait()); err != nil {
			return load{}, fmt.Errorf("a child process failed: %w", err)
		}
		h, err := hdrhistogram.Decode(r.Latencies)
		if err != nil {
			return load{}, fmt.Errorf("a child's latencies: %w", err)
		}
		total.events += r.Events
		total.took = max(total.took, r.Took)
		total.latencies.Merge(h)
	}
	return total, nil
}

// appendChild is such a child. It reports that it is ready, waits for a line, measures and reports.
func appendChild(ctx context.Context, f *flags) error {
	var tenants []domain.TenantID
	for name := range strings.SplitSeq(os.Getenv(childTenants), ",") {
		tenant, err := domain.ParseTenantID(name)
		if err != nil {
			return fmt.Errorf("%s: %w", childTenants, err)
		}
		tenants = append(tenants, tenant)
	}
	measured, err := appendStore(ctx, f, os.Getenv(childDatabase), tenants, f.clients, func() error {
		fmt.Println("ready")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n')
		return err
	})
	if err != nil {
		return err
	}
	latencies, err := measured.latencies.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report{measured.events, measured.took, latencies})
}
