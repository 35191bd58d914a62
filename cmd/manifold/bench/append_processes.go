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

// child is a process that appends with a part of the clients. It prints a line when it is ready, waits for a line, and
// reports.
type child struct {
	process *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Reader
}

// appendInProcesses starts the children, lets them begin at the same time, and adds up their reports.
func appendInProcesses(ctx context.Context, r *run, tenants []domain.TenantID) (load, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends children that still run
	children := make([]*child, r.processes)
	for i := range children {
		var err error
		if children[i], err = r.startChild(ctx, partOf(r.clients, i, r.processes), tenants); err != nil {
			return load{}, fmt.Errorf("start a child process: %w", err)
		}
	}
	for _, c := range children {
		if line, err := c.out.ReadString('\n'); err != nil || line != "ready\n" {
			return load{}, fmt.Errorf("a child process did not get ready: %q, %w", line, errors.Join(err, c.process.Wait()))
		}
	}
	for _, c := range children {
		if _, err := io.WriteString(c.in, "go\n"); err != nil {
			return load{}, fmt.Errorf("a child process has exited: %w", err)
		}
	}
	total := load{latencies: newHistogram()}
	for _, c := range children {
		var r report
		err := json.NewDecoder(c.out).Decode(&r)
		if err := errors.Join(err, c.process.Wait()); err != nil {
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

func (r *run) startChild(ctx context.Context, clients int, tenants []domain.TenantID) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(tenants))
	for i, tenant := range tenants {
		names[i] = tenant.String()
	}
	process := exec.CommandContext(ctx, self, "bench", "append", "--direct", "--child",
		"--clients", strconv.Itoa(clients), "--batch", strconv.Itoa(r.batch),
		"--condition="+strconv.FormatBool(r.condition), "--tags="+strconv.FormatBool(r.tagged),
		"--duration", r.duration.String(), "--warm-up", r.warmUp.String(), "--events", strconv.Itoa(r.events/r.processes))
	process.Env = append(os.Environ(), childDatabase+"="+r.db.super, childTenants+"="+strings.Join(names, ","))
	process.Stderr = os.Stderr
	in, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{process, in, bufio.NewReader(out)}, process.Start()
}

// appendAsChild is what a child does.
func appendAsChild(ctx context.Context, f *flags) error {
	var tenants []domain.TenantID
	for name := range strings.SplitSeq(os.Getenv(childTenants), ",") {
		tenant, err := domain.ParseTenantID(name)
		if err != nil {
			return fmt.Errorf("%s: %w", childTenants, err)
		}
		tenants = append(tenants, tenant)
	}
	measured, err := f.appendToLogs(ctx, &database{super: os.Getenv(childDatabase)}, tenants, func() error {
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
