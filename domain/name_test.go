package domain_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct{ plain, projection, group bool }{
		"orders": {true, true, true}, "order-summary_2": {true, true, true}, strings.Repeat("n", 100): {true, true, true},
		"process.state": {false, true, false}, "a.b.c-d": {false, true, false}, "orders.v7": {false, true, false},
		"webhook.mail": {false, true, true}, "changes.process.state": {false, true, true}, "replay.mail.7": {},
		"reactor." + strings.Repeat("n", 100): {false, false, true}, "egress." + strings.Repeat("n", 101): {},
		"": {}, "Orders": {}, "1st": {}, "-a": {}, "a b": {}, "a/b": {}, "ä": {}, strings.Repeat("n", 101): {},
		".a": {}, "a.": {}, "a..b": {}, "orders.7": {}, "a.B": {}, "a.-b": {}, "changes.": {}, "changes.7": {},
	} {
		for check, want := range map[string]struct {
			err error
			ok  bool
		}{
			"CheckName":           {domain.CheckName("name", name), of.plain},
			"CheckProjectionName": {domain.CheckProjectionName("name", name), of.projection},
			"CheckGroupName":      {domain.CheckGroupName("name", name), of.group},
		} {
			if (want.err == nil) != want.ok {
				t.Errorf("%s of %q: %v", check, name, want.err)
			}
		}
	}
}
