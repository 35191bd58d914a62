package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const accountFile = `category: account
initial: {balance: 0, open: true}
on:
  Deposited: 'merge(state, {"balance": state.balance + event.data.amount})'
  Withdrawn: 'merge(state, {"balance": state.balance - event.data.amount})'
commands:
  Deposit:
    require:
      - {if: 'state.open', reject: closed}
    emit:
      - {if: command.amount > 0, Deposited: '{"amount": command.amount}'}
  Withdraw:
    require:
      - {if: 'state.open && !has(state.frozen)', reject: closed}
      - if: |
          state.balance
            >= command.amount
        reject: overdrawn
        message: '"there are " + string(state.balance)'
    emit:
      - Withdrawn: '{"amount": command.amount}'
`

// said checks a command's exit code and what it prints.
func said(t *testing.T, o outcome, code int, want ...string) {
	t.Helper()
	for _, text := range want {
		if o.code != code || !strings.Contains(o.out+o.err, text) {
			t.Errorf("it ends with %d and says\n%s%s\nwant %d and %q", o.code, o.out, o.err, code, text)
		}
	}
}

func TestCommandCommands(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "acme")
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	must(t, environ, "aggregate", "put", write("account.yaml", accountFile))
	send := func(code int, args []string, want ...string) {
		t.Helper()
		said(t, run(t, environ, strings.NewReader(`{"amount": 2}`), append([]string{"command"}, args...)...), code, want...)
	}
	deposit := []string{"send", "account-1", "Deposit", "--data", `{"amount": 5}`, "--metadata", `{"user": "<u>"}`, "--key", "k-1"}
	send(0, deposit, "accepted: account-1 is at version 1\n  1  account-1  version 1  Deposited  ")
	send(0, deposit, "version 1  (duplicate)\n")
	send(0, []string{"send", "account-1", "Deposit", "--data", "-", "--expected-version", "1"}, "is at version 2\n")
	send(1, []string{"send", "account-1", "Deposit", "--data", "@" + write("data.json", `{"amount": 1}`), "--expected-version", "1"}, "(version-conflict)")
	send(0, []string{"send", "account-1", "Deposit", "--data", `{"amount": 0}`}, "nothing to append: account-1 is at version 2\n")
	send(0, []string{"send", "account-1", "Withdraw", "--data", `{"amount": 1}`, "--metadata", `{"user": "<u>"}`, "--dry-run"},
		"accepted: account-1 would be at version 3\n  account-1  Withdrawn  {\"amount\":1}  {\"user\":\"<u>\"}\n")
	tooMuch := []string{"account-1", "Withdraw", "--data", `{"amount": 50}`}
	send(1, append([]string{"send"}, tooMuch...), "there are 7 (rejected)")
	send(1, append([]string{"send", "--dry-run"}, tooMuch...), "rejected by rule 1: overdrawn: there are 7\n", "would be rejected (overdrawn)")
	send(0, append([]string{"explain"}, tooMuch...), `rule 0  holds  state.open && !has(state.frozen)
        state.frozen  (missing)
        state.open    true
rule 1  FAILS  state.balance >= command.amount
        command.amount  50
        state.balance   7
rejected by rule 1: overdrawn: there are 7
`)
	send(0, append([]string{"explain", "--json"}, tooMuch...), `"values":{"command.amount":50,"state.balance":7}`, `"missing":["state.frozen"]`)
	send(0, []string{"explain", "account-1", "Deposit", "--data", `{"amount": 1}`, "--key", "k-1"}, "would be at version 3\n  account-1  Deposited  {\"amount\":1}")

	other := func(text string) []string {
		return append([]string{"explain", "--definition", write("other.yaml", text)}, tooMuch...)
	}
	send(0, other(strings.Replace(accountFile, ">= command.amount", "+ 50 >= command.amount", 1)),
		"rule 1  holds  state.balance + 50 >= command.amount\n        command.amount  50\n", "accepted: account-1 would be at version 3\n  account-1  Withdrawn  {\"amount\":50}")
	send(1, other(strings.Replace(accountFile, "state.balance -", "stat.balance -", 1)), "other.yaml:5: on.Withdrawn: line 1, column 26: ")
	send(1, other(strings.Replace(accountFile, "event.data.amount})", "event.data.sum})", 1)), "on.Deposited: event 1 of account-1 ")
	send(1, append(other(accountFile), "--key", "k"), "[definition key] were all set")
	send(1, other("category: other\non: {A: state}\n"), "account-1 is a stream of the category account")

	send(1, []string{"send", "account", "Deposit"}, "expected its category, a dash and an id")
	send(1, []string{"send", "account-1", "Deposit", "--data", "x"}, "--data: it is not JSON")
	send(1, []string{"send", "account-1", "Deposit", "--metadata", "-"}, "--metadata: it is not JSON")
	send(1, []string{"send", "account-1", "Deposit", "--data", "@nowhere"}, "--data: open nowhere")
	send(1, []string{"send", "account-1", "None"}, `has no command "None"`)
	if o := run(t, nil, nil, append([]string{"command"}, deposit...)...); o.code == 0 || !strings.Contains(o.err, "set MANIFOLD_KEY") {
		t.Errorf("without the service's key: %+v", o)
	}
}

