package eventlog

import (
	"context"

	"github.com/manifold-es/manifold/pg"
)

// opened is a Log that closes its database as well.
type opened struct{ *Log }

func openLog(ctx context.Context, config pg.Config, observer Observer) (opened, error) {
	db, err := pg.Open(ctx, config)
	if err != nil {
		return opened{}, err
	}
	return opened{New(db, Config{Observer: observer})}, nil
}

func (o opened) Close() {
	o.Log.Close()
	o.db.Close()
}
