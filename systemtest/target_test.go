package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/manifold-es/manifold/client"
)

// rebuild builds the projection's documents again, by the next edition of its definition or by the current one, and
// waits for the end. It must be swapped in, whatever is killed meanwhile. It calls started as soon as the rebuild
// runs.
func (g *target) rebuild(ctx context.Context, changed bool, started func()) error {
	method, path, body := "POST", "/v1/projections/"+g.name+"/rebuilds", any(nil)
	if changed {
		g.edition++
		method, path, body = "PUT", "/v1/projections/"+g.name, g.definition()
	}
	a, err := g.by.call(ctx, 0, method, path, body)
	if err != nil {
		return err
	}
	var r client.Rebuild
	switch {
	case a.status == http.StatusAccepted:
		if err := json.Unmarshal(a.body, &r); err != nil {
			return err
		}
	case a.status == http.StatusConflict && a.code() == "rebuild-running", a.status == http.StatusOK:
		// The first attempt's answer was lost: it is the newest.
		var list client.RebuildList
		listed, err := g.by.call(ctx, 0, "GET", "/v1/projections/"+g.name+"/rebuilds", nil)
		if err != nil {
			return err
		}
		if err := listed.decode(http.StatusOK, &list); err != nil || len(list.Rebuilds) == 0 {
			return fmt.Errorf("no rebuild is listed: %w", err)
		}
		r = list.Rebuilds[0]
	default:
		return fmt.Errorf("%s %s: %s", method, path, a)
	}
	started()
	waiting, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it does not end"))
	defer cancel()
	for r.EndedAt == nil {
		a, err := g.by.call(waiting, 0, "GET", "/v1/projections/"+g.name+"/rebuilds/"+r.Id, nil)
		if err == nil {
			err = a.decode(http.StatusOK, &r)
		}
		if err != nil {
			return fmt.Errorf("the rebuild of %s: %w; at last it was %+v", g.name, err, r)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-waiting.Done():
		}
	}
	if r.State != "swapped" {
		return fmt.Errorf("the rebuild of %s ended so: %+v", g.name, r)
	}
	g.rebuilds++
	return nil
}

// definition returns the current edition's definition, in the database whose turn it is.
func (g *target) definition() json.RawMessage {
	definition := sumsDefinition(g.name, g.edition)
	if len(g.databases) == 0 {
		return definition
	}
	return in(definition, g.databases[g.edition%int64(len(g.databases))])
}

// in is a definition with its documents in a database.
func in(definition json.RawMessage, database string) json.RawMessage {
	return json.RawMessage(strings.Replace(string(definition), "{", fmt.Sprintf("{\"database\": %q,", database), 1))
}

// inline makes appends fold into the projection's documents.
func inline(definition json.RawMessage) json.RawMessage {
	return json.RawMessage(strings.Replace(string(definition), "{", `{"mode": "inline",`, 1))
}
