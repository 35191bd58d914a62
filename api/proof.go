package api

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/proof"
	"github.com/manifold-es/manifold/signing"
)

// getCheckpoint answers with the signed note as it is, which is the format of transparency logs.
func (s *Server) getCheckpoint(c echo.Context, caller access.Caller) error {
	checkpoint, err := s.config.Seals.Checkpoint(c.Request().Context(), caller.Tenant)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.String(http.StatusOK, checkpoint)
}

func (s operations) GetInclusionProof(
	ctx context.Context, caller access.Caller, request openapi.GetInclusionProofRequest,
) (*openapi.Response, error) {
	position, size := request.Params.Position, request.Params.Size
	leaf, hashes, err := s.config.Seals.Inclusion(ctx, caller.Tenant, position, size)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.InclusionProof{
		Position: position, Size: size, Leaf: leaf.String(), Hashes: convert(hashes, proof.Hash.String),
	}), nil
}

func (s operations) GetConsistencyProof(
	ctx context.Context, caller access.Caller, request openapi.GetConsistencyProofRequest,
) (*openapi.Response, error) {
	from, to := request.Params.From, request.Params.To
	hashes, err := s.config.Seals.Consistency(ctx, caller.Tenant, from, to)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.ConsistencyProof{From: from, To: to, Hashes: convert(hashes, proof.Hash.String)}), nil
}

func (s operations) GetLeaves(
	ctx context.Context, caller access.Caller, request openapi.GetLeavesRequest,
) (*openapi.Response, error) {
	block, receipts, err := s.config.Seals.Leaves(ctx, caller.Tenant, request.Params.Block)
	if err != nil {
		return nil, err
	}
	var leaves, contents, salts, tiles []byte
	for _, leaf := range block.Leaves {
		leaves, contents = append(leaves, leaf.Hash[:]...), append(contents, leaf.Content[:]...)
		salts = append(salts, leaf.Salt[:]...)
	}
	for _, root := range block.Tiles {
		tiles = append(tiles, root[:]...)
	}
	text := base64.StdEncoding.EncodeToString
	return openapi.OK(openapi.LeafBlock{
		Block: request.Params.Block, Leaves: text(leaves), Contents: text(contents), Salts: text(salts), Tiles: text(tiles),
		Receipts: append([]string{}, receipts...),
	}), nil
}

func (s operations) ListSigningKeys(
	ctx context.Context, caller access.Caller, _ openapi.ListSigningKeysRequest,
) (*openapi.Response, error) {
	keys, err := s.config.Signing.Reload(ctx)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.SigningKeyList{Keys: convert(keys.Verifiers(), signingKeyAnswer)}), nil
}

func (s operations) RotateSigningKeys(
	ctx context.Context, caller access.Caller, _ openapi.RotateSigningKeysRequest,
) (*openapi.Response, error) {
	keys, err := s.config.Signing.Rotate(ctx)
	if err != nil {
		return nil, err
	}
	return openapi.Created(signingKeyAnswer(keys.Verifiers()[0])), nil
}

func signingKeyAnswer(key signing.Verifier) openapi.SigningKey {
	return openapi.SigningKey{Verifier: key.Text, Signs: key.Signs, CreatedAt: openapi.At(key.CreatedAt)}
}
