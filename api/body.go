package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/manifold-es/manifold/domain"
)

// trustedLength is up to how many bytes a Content-Length is believed before the bytes have come: a claim alone must not
// cost memory.
const trustedLength = 256 << 10

// decoders keeps the decompressors of request bodies for the next one.
type decoders struct {
	gzip sync.Pool
	zstd sync.Pool
}

// reader returns the request's body uncompressed, and a function that gives the decompressor back once the body was
// read.
func (d *decoders) reader(request *http.Request) (io.Reader, func(), error) {
	switch encoding := request.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return request.Body, func() {}, nil
	case "gzip":
		r, ok := d.gzip.Get().(*gzip.Reader)
		if !ok {
			r = new(gzip.Reader)
		}
		if err := r.Reset(request.Body); err != nil {
			d.gzip.Put(r)
			return nil, nil, undecodable("gzip", err)
		}
		return decoding{r, "gzip"}, func() { d.gzip.Put(r) }, nil
	case "zstd":
		r, ok := d.zstd.Get().(*zstd.Decoder)
		if !ok {
			var err error
			// One goroutine, and windows of up to 8 MiB: what RFC 8878 asks of every decoder.
			if r, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20)); err != nil {
				return nil, nil, fmt.Errorf("make a zstd decoder: %w", err)
			}
		}
		if err := r.Reset(request.Body); err != nil {
			d.zstd.Put(r)
			return nil, nil, undecodable("zstd", err)
		}
		return decoding{r, "zstd"}, func() {
			if r.Reset(nil) == nil { // lets go of the request
				d.zstd.Put(r)
			}
		}, nil
	default:
		return nil, nil, domain.Errorf(codeUnsupportedMediaType, "Content-Encoding", "%q is not taken; gzip and zstd are, or none", clip(encoding, 40))
	}
}

// decoding tells errors of the decompressor from those of the connection.
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
	if unwelcome := unreadable(err); unwelcome != err {
		return unwelcome
	}
	return domain.Errorf(domain.CodeInvalidRequest, "body", "it cannot be decompressed as %s: %s", encoding, err)
}

// unreadable turns the errors of reading a body that are the client's into *domain.Error, and leaves others.
func unreadable(err error) error {
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return domain.Errorf(domain.CodeTooLarge, "body", "the body has more than %d bytes", tooLarge.Limit)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return domain.Errorf(domain.CodeInvalidRequest, "body", "it did not come in time")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return domain.Errorf(domain.CodeInvalidRequest, "body", "it ended too early")
	}
	return err
}

// readBody reads a whole request body, uncompressed, of at most domain.MaxRequestBytes. The bytes belong to the caller.
func (d *decoders) readBody(request *http.Request) ([]byte, error) {
	length := request.ContentLength
	if length > domain.MaxRequestBytes {
		return nil, requestTooLarge()
	}
	plain, done, err := d.reader(request)
	if err != nil {
		return nil, err
	}
	defer done()
	if plain == request.Body && length >= 0 && length <= trustedLength {
		body := make([]byte, length)
		if _, err := io.ReadFull(plain, body); err != nil {
			return nil, unreadable(err)
		}
		return body, nil
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(io.LimitReader(plain, domain.MaxRequestBytes+1)); err != nil {
		return nil, unreadable(err)
	}
	if body.Len() > domain.MaxRequestBytes {
		return nil, requestTooLarge()
	}
	return body.Bytes(), nil
}

func requestTooLarge() error {
	return domain.Errorf(domain.CodeTooLarge, "body", "the request has more than %d bytes uncompressed; split it", domain.MaxRequestBytes)
}
