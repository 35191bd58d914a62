package systemtest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// filledTo waits until a rebuild's fill has passed a document, and returns the last saved one.
func filledTo(t *testing.T, super *pgxpool.Pool, past string) (document string) {
	t.Helper()
	for document <= past {
		var ended bool
		err := super.QueryRow(t.Context(), `
			select coalesce((select f.value->>'document' from jsonb_each(r.fills) as f), ''), r.ended_at is not null, pg_sleep(0.01)::text
			from manifold.rebuilds r`).Scan(&document, &ended, new(string))
		if err != nil {
			t.Fatal(err)
		}
		if ended {
			t.Fatalf("the rebuild has ended; its fill was not seen past %q", past)
		}
	}
	return document
}

// A service that is killed while it makes a new build's documents stream by stream is replaced by one that continues,
// and the documents are those of all events.
func TestKillDuringAFill(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	s := serve(t, db)
	id, u := newTenant(t, newUser(t, services{s}, operatorKey), "acme")
	u.must(t, 201, nil, "PUT", "/v1/projections/notes", map[string]any{"on": map[string]string{"Nothing": "doc"}})
	const streams, events = 20_000, 30_000 // so many documents do not fit into a rebuild's memory
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	_, err := super.Exec(t.Context(), `
		insert into manifold.events (tenant_id, position, event_id, stream_id, stream_version, event_type, event_data, created_at)
		select '`+id+`', n, gen_random_uuid(), 'note-' || lpad((n % 20000)::text, 5, '0'), 1 + n / 20000, 'Noted', jsonb_build_object('text', repeat('x', 5000)), now()
		from generate_series(1, 30000) as n;
		insert into manifold.logs (tenant_id, head, last_at) values ('`+id+`', 30000, now()) on conflict (tenant_id) do update set head = excluded.head, last_at = excluded.last_at;
		analyze manifold.events`)
	if err != nil {
		t.Fatal(err)
	}
	var started client.Rebuild
	u.must(t, 202, &started, "PUT", "/v1/projections/notes", map[string]any{
		"on": map[string]string{"Noted": "{'times': doc.?times.orValue(0) + 1, 'text': event.data.text}"},
	})
	last := ""
	for range 2 {
		last = filledTo(t, super, last)
		s.kill()
		// The next process takes over when the dead one counts as abandoned.
		if _, err := super.Exec(t.Context(), "update manifold.rebuilds set alive_at = now() - interval '1 hour'"); err != nil {
			t.Fatal(err)
		}
		s.start()
	}
	for ended := false; !ended; {
		if err := super.QueryRow(t.Context(), "select ended_at is not null, pg_sleep(0.02)::text from manifold.rebuilds").Scan(&ended, new(string)); err != nil {
			t.Fatal(err)
		}
	}
	u.must(t, 200, &started, "GET", "/v1/projections/notes/rebuilds/"+started.Id, nil)
	if started.State != "swapped" || started.EventsDone != events || started.Documents != streams {
		t.Fatalf("the rebuild is %+v", started)
	}
	var documents, times, sound, fills int
	err = super.QueryRow(t.Context(), `
		select count(*), sum((document->>'times')::int), count(*) filter (where length(document->>'text') = 5000)
		from manifold_documents.documents where id <> ''`).Scan(&documents, &times, &sound)
	if err == nil {
		err = super.QueryRow(t.Context(), "select count(fills) from manifold.rebuilds").Scan(&fills)
	}
	if err != nil || documents != streams || times != events || sound != streams || fills != 0 {
		t.Errorf("%d documents, %d of them whole, of %d events, %d fills, %v", documents, sound, times, fills, err)
	}
}
