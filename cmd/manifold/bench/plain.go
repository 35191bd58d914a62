package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// plain is a database by itself, asked through its own client: what a driver is held against. It keeps documents in a
// table of its own, by id.
type plain interface {
	// insert makes the table anew and fills it by the database's way of inserting in bulk. What the client needs to have
	// the documents in its own form is not counted.
	insert(ctx context.Context, documents []plainDocument) (took time.Duration, err error)
	// get reads one document.
	get(ctx context.Context, id string) error
	// close drops the table.
	close(ctx context.Context) error
}

// plainDocument is a document as the service gives it.
type plainDocument struct {
	ID       string          `json:"id"`
	Document json.RawMessage `json:"document"`
}

// openPlain opens the database that f names; super is the URL of the benchmark's own. It returns nil for a driver that is
// not one of Manifold's: its client is not known here.
func openPlain(ctx context.Context, f *flags, super string) (plain, error) {
	databases, err := f.documentsDatabase()
	if err != nil {
		return nil, err
	}
	database, ok := databases[f.database]
	if !ok {
		return openPlainPostgres(ctx, super)
	}
	switch database.Driver {
	case "postgres":
		return openPlainPostgres(ctx, database.URL)
	case "mongo":
		return openPlainMongo(ctx, database.URL)
	case "sqlserver":
		return openPlainSQLServer(ctx, database.URL)
	}
	return nil, nil
}

// leastInserted is how many documents a bulk insert has, so that it takes long enough to be measured.
const leastInserted = 100_000

// insertLimit returns how many documents a second the database takes by its own bulk insert: the projection's, again and
// again under other ids where they are few.
func insertLimit(ctx context.Context, f *flags, s *service, progress io.Writer) (perSecond float64, err error) {
	database, err := openPlain(ctx, f, s.db.super)
	if err != nil || database == nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, database.close(context.WithoutCancel(ctx))) }()
	all, err := documents(ctx, s, ordersPath)
	if err != nil {
		return 0, err
	}
	for i, few := 0, len(all); len(all) < leastInserted && few > 0; i++ {
		all = append(all, plainDocument{ID: fmt.Sprintf("%s again %d", all[i%few].ID, i/few), Document: all[i%few].Document})
	}
	fmt.Fprintf(progress, "measuring the limit: bulk insert of %d documents ...\n", len(all))
	took, err := database.insert(ctx, all)
	if err != nil {
		return 0, fmt.Errorf("measure the bulk insert: %w", err)
	}
	return float64(len(all)) / took.Seconds(), nil
}

// documents reads all documents of a projection, page by page.
func documents(ctx context.Context, s *service, path string) ([]plainDocument, error) {
	var all []plainDocument
	for next := path + "/documents?pageSize=1000"; next != ""; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+next, nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+s.key)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		var page struct{ Documents []plainDocument }
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err := want(answer.StatusCode, http.StatusOK, body, err); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Documents...)
		next, _, _ = strings.Cut(strings.TrimPrefix(answer.Header.Get("Link"), "<"), ">")
	}
	return all, nil
}
