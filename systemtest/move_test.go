package systemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	_ "github.com/microsoft/go-mssqldb" // for database/sql

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
	"github.com/manifold-es/manifold/drivers/sqlserver/sqlservertest"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

const ferretDB = "ferretdb"

// otherDatabases creates, for each driver, an empty database of documents for one test that is not the log's own.
var otherDatabases = map[string]func(t *testing.T) config.DocumentsDatabase{
	"postgres": func(t *testing.T) config.DocumentsDatabase {
		return config.DocumentsDatabase{Driver: "postgres", URL: pgtest.Database(t).URL(migrations.RoleDocuments)}
	},
	ferretDB: func(t *testing.T) config.DocumentsDatabase {
		return config.DocumentsDatabase{Driver: "mongo", URL: mongotest.FerretDB(t)}
	},
	"mongo": func(t *testing.T) config.DocumentsDatabase {
		return config.DocumentsDatabase{Driver: "mongo", URL: mongotest.Real(t)}
	},
	"sqlserver": func(t *testing.T) config.DocumentsDatabase {
		return config.DocumentsDatabase{Driver: "sqlserver", URL: sqlservertest.Database(t).String()}
	},
}

// unit contains the totals of an organisational unit's declarations, in cents.
type unit struct {
	Declarations int64 `json:"declarations"`
	Requested    int64 `json:"requested"`
}

// figures are the totals of the real events, as computed by another program.
type figures struct {
	Streams          int              `json:"streams"`
	ByStatus         map[string]int64 `json:"byStatus"`
	RejectionRecords int64            `json:"rejectionRecords"`
	AmountPaidCents  int64            `json:"amountPaidCents"`
	Units            map[string]unit  `json:"units"`
}

// Projections of real events move to another database and back while the events arrive. The figures must be right in
// each place, and nothing may be left in the previous one. FerretDB, which takes a millisecond or more per document,
// gets a quarter of the events. Their figures are not known beforehand; they must be the same in both places.
func TestMoveOfRealEvents(t *testing.T) {
	t.Parallel()
	file, lines := realLines(t)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "declarations.expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want figures
	if err := json.Unmarshal(text, &want); err != nil || want.Streams == 0 {
		t.Fatalf("the expected figures: %+v, %v", want, err)
	}
	for name, place := range otherDatabases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lines := lines
			if name == ferretDB {
				lines = lines[:len(lines)/4]
			}
			db := pgtest.Database(t)
			c := configuration(db)
			c.Databases = map[string]config.DocumentsDatabase{"elsewhere": place(t)}
			c.RebuildKeep = 0
			c.Usage = false // what is not moved is to be empty
			operator := newUser(t, inside(t, c), operatorKey)
			_, u := newTenant(t, operator, "university")
			definitions := make(map[string]json.RawMessage)
			for _, name := range []string{"declaration", "unit-spend", "status-counts"} {
				text, err := os.ReadFile(filepath.Join("..", "cli", "testdata", "projections", name+".yaml"))
				if err != nil {
					t.Fatal(err)
				}
				if definitions[name], err = yaml.YAMLToJSON(text); err != nil {
					t.Fatal(err)
				}
				operator.must(t, 201, nil, "PUT", "/v1/projections/"+name, definitions[name])
			}
			half := len(lines) / 2
			if err := u.load(t.Context(), lines[:half]); err != nil {
				t.Fatal(err)
			}
			arriving := make(chan error, 1)
			go func() { arriving <- u.load(t.Context(), lines[half:]) }()
			move(t, operator, definitions, "elsewhere")
			if err := <-arriving; err != nil {
				t.Fatal(err)
			}
			moved := readFigures(t, u, int64(len(lines)))
			awaitEmpty(t, db)
			move(t, operator, definitions, "default")
			back, want := readFigures(t, u, int64(len(lines))), want
			if name == ferretDB {
				want = back
			}
			if !sameFigures(moved, want) || !sameFigures(back, want) || back.Streams == 0 {
				t.Errorf("moved, the figures are\n%+v\nmoved back,\n%+v\nand should be\n%+v", moved, back, want)
			}
		})
	}
}

