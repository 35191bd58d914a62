package gateway

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// Limits for messages of gateway clients, in addition to domain's. asyncapi.yaml states the same limits, and a test
// checks that they agree.
const (
	maxCorrelationID    = 100  // characters of a message's id
	maxSubscriptionName = 100  // characters of a client's name for a subscription
	maxAnsweredIDs      = 1000 // in one ACK, NACK or MODACK
	maxSelected         = 100  // categories, and types
	maxFilterCharacters = 8000
	maxKeyCharacters    = oidc.MaxTokenBytes // in AUTH, where a token may replace the key
)

// The operations of messages that the service sends.
const (
	opOK         = "OK"
	opErr        = "ERR"
	opEvent      = "EVENT"
	opCaughtUp   = "CAUGHT_UP"
	opCheckpoint = "CHECKPOINT"
	opGap        = "GAP"
	opEnded      = "ENDED"
)

// SentOperations are the operations of messages that the service sends.
var SentOperations = []string{opOK, opErr, opEvent, opCaughtUp, opCheckpoint, opGap, opEnded}

// clientMessage is one message of a client: its operation and its other fields, each as the JSON that came in.
type clientMessage struct {
	op     string
	id     string
	fields messageFields
	size   int // in bytes

	room  *fairshare.Account // charged for the message's bytes
	waits bool               // the operation still has to run, and releases room afterwards
}

// readMessage decodes a message. If it fails, op and id are set as far as they could be read, so that the answer
// can name the message.
func readMessage(text []byte) (clientMessage, error) {
	m := clientMessage{size: len(text)}
	if err := domain.CheckJSON(text); err != nil {
		return m, domain.Errorf(domain.CodeInvalidJSON, "message", "%s", err)
	}
	m.fields = readFields("", text)
	if m.fields.values == nil {
		return m, m.fields.err // not an object
	}
	twice := m.fields.err
	m.fields.err = nil
	if m.id = m.fields.text("id", 1, maxCorrelationID); m.fields.err != nil {
		m.id = ""
	}
	m.op = m.fields.text("op", 1, math.MaxInt)
	if twice != nil {
		return m, twice
	}
	return m, m.fields.err
}

// messageFields is a JSON object whose fields are taken one by one. It keeps the first error, and end returns it. The
// fields taken are exactly the allowed ones, so end refuses any field that is left.
type messageFields struct {
	place  string // of the object, with a trailing dot; empty: the message itself
	values map[string]json.RawMessage
	known  []string
	err    error
}

// readFields decodes an object that is known to be valid JSON. A duplicate field is an error; its first value is
// kept.
func readFields(place string, text []byte) messageFields {
	f := messageFields{place: place}
	if bytes.TrimLeft(text, " \t\r\n")[0] != '{' {
		where := strings.TrimSuffix(place, ".")
		if where == "" {
			where = "message"
		}
		f.err = domain.Errorf(domain.CodeInvalidRequest, where, "it must be an object")
		return f
	}
	f.values = map[string]json.RawMessage{}
	scan := domain.NewJSONScanner(text)
	err := scan.Object(func(name string) error {
		value, err := scan.Value()
		if err != nil {
			return err
		}
		if _, there := f.values[name]; there {
			f.fail(domain.Clip(name, 60), "given twice")
		} else {
			f.values[name] = value
		}
		return nil
	})
	if err != nil {
		f.err = err
	}
	return f
}

func (f *messageFields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = domain.Errorf(domain.CodeInvalidRequest, f.place+name, format, args...)
	}
}

// field returns a field's JSON, or nil if it is absent.
func (f *messageFields) field(name string) json.RawMessage {
	f.known = append(f.known, name)
	value, there := f.values[name]
	if !there {
		return nil
	}
	delete(f.values, name)
	return value
}

// has reports whether a field is present and not yet taken.
func (f *messageFields) has(name string) bool { return f.values[name] != nil }

// text takes a string of least to most characters. It is required unless least is 0.
func (f *messageFields) text(name string, least, most int) string {
	raw := f.field(name)
	if raw == nil {
		if least > 0 {
			f.fail(name, "required, but missing")
		}
		return ""
	}
	return f.textOf(name, raw, max(least, 1), most)
}

// anyText takes an optional string of at most most characters, which may be empty.
func (f *messageFields) anyText(name string, most int) string {
	raw := f.field(name)
	if raw == nil {
		return ""
	}
	return f.textOf(name, raw, 0, most)
}

func (f *messageFields) textOf(name string, raw json.RawMessage, least, most int) string {
	if raw[0] != '"' {
		f.fail(name, "it must be a string")
		return ""
	}
	text := domain.UnquoteJSON(raw)
	switch characters := utf8.RuneCountInString(text); {
	case characters < least:
		f.fail(name, "it must not be empty")
	case characters > most:
		f.fail(name, "it has %d characters; at most %d are allowed", characters, most)
	}
	return text
}

// cloudFormat takes the field format, and reports whether it asks for CloudEvents.
func (f *messageFields) cloudFormat() bool {
	switch format := f.text("format", 0, math.MaxInt); format {
	case "", "standard":
		return false
	case "cloudevents":
		return true
	default:
		f.fail("format", "unknown format %q; it must be standard or cloudevents", domain.Clip(format, 40))
		return false
	}
}

// texts takes an optional array of at least one string.
func (f *messageFields) texts(name string, most int, check func(where, text string) error) []string {
	var all []string
	f.array(name, most, func(place string, raw json.RawMessage) {
		text := f.textOf(place, raw, 1, math.MaxInt)
		if err := check(f.place+place, text); err != nil && f.err == nil {
			f.err = err
		}
		all = append(all, text)
	})
	return all
}

