package transfer

import (
	"bytes"
	"context"
	"net/http"
	"slices"

	"github.com/klauspost/compress/gzhttp"
	"github.com/klauspost/compress/gzip"
	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

const (
	// worthCompressing is the minimum size of a compressed answer. A smaller one fits into one packet anyway.
	worthCompressing = 1400
	// compressorBytes is the memory of an encoder, including its buffered data.
	compressorBytes = 1 << 20
	// compressedAtOnce is how much is compressed in one turn: about a millisecond's work.
	compressedAtOnce = 64 << 10
)

// Compressor compresses answers.
type Compressor struct {
	wrap   func(http.Handler) http.HandlerFunc
	memory *fairshare.Budget // charged for encoders
	work   *fairshare.Budget // processors
}

// NewCompressor returns a compressor with the library's middleware, which chooses between zstd and gzip, and keeps
// encoders for reuse.
func NewCompressor(memory, work *fairshare.Budget) (Compressor, error) {
	wrap, err := gzhttp.NewWrapper(gzhttp.MinSize(worthCompressing), gzhttp.CompressionLevel(gzip.BestSpeed),
		gzhttp.ContentTypeFilter(gzhttp.CompressAllContentTypeFilter), gzhttp.SetContentType(false))
	return Compressor{wrap: wrap, memory: memory, work: work}, err
}

// Run calls handle, whose answer is compressed if the client accepts it and its tenant has room for an encoder. ctx is
// the request's, without the time limit of handle.
func (z Compressor) Run(ctx context.Context, c echo.Context, tenant domain.TenantID, handle func() error) (err error) {
	response := c.Response()
	plain := response.Writer
	out := &compressorOutput{ResponseWriter: plain}
	w := &compressedWriter{
		ResponseWriter: plain, out: out, ctx: ctx,
		memory: z.memory.Account(tenant), turn: z.work.Account(tenant),
	}
	defer func() {
		response.Writer = plain
		w.turn.Close()
		_, _ = out.ready.WriteTo(plain) // an error means that the client has disconnected
		w.memory.Close()
		out.ResponseWriter = nil // the library's pool keeps out
	}()
	// The library does not compress answers to HEAD, which must have the headers of GET.
	negotiated := &http.Request{Method: http.MethodGet, Header: c.Request().Header}
	z.wrap(http.HandlerFunc(func(library http.ResponseWriter, _ *http.Request) {
		if compressor, ok := library.(*gzhttp.GzipResponseWriter); ok {
			w.compressor = compressor
			response.Writer = w
		}
		err = handle()
		if w.compressing {
			_ = w.turn.Wait(w.ctx, 1, 0) // for the end of the answer, which the library writes next
		}
	}))(out, negotiated)
	return err
}

// compressedWriter passes an answer to the library piece by piece, in turns, since the tenants share the processors.
// A turn never waits for a client that does not read.
type compressedWriter struct {
	http.ResponseWriter // without compression
	ctx                 context.Context
	compressor          *gzhttp.GzipResponseWriter
	out                 *compressorOutput
	memory              *fairshare.Account // charged for the encoder
	turn                *fairshare.Account
	written             int
	started             bool
	compressing         bool
}

// Unwrap lets http.ResponseController reach the connection.
func (w *compressedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *compressedWriter) WriteHeader(status int) { w.compressor.WriteHeader(status) }

func (w *compressedWriter) Write(p []byte) (int, error) {
	w.written += len(p)
	if !w.started && w.written < worthCompressing {
		return w.compressor.Write(p) // which holds it back
	}
	w.start()
	if !w.compressing {
		return w.compressor.Write(p)
	}
	for piece := range slices.Chunk(p, compressedAtOnce) {
		if err := w.inTurn(func() error { _, err := w.compressor.Write(piece); return err }); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// FlushError sends everything written so far. Only streaming answers flush.
func (w *compressedWriter) FlushError() error {
	if w.written == 0 {
		return nil // the library has not chosen the headers yet
	}
	w.start()
	flush := func() error { w.compressor.Flush(); return nil }
	if w.compressing {
		if err := w.inTurn(flush); err != nil {
			return err
		}
	} else {
		_ = flush()
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Flush is for callers that know only http.Flusher.
func (w *compressedWriter) Flush() { _ = w.FlushError() }

// start decides whether to compress, before the library does.
func (w *compressedWriter) start() {
	if w.started {
		return
	}
	w.started = true
	if w.compressing = w.memory.Grow(compressorBytes) == nil; !w.compressing {
		w.Header().Set(gzhttp.HeaderNoCompression, "the tenant has no room for an encoder")
	}
}

// inTurn calls do when it is the tenant's turn, and then writes the encoder's output.
func (w *compressedWriter) inTurn(do func() error) error {
	if err := w.turn.Wait(w.ctx, 1, 0); err != nil {
		return err
	}
	err := do()
	w.turn.Close()
	if err != nil {
		return err
	}
	_, err = w.out.ready.WriteTo(w.ResponseWriter)
	return err
}

// compressorOutput is where the library writes. It keeps compressed data until the turn has ended.
type compressorOutput struct {
	http.ResponseWriter
	ready bytes.Buffer
}

func (o *compressorOutput) Write(p []byte) (int, error) {
	if o.Header().Get("Content-Encoding") == "" {
		return o.ResponseWriter.Write(p)
	}
	return o.ready.Write(p)
}