func TestAggregateCommands(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "acme")
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	aggregate := func(code int, args []string, want ...string) {
		t.Helper()
		said(t, run(t, environ, nil, append([]string{"aggregate"}, args...)...), code, want...)
	}
	account := write("account.yaml", accountFile)
	aggregate(0, []string{"put", account}, "account: created\n")
	aggregate(0, []string{"put", account}, "account: nothing to change\n")
	changed := strings.Replace(accountFile, "reject: overdrawn", "reject: too-much", 1)
	aggregate(1, []string{"put", write("wrong.yaml", strings.Replace(accountFile, "state.balance -", "stat.balance -", 1)), write("account.yaml", changed)},
		"wrong.yaml:5: on.Withdrawn: line 1, column 26: ", "account: changed\n    commands.Withdraw\n      - {", `"reject":"too-much"`, `state.open && !has`)
	aggregate(0, []string{"list"}, "CATEGORY  EVENTS               COMMANDS\naccount   Deposited Withdrawn  Deposit Withdraw\n")
	shown := run(t, environ, nil, "aggregate", "show", "account")
	aggregate(0, []string{"put", write("shown.yaml", shown.out)}, "account: nothing to change\n")
	aggregate(0, []string{"show", "account", "--json"}, `"category":"account"`)
	events := write("events.json", `[{"type": "Deposited", "data": {"amount": 5}}, {"stream": "account-2", "type": "Deposited", "data": {}}, {"type": "Closed", "data": {}}]`)
	preview := []string{"preview", account, "--events", events}
	aggregate(0, preview, `1 Deposited of account-1
  {"balance":5,"open":true}
2 Deposited of account-2
  not of this stream
3 Closed of account-1
  {"balance":5,"open":true}
`)
	aggregate(0, append(preview, "--command", "Withdraw", "--data", `{"amount": 9}`), "rule 1  FAILS  state.balance >= command.amount\n", "rejected by rule 1: too-much: there are 5\n")
	aggregate(0, append(preview, "--command", "Deposit", "--data", `{"amount": 9}`, "--json"), `"steps":[{"event":"`, `"outcome":{"outcome":"accepted","stream":"account-1","version":3`)
	aggregate(1, append(preview, "--command", "Deposit", "--data", `{"amount": "x"}`), "3 Closed of account-1\n", "account.yaml:11: commands.Deposit.emit[0].if: the command cannot be decided: ")
	aggregate(1, []string{"preview", account, "--events", write("odd.json", `[{"type": "Deposited", "data": {}}]`)},
		"1 Deposited of account-1\n  cannot be folded: on.Deposited: event 1 of account-1 ", "  before: {\"balance\":0,\"open\":true}\n", "cannot fold every event")
	aggregate(1, []string{"preview", account, "--stream", "account-9"}, "there is no stream account-9")
	aggregate(1, []string{"preview", account, "--stream", "account-9", "--events", events}, "exactly one of --stream, --events")
	aggregate(1, []string{"preview", account, "--events", account}, "expected a JSON list of events")
	aggregate(1, []string{"put", write("none.yaml", "on: {A: state}\n")}, "none.yaml: it has no category")
	aggregate(1, []string{"put", write("broken.json", "{\n\"category\": 1,,}")}, "broken.json:2: not JSON")
	aggregate(1, []string{"put", write("field.yaml", "category: a\non: {A: state}\nonn: {}\n")}, `field.yaml:1: body: unknown field "onn"`)
	aggregate(1, []string{"delete", "account"}, "re-run with --yes")
	aggregate(0, []string{"delete", "account", "--yes"}, "")
	aggregate(1, []string{"show", "account"}, "(not-found)")
}

// A folder's aggregates are deployed with its projections.
func TestApplyPutsAggregates(t *testing.T) {
	t.Parallel()
	d := deployed{t: t, environ: sharedTenant(t, "acme"), folder: t.TempDir()}
	d.write("account.yaml", accountFile)
	d.write("balances.yaml", "name: balances\non: {Deposited: 'event.data'}\n")
	d.write("account.test.yaml", "cases: [{name: none, given: [], state: {balance: 0, open: true}}]\n")
	d.manifold(2, []string{"diff", "-f", d.folder}, "+ account: create\n", "+ balances: create", "2 to create")
	d.manifold(0, []string{"apply", "-f", d.folder, "--yes"}, "account: created\n", "balances: created\n")
	d.manifold(0, []string{"diff", "-f", d.folder}, "2 unchanged")
	d.write("account.yaml", strings.Replace(accountFile, "balance: 0", "balance: 1", 1))
	d.manifold(0, []string{"apply", "-f", d.folder, "--yes"}, "~ account: change at once\n    initial\n", "account: changed\n")
	d.write("account.yaml", strings.Replace(accountFile, "state.balance -", "stat.balance -", 1))
	d.manifold(1, []string{"apply", "-f", d.folder, "--yes"}, "account.yaml:5: on.Withdrawn: line 1, column 26: ")
}