// array takes an optional array of 1 to most elements, and calls element for each with its place. It reports whether
// the field is present.
func (f *messageFields) array(name string, most int, element func(place string, raw json.RawMessage)) bool {
	raw := f.field(name)
	if raw == nil {
		return false
	}
	if raw[0] != '[' {
		f.fail(name, "it must be an array")
		return true
	}
	scan := domain.NewJSONScanner(raw)
	count := 0
	err := scan.Array(func(i int) error {
		value, err := scan.Value()
		if count++; err == nil && count <= most && f.err == nil {
			element(name+"["+strconv.Itoa(i)+"]", value)
		}
		return err
	})
	switch {
	case err != nil:
		f.fail(name, "%s", err)
	case count == 0:
		f.fail(name, "it must not be empty")
	case count > most:
		f.fail(name, "it has %d elements; at most %d are allowed", count, most)
	}
	return true
}

// number takes a number from least to most, or returns otherwise if the field is absent.
func (f *messageFields) number(name string, least, most, otherwise float64) float64 {
	raw := f.field(name)
	if raw == nil {
		return otherwise
	}
	number, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(number >= least && number <= most) {
		f.fail(name, "it must be a number from %s to %s", strconv.FormatFloat(least, 'f', -1, 64), strconv.FormatFloat(most, 'f', -1, 64))
		return otherwise
	}
	return number
}

// integer is number for integers.
func (f *messageFields) integer(name string, least, most, otherwise int) int {
	given := f.values[name]
	number := f.number(name, float64(least), float64(most), float64(otherwise))
	if given != nil && number != math.Trunc(number) {
		f.fail(name, "it must be a whole number")
	}
	return int(number)
}

// duration is number for a duration, given in seconds.
func (f *messageFields) duration(name string, least, most, otherwise time.Duration) time.Duration {
	if !f.has(name) {
		f.field(name)
		return otherwise
	}
	return wire.Seconds(f.number(name, least.Seconds(), most.Seconds(), 0))
}

// object takes an object, and reports whether the field is present.
func (f *messageFields) object(name string) (messageFields, bool) {
	raw := f.field(name)
	if raw == nil {
		return messageFields{}, false
	}
	return readFields(f.place+name+".", raw), true
}

// end returns an error for an unknown field, or else the first error.
func (f *messageFields) end() error {
	if len(f.values) > 0 {
		name := slices.Sorted(maps.Keys(f.values))[0]
		return domain.Errorf(domain.CodeInvalidRequest, f.place+domain.Clip(name, 60), "unknown field; expected %s", strings.Join(f.known, ", "))
	}
	return f.err
}

// addErrorOf ends an object that is nested in this one.
func (f *messageFields) addErrorOf(inner *messageFields) {
	if err := inner.end(); err != nil && f.err == nil {
		f.err = err
	}
}

// subscriptionField takes the client's name for a subscription.
func (f *messageFields) subscriptionField() string {
	return f.text("subscription", 1, maxSubscriptionName)
}

// attempts takes the deliveries that an ACK, NACK or MODACK answers.
func (f *messageFields) attempts() []domain.Attempt {
	var all []domain.Attempt
	if !f.array("ids", maxAnsweredIDs, func(place string, raw json.RawMessage) {
		inner := readFields(place+".", raw)
		text := inner.text("id", 1, math.MaxInt)
		attempt := inner.integer("attempt", 1, math.MaxInt32, 0)
		if attempt == 0 {
			inner.fail("attempt", "required: the attempt number delivered with the event")
		}
		id, err := domain.ParseEventID(text)
		if err != nil || id.IsZero() {
			inner.fail("id", "%q is not an event's id", domain.Clip(text, 60))
		}
		f.addErrorOf(&inner)
		all = append(all, domain.Attempt{EventID: id, Attempt: attempt})
	}) {
		f.fail("ids", "required: the events to answer, each with its attempt")
	}
	return all
}

// reply builds an outgoing message. It escapes texts of clients and errors. Names that the service has checked
// require no escaping.
type reply struct{ b []byte }

// replyTo starts an answer to the message with an id. The id is empty if it could not be read.
func replyTo(op, id string) *reply {
	a := &reply{b: append(make([]byte, 0, 128), `{"op":"`...)}
	a.b = append(append(a.b, op...), '"')
	if id != "" {
		a.text("id", id)
	}
	return a
}

func (a *reply) name(name string) {
	a.b = append(append(append(a.b, ',', '"'), name...), '"', ':')
}

// text appends any text, escaped.
func (a *reply) text(name, value string) *reply {
	a.name(name)
	a.b = wire.AppendJSONText(a.b, value)
	return a
}

func (a *reply) number(name string, value int64) *reply {
	a.name(name)
	a.b = strconv.AppendInt(a.b, value, 10)
	return a
}

func (a *reply) flag(name string, value bool) *reply {
	a.name(name)
	a.b = strconv.AppendBool(a.b, value)
	return a
}

// end returns the message.
func (a *reply) end() []byte { return append(a.b, '}') }

// problem appends the content of an error.
func (a *reply) problem(e *domain.Error) *reply {
	a.text("code", string(e.Code)).text("message", e.Message)
	if e.Where != "" {
		a.text("where", e.Where)
	}
	if e.CurrentVersion != nil {
		a.number("currentVersion", *e.CurrentVersion)
	}
	if e.Stream != "" {
		a.text("stream", e.Stream)
	}
	if e.Reason != "" {
		a.text("reason", e.Reason)
	}
	if e.RetryAfter > 0 {
		a.number("retryAfter", problem.RetryAfter(e))
	}
	if e.Quota != nil {
		a.text("quota", string(e.Quota.Quota)).number("used", e.Quota.Used).number("limit", e.Quota.Limit)
	}
	return a
}
