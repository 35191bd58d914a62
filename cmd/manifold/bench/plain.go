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

// plain is a database that the benchmark calls through its native client, for comparison with Manifold's driver. It
// keeps documents in a separate table, by id.
type plain interface {
	// insert creates the table again and fills it with the database's bulk insert. The time does not include
	// converting the documents for the client.
	insert(ctx context.Context, documents []plainDocument) (took time.Duration, err error)
	// get reads one document.
	get(ctx context.Context, id string) error
	// close drops the table.
	close(ctx context.Context) error
}

// plainDocument is a document as the service returns it.
type plainDocument struct {
	ID       string          `json:"id"`
	Document json.RawMessage `json:"document"`
}

// openPlain opens the database that the flags select. It returns nil for a driver that does not come with Manifold,
// since its client is unknown.
func (r *run) openPlain(ctx context.Context) (plain, error) {
	databases, err := r.documentsDatabase()
	if err != nil {
		return nil, err
	}
	database, ok := databases[r.database]
	if !ok {
		return openPlainPostgres(ctx, r.db.super)
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

// leastInserted is the least number of documents in a bulk insert, so that it takes long enough to measure.
const leastInserted = 100_000

// insertLimit is how many documents per second the database accepts in its bulk insert. It inserts the projection's
// documents, repeated with other ids if they are few.
var insertLimit = &limit{"bulk insert of such documents", measureInsert}

func measureInsert(ctx context.Context, r *run) (perSecond float64, err error) {
	database, err := r.openPlain(ctx)
	if err != nil || database == nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, database.close(context.WithoutCancel(ctx))) }()
	all, err := r.readDocuments(ctx, ordersPath)
	if err != nil {
		return 0, err
	}
	for i, few := 0, len(all); len(all) < leastInserted && few > 0; i++ {
		all = append(all, plainDocument{ID: fmt.Sprintf("%s copy %d", all[i%few].ID, i/few), Document: all[i%few].Document})
	}
	r.log("measuring the limit: bulk insert of %d documents", len(all))
	took, err := database.insert(ctx, all)
	if err != nil {
		return 0, fmt.Errorf("measure the bulk insert: %w", err)
	}
	return float64(len(all)) / took.Seconds(), nil
}

// readDocuments reads all documents of a projection, page by page.
func (r *run) readDocuments(ctx context.Context, path string) (all []plainDocument, err error) {
	for next := path + "/documents?pageSize=1000"; next != ""; {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.service.url+next, nil)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+r.service.key)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		var page struct{ Documents []plainDocument }
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err == nil && answer.StatusCode != http.StatusOK {
			err = &statusError{answer.StatusCode, string(body)}
		}
		if err == nil {
			err = json.Unmarshal(body, &page)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, page.Documents...)
		next, _, _ = strings.Cut(strings.TrimPrefix(answer.Header.Get("Link"), "<"), ">")
	}
	return all, nil
}
