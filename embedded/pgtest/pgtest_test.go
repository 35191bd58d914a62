package pgtest_test

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestX(t *testing.T) {
	for range 5 {
		b := time.Now()
		db := pgtest.Database(t)
		t.Log(time.Since(b))
		for _, r := range migrations.Roles {
			if err := db.Pool(t, r, 2).Ping(t.Context()); err != nil {
				t.Error(r, err)
			}
		}
		t.Log(time.Since(b))
	}
}
