package projection

import (
	"context"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"sync"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// tokenSeal encrypts page tokens: they contain values of documents, and URLs end up in the logs of proxies. All
// processes on one database share a key, so each accepts the tokens of the others. It is safe for concurrent use.
type tokenSeal struct {
	key func(ctx context.Context) ([32]byte, error)

	mu   sync.Mutex
	aead cipher.AEAD // nil until the key has been read
}

// tokenKind prevents a token of one list from being used for another.
type tokenKind string

const (
	pageTokenKind tokenKind = "documents"
	allTokenKind  tokenKind = "all documents"
)

func (s *tokenSeal) cipher(ctx context.Context) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aead != nil {
		return s.aead, nil
	}
	key, err := s.key(ctx)
	if err != nil {
		return nil, err
	}
	s.aead, err = chacha20poly1305.NewX(key[:])
	return s.aead, err
}

// seal encrypts a token.
func (s *tokenSeal) seal(ctx context.Context, kind tokenKind, plain []byte) (string, error) {
	aead, err := s.cipher(ctx)
	if err != nil {
		return "", fmt.Errorf("encrypt a page token: %w", err)
	}
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(plain)+aead.Overhead())
	rand.Read(nonce)
	return base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, plain, []byte(kind))), nil
}

// open decrypts a token from seal, and returns domain.CodeInvalidRequest for any other text.
func (s *tokenSeal) open(ctx context.Context, kind tokenKind, text string) ([]byte, error) {
	if len(text) > maxPageTokenBytes {
		return nil, invalidPageToken(text)
	}
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || base64.RawURLEncoding.EncodeToString(sealed) != text { // decoding ignores line breaks, for example
		return nil, invalidPageToken(text)
	}
	aead, err := s.cipher(ctx)
	if err != nil {
		return nil, fmt.Errorf("decrypt a page token: %w", err)
	}
	if len(sealed) < aead.NonceSize() {
		return nil, invalidPageToken(text)
	}
	plain, err := aead.Open(nil, sealed[:aead.NonceSize()], sealed[aead.NonceSize():], []byte(kind))
	if err != nil {
		return nil, invalidPageToken(text)
	}
	return plain, nil
}

func invalidPageToken(text string) error {
	return domain.Errorf(domain.CodeInvalidRequest, "pageToken", "%q is not a page token; take it from the Link header of the page before, or leave it out to begin with the first page", folding.Clip(text))
}
