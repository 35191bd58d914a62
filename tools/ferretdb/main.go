// Command ferretdb serves MongoDB's protocol on a loopback port, for tests. It runs FerretDB on a PostgreSQL, behind a
// relay that adds promises of MongoDB that FerretDB does not keep (see relay.go).
//
//	ferretdb -postgres postgres://...
//
// It prints three addresses as mongodb:// URLs, one per line. At them the server acts as a standalone server, a replica
// set, and a sharded cluster. It ends when its standard input does, so that it does not outlive the test that started
// it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"github.com/FerretDB/FerretDB/ferretdb"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ferretdb:", err)
		os.Exit(1)
	}
}

func run() error {
	postgres := flag.String("postgres", "", "the `URL` of the database in which everything is kept")
	flag.Parse()
	if *postgres == "" {
		return errors.New("-postgres is missing")
	}
	dir, err := os.MkdirTemp("", "ferretdb-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "socket")
	server, err := ferretdb.New(&ferretdb.Config{
		Listener:      ferretdb.ListenerConfig{Unix: socket},
		Handler:       "postgresql",
		PostgreSQLURL: *postgres,
		Logger:        slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError + 1})),
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	for as, parameters := range []string{standalone: "", replicaSet: "?replicaSet=rs0", sharded: ""} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer listener.Close()
		go (&relay{socket: socket, as: deployment(as)}).serve(listener)
		fmt.Printf("mongodb://%s/%s\n", listener.Addr(), parameters)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return <-ended
}
