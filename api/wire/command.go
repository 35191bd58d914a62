package wire

import (
	"cmp"
	"encoding/json"
	"strconv"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/domain"
)

// MaxCommands is how many commands one request may have.
const MaxCommands = 100

// maxKeyBytes is the longest idempotency key.
const maxKeyBytes = 200

// The fields of a command: alone, and as one of several. The first ones are required.
var (
	commandFields = []string{"data", "metadata"}
	entryFields   = []string{"stream", "command", "data", "metadata", "expectedVersion", "idempotencyKey", "minPosition"}
)

// DecodeCommand decodes the body of a command. metadata is nil if there is none.
func DecodeCommand(text []byte) (data, metadata json.RawMessage, err error) {
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	given, at, err := d.readObject(commandFields, func(name string) (err error) {
		if name == "metadata" {
			metadata, err = d.readMembers()
		} else {
			data, err = d.readMembers()
		}
		return err
	})
	if err == nil {
		err = d.scan.End()
	}
	if err == nil && given.missing(commandFields[:1]) != "" {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "expected an object with data")
	}
	if err != nil {
		return nil, nil, d.withPlace(cmp.Or(at, "body"), err)
	}
	return data, metadata, nil
}

// DecodeCommands decodes the body of a request with several commands.
func DecodeCommands(text []byte) ([]aggregate.Command, error) {
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	var commands []aggregate.Command
	_, _, err := d.readObject([]string{"commands"}, func(string) error {
		return d.withPlace("commands", d.scan.Array(func(i int) error {
			if len(commands) == MaxCommands {
				return domain.Errorf(domain.CodeTooLarge, "commands", "the request has more than %d commands; split it", MaxCommands)
			}
			where := "commands[" + strconv.Itoa(i) + "]"
			command, err := d.readCommand(where)
			commands = append(commands, command)
			return d.withPlace(where, err)
		}))
	})
	if err == nil {
		err = d.scan.End()
	}
	if err == nil && len(commands) == 0 {
		err = domain.Errorf(domain.CodeInvalidRequest, "commands", "give at least one command")
	}
	if err != nil {
		return nil, d.withPlace("body", err)
	}
	return commands, nil
}

func (d *bodyReader) readCommand(where string) (aggregate.Command, error) {
	command := aggregate.Command{Expected: domain.Any}
	given, at, err := d.readObject(entryFields, func(name string) (err error) {
		switch name {
		case "stream":
			if command.Stream, err = d.readString(where + ".stream"); err == nil {
				err = domain.CheckStream(where+".stream", command.Stream)
			}
		case "command":
			if command.Name, err = d.readString(where + ".command"); err == nil {
				err = aggregate.CheckCommand(where+".command", command.Name)
			}
		case "data":
			command.Data, err = d.readMembers()
		case "metadata":
			command.Metadata, err = d.readMembers()
		case "expectedVersion":
			command.Expected, err = d.readExpected(where + ".expectedVersion")
		case "idempotencyKey":
			if command.Key, err = d.readString(where + ".idempotencyKey"); err == nil {
				err = CheckIdempotencyKey(where+".idempotencyKey", command.Key)
			}
		case "minPosition":
			var raw json.RawMessage
			if raw, err = d.scan.Value(); err == nil {
				command.MinPosition, err = ParsePosition(where+".minPosition", string(raw))
			}
		}
		return err
	})
	if err == nil && given.missing(entryFields[:3]) != "" {
		err = domain.Errorf(domain.CodeInvalidRequest, where, "expected an object with stream, command and data")
	}
	return command, d.withPlace(place(where, at), err)
}

// ParsePosition reads a position from 1 on.
func ParsePosition(where, text string) (int64, error) {
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 1 {
		return 0, domain.Errorf(domain.CodeInvalidRequest, where, "%q is not a position such as 17", domain.Clip(text, 40))
	}
	return position, nil
}

// readMembers reads an object, as the bytes that came in.
func (d *bodyReader) readMembers() (json.RawMessage, error) {
	raw, err := d.scan.Value()
	if err == nil && raw[0] != '{' {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "it must be an object")
	}
	return raw, err
}

