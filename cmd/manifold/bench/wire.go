package bench

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// wire is one HTTP/1.1 connection with keep-alive. Only one goroutine may use it. It does as little as a client can:
// a load generator on the same machine must cost almost nothing compared with the service.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	body []byte
	head string // the header lines of every request
	used time.Time
}

// redialAfter is shorter than a service leaves a connection open without a request.
const redialAfter = time.Minute

// dial connects to a service (http:// only) as the holder of key.
func dial(service, key string) (*wire, error) {
	u, err := url.Parse(service)
	if err != nil || u.Scheme != "http" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("%q is not a service's URL such as http://127.0.0.1:8080; the benchmarks speak plain HTTP", service)
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "80")
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{
		conn: conn,
		in:   bufio.NewReaderSize(conn, 64<<10),
		head: "Host: " + u.Host + "\r\nAuthorization: Bearer " + key + "\r\n",
		used: time.Now(),
	}, nil
}

func (w *wire) close() { w.conn.Close() }

// redial replaces the connection, which the service has closed if it was idle during a long step of a benchmark.
func (w *wire) redial() error {
	conn, err := net.Dial("tcp", w.conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	w.conn.Close()
	w.conn = conn
	w.in.Reset(conn)
	return nil
}

// do sends a request and reads its answer, which must have a status. headers are whole lines, each ended by CRLF. The
// returned body is valid until the next call.
func (w *wire) do(method, path, headers string, body []byte, expected int) (answer []byte, err error) {
	if err := w.send(method, path, headers, body); err != nil {
		return nil, err
	}
	return w.receive(expected)
}

// json sends a value as JSON, or no body if it is nil, and decodes the answer into another value unless that is nil.
func (w *wire) json(method, path string, value any, expected int, into any) error {
	var body []byte
	var err error
	if value != nil {
		if body, err = json.Marshal(value); err != nil {
			return err
		}
	}
	answer, err := w.do(method, path, "", body, expected)
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(answer, into)
}

// receive reads an answer with the expected status. Its body is valid until the next call. An answer with another
// status is a *statusError.
func (w *wire) receive(expected int) ([]byte, error) {
	status, length, err := w.header()
	if err != nil {
		return nil, err
	}
	var answer []byte
	if length < 0 {
		if answer, err = io.ReadAll(w.chunks()); err == nil {
			err = w.trailer()
		}
	} else {
		w.body = slices.Grow(w.body[:0], length)[:length]
		_, err = io.ReadFull(w.in, w.body)
		answer = w.body
	}
	if err == nil && status != expected {
		err = &statusError{status, string(bytes.TrimSpace(answer))}
	}
	return answer, err
}

// statusError is an answer with an unexpected status.
type statusError struct {
	status int
	body   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the service answered %d: %s", e.status, e.body)
}

// hasStatus reports whether the service answered with the status.
func hasStatus(err error, status int) bool {
	answered, ok := errors.AsType[*statusError](err)
	return ok && answered.status == status
}

func (w *wire) send(method, path, headers string, body []byte) error {
	now := time.Now()
	if now.Sub(w.used) > redialAfter {
		if err := w.redial(); err != nil {
			return err
		}
	}
	w.used = now
	w.out = append(w.out[:0], method...)
	w.out = append(w.out, ' ')
	w.out = append(w.out, path...)
	w.out = append(w.out, " HTTP/1.1\r\n"...)
	w.out = append(w.out, w.head...)
	w.out = append(w.out, headers...)
	if body != nil {
		w.out = append(w.out, "Content-Type: application/json\r\nContent-Length: "...)
		w.out = strconv.AppendInt(w.out, int64(len(body)), 10)
		w.out = append(w.out, '\r', '\n')
	}
	w.out = append(w.out, '\r', '\n')
	w.out = append(w.out, body...)
	_, err := w.conn.Write(w.out)
	return err
}

// header reads the status line and the headers. length is -1 for a chunked body.
func (w *wire) header() (status, length int, err error) {
	line, err := w.in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, 0, fmt.Errorf("this is not an HTTP/1.1 service: it answered %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, fmt.Errorf("the status line is %q", line)
	}
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			return status, length, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, 0, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = -1
		}
	}
}

// chunks returns the body of an answer whose length is -1. The trailer follows its end.
func (w *wire) chunks() io.Reader { return httputil.NewChunkedReader(w.in) }

func (w *wire) trailer() error {
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
	}
}
