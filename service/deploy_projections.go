package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// retryDeploy is how long to wait before another attempt to deploy a shared definition.
const retryDeploy = 10 * time.Second

// deploy brings the shared projections in line with the configuration's files and the program's own definitions. It
// creates new projections, and rebuilds changed ones while their present documents stay available. Projections that
// are no longer in a file stay. If another rebuild is under way or a database does not answer, deployRest retries
// later.
func (p *Process) deploy(ctx context.Context, e Extensions) error {
	definitions := e.Definitions()
	for _, folder := range p.config.Projections {
		read, err := folding.ReadDefinitions(folder)
		if err != nil {
			return fmt.Errorf("projections: %w", err)
		}
		definitions = append(definitions, folding.DefinitionsOf(read)...)
	}
	if p.config.Usage {
		definitions = append(definitions, folding.UsageDefinition())
	}
	seen := make(map[string]bool)
	var wrong []error
	for _, definition := range definitions {
		if seen[definition.Name] {
			wrong = append(wrong, fmt.Errorf("projection %q is defined twice", definition.Name))
		}
		seen[definition.Name] = true
		id := domain.ProjectionID{Owner: domain.Everyone, Name: definition.Name}
		if err := p.catalog.Check(ctx, id, definition); err != nil {
			wrong = append(wrong, fmt.Errorf("projection %q: %w", definition.Name, err))
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("projections: %w", errors.Join(wrong...))
	}
	for _, definition := range definitions {
		if err := p.deployOne(ctx, definition); err != nil {
			if ctx.Err() != nil {
				return err
			}
			p.deployLater = append(p.deployLater, definition)
		}
	}
	return nil
}

func (p *Process) deployOne(ctx context.Context, definition domain.Definition) error {
	by := "configuration"
	if folding.BuiltIn(domain.ProjectionID{Owner: domain.Everyone, Name: definition.Name}) {
		by = "service"
		current, err := p.catalog.Get(ctx, domain.Everyone, definition.Name)
		if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
			return err
		}
		definition.Totals = current.Definition.Totals // the operator chooses them
	}
	deployed, err := p.rebuilds.Deploy(ctx, domain.Everyone, definition, by, false)
	problem, _ := errors.AsType[*domain.Error](err)
	switch {
	case problem != nil && problem.Code == domain.CodeEventsRemoved:
		// A retry does not help: an operator must accept the loss.
		p.log.Error("a shared projection's new definition is not deployed, because its documents would lack events; to deploy it anyway, run `manifold rebuild --accept-loss` with the definition",
			"projection", definition.Name, "error", err)
		return nil
	case err != nil:
		p.log.Warn("a shared projection cannot be deployed now; trying again", "projection", definition.Name, "error", err)
	case deployed.Created:
		p.log.Info("shared projection created", "projection", definition.Name)
	case deployed.Changed:
		p.log.Info("shared projection changed", "projection", definition.Name)
	case deployed.Rebuild != nil:
		p.log.Info("shared projection changed: rebuilding it", "projection", definition.Name, "rebuild", deployed.Rebuild.ID.String())
	}
	return err
}

// deployRest retries the definitions that deploy could not deploy, until all are deployed or ctx ends.
func (p *Process) deployRest(ctx context.Context) {
	for len(p.deployLater) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(retryDeploy):
		}
		p.deployLater = slices.DeleteFunc(p.deployLater, func(d domain.Definition) bool { return p.deployOne(ctx, d) == nil })
	}
}
