// Package transfer moves the bytes of requests and answers within memory limits: it decompresses and reads bodies
// (Decoders, ReadAll), reads their lines (LineReader), and compresses answers (Compressor).
package transfer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// RoomPatience is how long a request waits for its turn before it is refused.
const RoomPatience = 10 * time.Second

// trustedLength limits the memory that is allocated for a Content-Length before the bytes arrive, because a false
// Content-Length must not cost memory.
const trustedLength = 256 << 10

// Decoders keeps decompressors of request bodies for reuse.
type Decoders struct {
	gzip       sync.Pool
	zstd       sync.Pool
	zstdNarrow sync.Pool // decoders with windows up to narrowWindow
}

// Memory of decompressors, without their output.
const (
	gzipDecoderBytes = 64 << 10
	zstdBlockBytes   = 512 << 10 // of zstd, in addition to the window
	// wideWindow is the largest supported zstd window, which RFC 8878 recommends for every decoder.
	wideWindow = 8 << 20
	// narrowWindow is the largest window that most bodies use.
	narrowWindow = 512 << 10
)

// Reader returns the request's body uncompressed, and a function that returns the decompressor to its pool after the
// body was read. It charges the decompressor's memory to the account, and fails if the account has no room.
func (d *Decoders) Reader(request *http.Request, account *fairshare.Account) (io.Reader, func(), error) {
	switch encoding := request.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return request.Body, func() {}, nil
	case "gzip":
		if err := account.Grow(gzipDecoderBytes); err != nil {
			return nil, nil, err
		}
		r, ok := d.gzip.Get().(*gzip.Reader)
		if !ok {
			r = new(gzip.Reader)
		}
		if err := r.Reset(request.Body); err != nil {
			d.gzip.Put(r)
			return nil, nil, undecodable("gzip", err)
		}
		return decoding{r, "gzip"}, func() {
			d.gzip.Put(r)
			account.Shrink(gzipDecoderBytes)
		}, nil
	case "zstd":
		return d.zstdReader(request.Body, account)
	default:
		return nil, nil, domain.Errorf(problem.CodeUnsupportedMediaType, "Content-Encoding", "unsupported encoding %q; use gzip, zstd or none", domain.Clip(encoding, 40))
	}
}

// zstdReader reads the window size from the first frame, so that most bodies are not charged for the largest window.
func (d *Decoders) zstdReader(body io.Reader, account *fairshare.Account) (io.Reader, func(), error) {
	ahead := bufio.NewReaderSize(body, zstd.HeaderMaxSize)
	start, err := ahead.Peek(zstd.HeaderMaxSize)
	if err != nil && err != io.EOF {
		return nil, nil, undecodable("zstd", err)
	}
	pool, window := &d.zstd, int64(wideWindow)
	var header zstd.Header
	if header.Decode(start) == nil && !header.Skippable && max(header.WindowSize, header.FrameContentSize) <= narrowWindow {
		pool, window = &d.zstdNarrow, narrowWindow
	}
	if err := account.Grow(window + zstdBlockBytes); err != nil {
		return nil, nil, err
	}
	r, ok := pool.Get().(*zstd.Decoder)
	if !ok {
		if r, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(uint64(window))); err != nil {
			return nil, nil, fmt.Errorf("make a zstd decoder: %w", err)
		}
	}
	if err := r.Reset(ahead); err != nil {
		pool.Put(r)
		return nil, nil, undecodable("zstd", err)
	}
	return decoding{r, "zstd"}, func() {
		if r.Reset(nil) == nil { // releases the request
			pool.Put(r)
		}
		account.Shrink(window + zstdBlockBytes)
	}, nil
}

// decoding distinguishes errors of the decompressor from those of the connection.
type decoding struct {
	io.Reader
	encoding string
}

func (d decoding) Read(p []byte) (int, error) {
	n, err := d.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = undecodable(d.encoding, err)
	}
	return n, err
}

func undecodable(encoding string, err error) error {
	if unwelcome, ok := errors.AsType[*domain.Error](err); ok {
		return unwelcome
	}
	return domain.Errorf(domain.CodeInvalidRequest, "body", "invalid %s data: %s", encoding, err)
}

// ClientBody is a request's body. Its errors are *domain.Error, since the client or its connection causes every read
// error.
type ClientBody struct {
	io.ReadCloser
	Over atomic.Bool // the body was read completely, or reading failed
}

func (b *ClientBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.Over.Store(true)
	}
	if err != nil && err != io.EOF {
		err = Unreadable(err)
	}
	return n, err
}

// Unreadable returns the error for a client whose body cannot be read.
func Unreadable(err error) error {
	if known, ok := errors.AsType[*domain.Error](err); ok {
		return known
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return domain.Errorf(domain.CodeTooLarge, "body", "the body has more than %d bytes", tooLarge.Limit)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return domain.Errorf(domain.CodeInvalidRequest, "body", "the body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return domain.Errorf(domain.CodeInvalidRequest, "body", "the body ended too early")
	}
	return domain.Errorf(domain.CodeInvalidRequest, "body", "the body cannot be read: the connection broke, or its chunked encoding is invalid")
}

// ReadBody reads a whole request body, uncompressed, of at most domain.MaxRequestBytes. The caller owns the returned
// bytes. Each byte is charged to the account before its memory is allocated.
func (d *Decoders) ReadBody(request *http.Request, account *fairshare.Account) ([]byte, error) {
	length := request.ContentLength
	if length > domain.MaxRequestBytes {
		return nil, requestTooLarge()
	}
	plain, done, err := d.Reader(request, account)
	if err != nil {
		return nil, err
	}
	defer done()
	if plain != request.Body {
		length = -1 // the length of the compressed body
	}
	body, err := ReadAll(plain, length, domain.MaxRequestBytes, account.Grow, account)
	switch {
	case err == ErrTooLong:
		return nil, requestTooLarge()
	case err != nil:
		return nil, Unreadable(err)
	}
	return body, nil
}

// ErrTooLong means that a body is longer than allowed.
var ErrTooLong = errors.New("the body exceeds its limit")

// firstRead is the initial buffer size for a body of unknown length.
const firstRead = 4 << 10

// ReadAll reads at most limit bytes. length is their claimed number; -1 means unknown. The buffer grows as they arrive,
// each time after charge has charged the account.
func ReadAll(from io.Reader, length int64, limit int, charge func(bytes int64) error, account *fairshare.Account) ([]byte, error) {
	size, most := int64(firstRead), int64(limit)+1 // one byte more reveals a body that is too long
	if length >= 0 {
		size, most = min(length, trustedLength), min(length, most)
	}
	if err := charge(size); err != nil {
		return nil, err
	}
	body := make([]byte, 0, size)
	for {
		if int64(len(body)) == most {
			if len(body) > limit {
				return nil, ErrTooLong
			}
			return body, nil
		}
		if len(body) == cap(body) {
			size = min(2*int64(cap(body)), most)
			if err := charge(size); err != nil {
				return nil, err
			}
			account.Shrink(int64(cap(body)))
			body = append(make([]byte, 0, size), body...)
		}
		n, err := from.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case err == io.EOF && length > int64(len(body)):
			return nil, io.ErrUnexpectedEOF
		case err == io.EOF && len(body) > limit:
			return nil, ErrTooLong
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, err
		}
	}
}

func requestTooLarge() error {
	return domain.Errorf(domain.CodeTooLarge, "body", "the request has more than %d bytes uncompressed; split it", domain.MaxRequestBytes)
}
