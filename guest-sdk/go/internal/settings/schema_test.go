package settings

import (
	"encoding/json"
	"testing"
)

type tree struct {
	Leaves []tree `json:"leaves"`
}

type every struct {
	Allowed []string         `json:"allowed"`
	Limits  map[string]uint8 `json:"limits"`
	Mode    string           `json:"mode"`
	Ratio   *float64         `json:"ratio"`
	Strict  bool
	Schema  json.RawMessage `json:"schema"`
	Any     any             `json:"any"`
	Tree    tree            `json:"tree"`
	Skipped int             `json:"-"`
	hidden  int
}

func TestSchemaComesFromTheType(t *testing.T) {
	got := Schema(&every{Mode: "deny", hidden: 1})
	want := `{"additionalProperties":false,"properties":{` +
		`"Strict":{"type":"boolean"},` +
		`"allowed":{"items":{"type":"string"},"type":"array"},` +
		`"any":{},` +
		`"limits":{"additionalProperties":{"minimum":0,"type":"integer"},"type":"object"},` +
		`"mode":{"default":"deny","type":"string"},` +
		`"ratio":{"type":"number"},` +
		`"schema":{},` +
		`"tree":{"additionalProperties":false,"properties":{"leaves":{"items":{"type":"object"},"type":"array"}},"type":"object"}` +
		`},"type":"object"}`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