// CheckIdempotencyKey returns an error unless key is valid: 1 to 200 printable ASCII characters without space.
func CheckIdempotencyKey(where, key string) error {
	printable := key != "" && len(key) <= maxKeyBytes
	for i := 0; printable && i < len(key); i++ {
		printable = key[i] > ' ' && key[i] <= '~'
	}
	if !printable {
		return domain.Errorf(domain.CodeInvalidRequest, where, "it must be 1 to %d printable ASCII characters without space", maxKeyBytes)
	}
	return nil
}

// AppendOutcome writes an outcome. Names of streams, types and ids contain nothing to escape.
func AppendOutcome(b []byte, outcome aggregate.Outcome, dryRun bool) []byte {
	b = append(b, `{"outcome":"`...)
	b = append(b, outcome.Kind...)
	b = append(b, `","stream":"`...)
	b = append(b, outcome.Stream...)
	b = append(b, `","version":`...)
	b = strconv.AppendInt(b, outcome.Version, 10)
	if outcome.Position > 0 {
		b = AppendNumber(b, "position", outcome.Position)
	}
	b = append(b, `,"events":[`...)
	for i, event := range outcome.Events {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"stream":"`...)
		b = append(b, event.Stream...)
		b = append(b, `","type":"`...)
		b = append(b, event.Type...)
		b = append(b, '"')
		if event.Tags != nil {
			b = appendTags(append(b, `,"tags":`...), event.Tags)
		}
		if dryRun {
			b = append(append(b, `,"data":`...), event.Data...)
			if event.Metadata != nil {
				b = append(append(b, `,"metadata":`...), event.Metadata...)
			}
		} else {
			b = append(b, `,"id":"`...)
			b = append(b, event.ID.String()...)
			b = append(b, '"')
			b = AppendNumber(b, "version", event.Version)
			b = AppendNumber(b, "position", event.Position)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if outcome.State != nil {
		b = append(append(b, `,"state":`...), outcome.State...)
	}
	if outcome.Duplicate {
		b = append(b, `,"duplicate":true`...)
	}
	if r := outcome.Rejected; r != nil {
		b = append(b, `,"rejected":{"rule":`...)
		b = strconv.AppendInt(b, int64(r.Rule), 10)
		b = append(append(b, `,"code":"`...), r.Code...)
		b = append(b, `","message":`...)
		b = append(AppendJSONText(b, r.Message), '}')
	}
	if len(outcome.Rules) > 0 {
		b = append(b, `,"rules":[`...)
		for i, rule := range outcome.Rules {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendRule(b, rule, outcome.Rejected)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}

// appendRule writes a rule. rejected is the outcome's rejection, by its last rule.
func appendRule(b []byte, rule aggregate.DecidedRule, rejected *aggregate.Rejection) []byte {
	b = strconv.AppendInt(append(b, `{"rule":`...), int64(rule.Rule), 10)
	b = AppendJSONText(append(b, `,"if":`...), rule.If)
	b = strconv.AppendBool(append(b, `,"holds":`...), rule.Holds)
	b = append(append(append(b, `,"code":"`...), rule.Reject...), '"')
	if !rule.Holds && rejected.Message != "" {
		b = AppendJSONText(append(b, `,"message":`...), rejected.Message)
	}
	b = append(b, `,"values":{`...)
	var clipped []string
	for i, value := range rule.Values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(AppendJSONText(b, value.Path), ':'), value.Value...)
		if value.Clipped {
			clipped = append(clipped, value.Path)
		}
	}
	b = appendPaths(append(b, '}'), "missing", rule.Missing)
	return append(appendPaths(b, "clipped", clipped), '}')
}

// appendPaths writes a member with a list of paths, if there are any.
func appendPaths(b []byte, name string, paths []string) []byte {
	for i, path := range paths {
		if i == 0 {
			b = append(append(append(b, `,"`...), name...), `":[`...)
		} else {
			b = append(b, ',')
		}
		b = AppendJSONText(b, path)
	}
	if len(paths) > 0 {
		b = append(b, ']')
	}
	return b
}
