package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/manifold-es/manifold/client"
)

// connect returns a client of the service that the environment names.
func connect() *client.Client {
	c, err := client.NewClient(os.Getenv("MANIFOLD_URL"), client.WithKey(os.Getenv("MANIFOLD_KEY")), client.WithRetries(client.Retry{}))
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// The examples run in this order, against one tenant (TestExamples).

func Example_append() {
	ctx, c := context.Background(), connect()
	none := "none"
	params := &client.AppendToStreamParams{ExpectedVersion: &none}
	placed, err := client.Read[client.AppendedStream](c.AppendToStream(ctx, "order-1", params, client.NewEvents{
		{Type: "OrderPlaced", Data: json.RawMessage(`{"customer": "Ada"}`)},
		{Type: "ItemAdded", Data: json.RawMessage(`{"sku": "A-1", "qty": 2}`)},
	}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(placed.Version, placed.Position)
}

func Example_problem() {
	ctx, c := context.Background(), connect()
	one := "1"
	params := &client.AppendToStreamParams{ExpectedVersion: &one}
	_, err := client.Read[client.AppendedStream](c.AppendToStream(ctx, "order-1", params, client.NewEvents{
		{Type: "OrderPaid", Data: json.RawMessage(`{}`)},
	}))
	var problem *client.ProblemError
	if errors.As(err, &problem) && problem.Code == "version-conflict" {
		fmt.Println(problem.Status, problem.Code, *problem.CurrentVersion)
	}
}

func Example_follow() {
	ctx, c := context.Background(), connect()
	for event, err := range c.Follow(ctx, client.FollowOptions{Category: "order", From: "start"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Position, event.Type)
		if event.Position == 2 {
			break // closes the connection
		}
	}
}

func Example_consume() {
	ctx, c := context.Background(), connect()
	group := client.NewSubscription{
		Source: &client.SubscriptionSource{Categories: []string{"order"}}, Types: []string{"OrderPlaced"}, Ordering: "stream",
	}
	if _, err := client.Read[client.Subscription](c.PutSubscription(ctx, "mail", group)); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(ctx) // usually signal.NotifyContext
	err := c.Consume(ctx, "mail", func(ctx context.Context, delivery client.Delivery) error {
		fmt.Println("mail for", delivery.Event.Stream, "attempt", delivery.Attempt)
		stop()
		return nil
	}, client.ConsumeOptions{})
	fmt.Println("stopped:", err)
}

func Example_query() {
	ctx, c := context.Background(), connect()
	_, err := client.Read[client.Projection](c.PutProjection(ctx, "customers", nil, client.Definition{
		Key: "event.stream",
		On:  map[string]string{"OrderPlaced": `{"customer": event.data.customer}`},
	}))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Read[client.ProjectionState](c.CatchUpProjection(ctx, "customers", nil)); err != nil {
		log.Fatal(err)
	}
	filter := `doc.customer == "Ada"`
	for document, err := range c.Documents(ctx, "customers", &client.ListDocumentsParams{Filter: &filter}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(document.Id)
	}
	events, position, err := c.Search(ctx, client.Query{Items: []client.QueryItem{{Types: []string{"OrderPlaced"}}}}, 0)
	fmt.Println(len(events), "event, up to", position, err)
}

func Example_command() {
	ctx, c := context.Background(), connect()
	_, err := client.Read[client.Aggregate](c.PutAggregate(ctx, "cart", client.Aggregate{
		Initial: json.RawMessage(`{"open": true}`),
		On:      map[string]string{"CartClosed": `{"open": false}`},
		Commands: json.RawMessage(`{"Close": {
			"require": [{"if": "state.open", "reject": "closed"}],
			"emit": [{"CartClosed": "{}"}]
		}}`),
	}))
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		command := client.Command{Data: json.RawMessage(`{}`)}
		outcome, err := client.Read[client.CommandOutcome](c.SendCommand(ctx, "cart", "1", "Close", nil, command))
		var problem *client.ProblemError
		if errors.As(err, &problem) {
			fmt.Println(problem.Code, problem.Reason)
			continue
		}
		fmt.Println(outcome.Outcome)
	}
}
