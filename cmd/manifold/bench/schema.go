package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// moreFields are as many as make the data of an event 20 fields, and validated describes them all.
const (
	moreFields = `"warehouse":"W-7","weight":1.25,"fragile":false,"gift":true,"discount":0,"tax":21,"locale":"nl-NL","session":"0190d3a4-5b6c-7def-8123-456789abcdef",` +
		`"device":"phone","version":3,"tags":["new","sale"],`
	validated = `{"schema":{"type":"object","additionalProperties":false,
		"required":["customer","sku","quantity","price","currency","address","channel","warehouse","weight","tax","locale"],
		"properties":{
			"customer":{"type":"string","pattern":"^customer-[0-9]{6}$"},"sku":{"type":"string","minLength":5,"maxLength":20},
			"quantity":{"type":"integer","minimum":1,"maximum":1000},"price":{"type":"number","exclusiveMinimum":0},"currency":{"enum":["EUR","USD","GBP"]},
			"address":{"type":"object","required":["street","city"],"properties":{"street":{"type":"string"},"city":{"type":"string"},"postcode":{"type":"string","pattern":"^[0-9]{4}$"}}},
			"channel":{"enum":["web","shop","phone"]},"campaign":{"type":"string","maxLength":40},"note":{"type":"string","maxLength":200},
			"warehouse":{"type":"string"},"weight":{"type":"number","minimum":0},"fragile":{"type":"boolean"},"gift":{"type":"boolean"},
			"discount":{"type":"number","minimum":0,"maximum":100},"tax":{"type":"integer"},"locale":{"type":"string","pattern":"^[a-z]{2}-[A-Z]{2}$"},
			"session":{"type":"string","format":"uuid"},"device":{"enum":["phone","desktop","tablet"]},"version":{"type":"integer"},
			"tags":{"type":"array","items":{"type":"string"},"maxItems":10}}}}`
)

// turns is how often driveValidated measures each of both.
const turns = 4

// driveValidated drives the clients in turns: without and with validation, each half of the time.
func (r *run) driveValidated(ctx context.Context, clients []client, warmUp, duration time.Duration, most int) (load, error) {
	tenant, err := r.dial(r.service.key)
	if err != nil {
		return load{}, err
	}
	for _, eventType := range slices.Compact(slices.Sorted(slices.Values(eventTypes[:]))) {
		if _, err := tenant.do("PUT", "/v1/schemas/"+eventType, "", []byte(validated), http.StatusCreated); err != nil {
			return load{}, err
		}
	}
	var measured load
	rates := map[string]float64{}
	for range turns {
		for _, mode := range []string{"off", "enforce"} {
			if _, err := tenant.do("PUT", "/v1/schema-rules/order", "", fmt.Appendf(nil, `{"mode":%q,"unknownTypes":"refuse"}`, mode), http.StatusOK); err != nil {
				return load{}, err
			}
			if measured, err = drive(ctx, clients, warmUp/turns, duration/2/turns, most); err != nil {
				return load{}, err
			}
			rates[mode] += measured.perSecond() / turns
		}
	}
	if rates["off"] == 0 {
		return load{}, errors.New("nothing was measured without validation: increase --duration")
	}
	r.addFigure(rates["off"], "events/s", "appended without validation")
	r.addFigure(rates["enforce"]/rates["off"], "", "share of that rate with validation")
	return measured, nil
}
