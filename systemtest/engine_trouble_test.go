package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"

	"github.com/manifold-es/manifold/client"
)

// troubled is the model's tenant with events that cannot be folded. It skips, discards and withdraws at random. Other
// tenants must not notice: no rebuild of a shared projection fails because of it, and none leaves another tenant on
// old documents.
type troubled struct {
	user
	id string
	r  *rand.Rand
}

// trouble does what a tenant's key permits, until the end.
func (tr *troubled) trouble(ctx, quit context.Context, subjects []*subject) error {
	for n := 0; quit.Err() == nil; n++ {
		if err := tr.appendOne(ctx, n); err != nil {
			return err
		}
		for _, s := range subjects {
			if s.shared {
				if err := tr.meddle(ctx, s.name); err != nil {
					return err
				}
			}
		}
		for range 5 {
			pauseBriefly(quit)
		}
	}
	return nil
}

// appendOne appends an event: one that no rule can fold, one that the rules with parks cannot fold, or a good one.
func (tr *troubled) appendOne(ctx context.Context, n int) error {
	data := fmt.Sprintf(`{"k": "key-%d", "n": %s}`, tr.r.IntN(5), []string{`"many"`, "13", "1", "2"}[tr.r.IntN(4)])
	stream := fmt.Sprint("account-", tr.r.IntN(3))
	a, err := tr.call(ctx, 0, "POST", "/v1/streams/"+stream+"/events",
		[]client.NewEvent{{Id: eventID("troubled", n), Type: "Added", Data: json.RawMessage(data)}})
	if err != nil {
		return err
	}
	if a.status != http.StatusCreated && a.status != http.StatusOK && a.code() != "refused" { // by an inline projection
		return fmt.Errorf("append to %s: %s", stream, a)
	}
	return nil
}

// meddle does one of the things about faults that may be done, where there is something to do it to.
func (tr *troubled) meddle(ctx context.Context, name string) error {
	path := "/v1/projections/" + name
	ask := func(method, path string, body, into any) error {
		a, err := tr.call(ctx, 0, method, path, body)
		switch {
		case err != nil:
			return err
		case a.status >= 500:
			return fmt.Errorf("%s %s: %s", method, path, a)
		case into != nil && a.status == http.StatusOK:
			return json.Unmarshal(a.body, into)
		}
		return nil
	}
	switch tr.r.IntN(4) {
	case 0:
		var state client.ProjectionState
		if err := ask("GET", path+"/state", nil, &state); err != nil {
			return err
		}
		position := int64(0)
		switch {
		case state.Fault != nil:
			position = state.Fault.Position
		case state.LeftBehind != nil:
			position = state.LeftBehind.Position
		}
		if position > 0 {
			return ask("POST", path+"/skip", client.Skip{Position: position}, nil)
		}
	case 1:
		var list client.ParkedDocumentList
		if err := ask("GET", path+"/parked", nil, &list); err != nil || len(list.Parked) == 0 {
			return err
		}
		return ask("DELETE", path+"/parked/"+url.PathEscape(list.Parked[0].Id), nil, nil)
	case 2:
		var list client.SkippedEventList
		if err := ask("GET", path+"/skipped", nil, &list); err != nil || len(list.Skipped) == 0 {
			return err
		}
		return ask("DELETE", fmt.Sprint(path, "/skipped/", list.Skipped[tr.r.IntN(len(list.Skipped))].Position), nil, nil)
	}
	return nil
}
