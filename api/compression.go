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

// worthCompressing is the size from which an answer is compressed: below, it goes out in one packet either way.
const worthCompressing = 1400

// compressors keeps encoders for the next answer: making one costs more than most answers.
type compressors struct {
	gzip sync.Pool
	zstd sync.Pool
}

// encoder is what gzip and zstd writers have in common.
type encoder interface {
	io.WriteCloser
	Flush() error
	Reset(io.Writer)
}

// compress compresses the answer where the client takes that, and its tenant has room for it. done ends it and puts the plain writer back; it is nil where
// nothing was wrapped.
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

// acceptedEncoding picks zstd before gzip among what Accept-Encoding has with a weight above zero; "" is none.
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
	// compressorWindow is how far zstd looks back: further takes more memory than it saves bytes.
	compressorWindow = 512 << 10
	// compressorBytes is what an encoder has in memory, with what it holds back.
	compressorBytes = 2 << 20
	// compressedAtOnce is how much is compressed in one turn: a millisecond's work, about.
	compressedAtOnce = 64 << 10
)

// compressedWriter holds the beginning of an answer back until it is known to be worth compressing. It compresses in turns,
// piece by piece: the processors are shared between tenants, and no turn lasts while a client does not read.
type compressedWriter struct {
	http.ResponseWriter
	ctx    context.Context
	memory *fairshare.Account // has the encoder
	turn   *fairshare.Account
	ready  bytes.Buffer // compressed, and not written yet

	pools    *compressors
	encoding string
	status   int // as the handler wrote it; 0: not yet
	held     []byte
	encoder  encoder
	started  bool // the header is out; where encoder is nil then, the answer goes out as it is
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

// writeCompressed writes what becomes of p.
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

// inTurn has the encoder do something when it is the tenant's turn, and writes what came out.
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

// FlushError sends what is there, compressed: who flushes streams.
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

// Flush is for who knows http.Flusher only.
func (w *compressedWriter) Flush() { _ = w.FlushError() }

// start sends the header, and what was held back.
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

// close ends the answer. Errors are those of a client that went away.
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
		// The options are constants that NewWriter takes.
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
		panic(err) // the level is a constant that it takes
	}
	return e
}

func (p *compressors) put(encoding string, e encoder) {
	e.Reset(io.Discard) // lets go of the connection
	if encoding == "zstd" {
		p.zstd.Put(e)
		return
	}
	p.gzip.Put(e)
}
