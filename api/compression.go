package api

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// worthCompressing is the minimum size of a compressed answer. A smaller one fits into one packet anyway.
const worthCompressing = 1400

// compressors keeps encoders for reuse: creating one costs more than most answers.
type compressors struct {
	gzip sync.Pool
	zstd sync.Pool
}

// encoder is the common interface of gzip and zstd writers.
type encoder interface {
	io.WriteCloser
	Flush() error
	Reset(io.Writer)
}

// compress compresses the answer if the client accepts it and its tenant has room for it. done ends the answer and
// restores the plain writer; it is nil if nothing was wrapped.
func (s *Server) compress(c echo.Context, tenant domain.TenantID) (done func()) {
	encoding := acceptedEncoding(c.Request().Header.Get("Accept-Encoding"))
	if encoding == "" {
		return nil
	}
	response := c.Response()
	plain := response.Writer
	w := &compressedWriter{
		ResponseWriter: plain, pools: &s.compressors, encoding: encoding,
		ctx: c.Request().Context(), memory: s.budgets.answers.Account(tenant), turn: s.budgets.work.Account(tenant),
	}
	response.Writer = w
	return func() {
		w.close()
		response.Writer = plain
	}
}

// acceptedEncoding returns zstd or else gzip, if Accept-Encoding has it with a weight above zero, or "".
func acceptedEncoding(header string) string {
	best := ""
	for item := range strings.SplitSeq(header, ",") {
		name, parameters, _ := strings.Cut(strings.TrimSpace(item), ";")
		if weight, ok := strings.CutPrefix(strings.TrimSpace(parameters), "q="); ok {
			if q, err := strconv.ParseFloat(weight, 64); err != nil || q <= 0 {
				continue
			}
		}
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "zstd":
			return "zstd"
		case "gzip":
			best = "gzip"
		}
	}
	return best
}

const (
	// compressorWindow is the zstd window. A larger one costs more memory than it saves bytes.
	compressorWindow = 512 << 10
	// compressorBytes is the memory of an encoder, including its buffered data.
	compressorBytes = 2 << 20
	// compressedAtOnce is how much is compressed in one turn: about a millisecond's work.
	compressedAtOnce = 64 << 10
)

// compressedWriter holds back the beginning of an answer until it is known to be worth compressing. It compresses piece
// by piece, in turns, since the tenants share the processors. A turn never waits for a client that does not read.
type compressedWriter struct {
	http.ResponseWriter
	ctx    context.Context
	memory *fairshare.Account // charged for the encoder
	turn   *fairshare.Account
	ready  bytes.Buffer // compressed, but not written yet

	pools    *compressors
	encoding string
	status   int // as the handler set it; 0: not yet
	held     []byte
	encoder  encoder
	started  bool // the header was sent; the answer is then plain if encoder is nil
}

// Unwrap lets http.ResponseController reach the connection.
func (w *compressedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *compressedWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

func (w *compressedWriter) Write(p []byte) (int, error) {
	if !w.started {
		if len(w.held)+len(p) < worthCompressing {
			w.held = append(w.held, p...)
			return len(p), nil
		}
		if err := w.start(true); err != nil {
			return 0, err
		}
	}
	if w.encoder != nil {
		return w.writeCompressed(p)
	}
	return w.ResponseWriter.Write(p)
}

// writeCompressed compresses p and writes the result.
func (w *compressedWriter) writeCompressed(p []byte) (int, error) {
	written := 0
	for written < len(p) {
		piece := p[written:min(len(p), written+compressedAtOnce)]
		err := w.inTurn(func() error {
			_, err := w.encoder.Write(piece)
			return err
		})
		if err != nil {
			return written, err
		}
		written += len(piece)
	}
	return written, nil
}

// inTurn calls do when it is the tenant's turn, and writes the encoder's output.
func (w *compressedWriter) inTurn(do func() error) error {
	if err := w.turn.Wait(w.ctx, 1, 0); err != nil {
		return err
	}
	err := do()
	w.turn.Close()
	if err != nil {
		return err
	}
	_, err = w.ready.WriteTo(w.ResponseWriter)
	return err
}

// FlushError sends everything written so far, compressed. Only streaming answers flush.
func (w *compressedWriter) FlushError() error {
	if !w.started {
		if err := w.start(true); err != nil {
			return err
		}
	}
	if w.encoder != nil {
		if err := w.inTurn(w.encoder.Flush); err != nil {
			return err
		}
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is for callers that know only http.Flusher.
func (w *compressedWriter) Flush() { _ = w.FlushError() }

// start sends the header and the data that was held back.
func (w *compressedWriter) start(compress bool) error {
	w.started = true
	header := w.Header()
	header.Add("Vary", "Accept-Encoding")
	if compress && header.Get("Content-Encoding") == "" && w.memory.Grow(compressorBytes) == nil {
		header.Set("Content-Encoding", w.encoding)
		header.Del("Content-Length")
		w.encoder = w.pools.get(w.encoding, &w.ready)
	}
	if w.status != 0 {
		w.ResponseWriter.WriteHeader(w.status)
	}
	held := w.held
	w.held = nil
	if len(held) == 0 {
		return nil
	}
	var err error
	if w.encoder != nil {
		_, err = w.writeCompressed(held)
	} else {
		_, err = w.ResponseWriter.Write(held)
	}
	return err
}

// close ends the answer. It ignores errors, which mean that the client has disconnected.
func (w *compressedWriter) close() {
	if !w.started && (w.status != 0 || len(w.held) > 0) {
		_ = w.start(false)
	}
	if w.encoder != nil {
		_ = w.inTurn(w.encoder.Close)
		w.pools.put(w.encoding, w.encoder)
		w.encoder = nil
	}
	w.memory.Close()
}

func (p *compressors) get(encoding string, w io.Writer) encoder {
	if encoding == "zstd" {
		if e, ok := p.zstd.Get().(*zstd.Encoder); ok {
			e.Reset(w)
			return e
		}
		// The options are constants that NewWriter accepts.
		e, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(compressorWindow))
		if err != nil {
			panic(err)
		}
		return e
	}
	if e, ok := p.gzip.Get().(*gzip.Writer); ok {
		e.Reset(w)
		return e
	}
	e, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		panic(err) // the level is a valid constant
	}
	return e
}

func (p *compressors) put(encoding string, e encoder) {
	e.Reset(io.Discard) // releases the connection
	if encoding == "zstd" {
		p.zstd.Put(e)
		return
	}
	p.gzip.Put(e)
}
