package postgres_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/outbox"
	"github.com/manifold-es/manifold/outbox/postgres"
)

// A producer changes its own tables and adds the event, in one transaction.
func ExampleAdd() {
	payOrder := func(ctx context.Context, pool *pgxpool.Pool, order string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "update orders set state = 'paid' where id = $1", order); err != nil {
				return err
			}
			return postgres.Add(ctx, tx, outbox.Event{Topic: "order", Key: order, Type: "OrderPaid", Payload: []byte(`{"by": "card"}`)})
		})
	}
	_ = payOrder
}

// A drainer, in the producer's process or in another, publishes the events.
func ExampleTable_Open() {
	publish := func(ctx context.Context, pool *pgxpool.Pool, key string) error {
		store, err := postgres.DefaultTable.Open(pool)
		if err != nil {
			return err
		}
		manifold, err := outbox.NewHTTP("https://manifold.example.com", key, nil)
		if err != nil {
			return err
		}
		drainer, err := outbox.New(outbox.Config{
			Store: store, Publish: manifold.Publish, Log: slog.Default(),
			Keep: 24 * time.Hour, // to inspect what was published; without it rows are removed at once
			Observer: outbox.Observer{Lag: func(lag outbox.Lag) {
				fmt.Println("waiting:", lag.Waiting, "the oldest since", lag.Oldest)
			}},
		})
		if err != nil {
			return err
		}
		return drainer.Run(ctx) // until ctx ends
	}
	_ = publish
}