// load appends lines as events, some at a time.
func (u user) load(ctx context.Context, lines []importLine) error {
	for some := range slices.Chunk(lines, 1000) {
		var body strings.Builder
		encoder := json.NewEncoder(&body)
		for _, line := range some {
			if err := encoder.Encode(line); err != nil {
				return err
			}
		}
		a, err := u.call(ctx, 0, "POST", "/v1/import", []byte(body.String()), "Content-Type", "application/x-ndjson")
		if err != nil {
			return err
		}
		frames := strings.Split(strings.TrimSpace(string(a.body)), "\n")
		if last := frames[len(frames)-1]; a.status != 200 || !strings.Contains(last, `"done"`) {
			return fmt.Errorf("import: %s", a)
		}
	}
	return nil
}

// move puts the definitions with another database, and waits until each is live there.
func move(t *testing.T, operator user, definitions map[string]json.RawMessage, database string) {
	t.Helper()
	rebuilds := make(map[string]client.Rebuild)
	for name, definition := range definitions {
		var rebuild client.Rebuild
		operator.must(t, 202, &rebuild, "PUT", "/v1/projections/"+name, in(definition, database))
		rebuilds[name] = rebuild
	}
	waiting, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("it does not end"))
	defer cancel()
	for name, rebuild := range rebuilds {
		for rebuild.EndedAt == nil {
			a, err := operator.call(waiting, 0, "GET", "/v1/projections/"+name+"/rebuilds/"+rebuild.Id, nil)
			if err == nil {
				err = a.decode(200, &rebuild)
			}
			if err != nil {
				t.Fatalf("the rebuild of %s: %v; at last it was %+v", name, err, rebuild)
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-waiting.Done():
			}
		}
		if rebuild.State != "swapped" {
			t.Fatalf("the rebuild of %s ended so: %+v", name, rebuild)
		}
	}
}

// awaitEmpty waits until no table and no public name of a shared projection is in a database.
func awaitEmpty(t *testing.T, db pgtest.DB) {
	t.Helper()
	pool := db.Pool(t, pgtest.RoleSuperuser, 1)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); ; {
		var left []string
		err := pool.QueryRow(t.Context(), `select coalesce(array_agg(c.relname::text), '{}') from pg_class c
			where c.relnamespace = 'manifold_documents'::regnamespace and c.relkind in ('r', 'v', 'm') and c.relname not like 'document%'`).Scan(&left)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("there still are %v", left)
		}
	}
}

func sameFigures(a, b figures) bool {
	return a.Streams == b.Streams && a.RejectionRecords == b.RejectionRecords && a.AmountPaidCents == b.AmountPaidCents &&
		maps.Equal(a.ByStatus, b.ByStatus) && maps.Equal(a.Units, b.Units)
}

// readFigures works the figures out of the three projections' documents.
func readFigures(t *testing.T, u user, position int64) figures {
	t.Helper()
	f := figures{ByStatus: make(map[string]int64), Units: make(map[string]unit)}
	each := func(name string, do func(id string, d declared)) {
		t.Helper()
		documents, err := u.documents(t.Context(), name, 1000, position)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range documents {
			var d declared
			if err := json.Unmarshal(document.Document, &d); err != nil {
				t.Fatalf("%s of %s: %v", document.Id, name, err)
			}
			do(document.Id, d)
		}
	}
	each("declaration", func(_ string, d declared) {
		f.Streams++
		f.RejectionRecords += d.Rejections
		var status string
		if err := json.Unmarshal(d.Status, &status); err != nil {
			t.Fatal(err)
		}
		if status == "paid" {
			f.AmountPaidCents += d.AmountCents
		}
	})
	each("unit-spend", func(id string, d declared) { f.Units[id] = unit{d.Declarations, d.RequestedCents} })
	each("status-counts", func(_ string, d declared) {
		for status, n := range d.Counts {
			f.ByStatus[status] += n
		}
	})
	maps.DeleteFunc(f.ByStatus, func(_ string, n int64) bool { return n == 0 })
	return f
}

// declared contains the documents of the three projections.
type declared struct {
	Status                                                json.RawMessage
	Rejections, AmountCents, Declarations, RequestedCents int64
	Counts                                                map[string]int64
}
