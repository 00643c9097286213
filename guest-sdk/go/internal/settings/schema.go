package settings

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Schema returns the JSON Schema of what Read reads into the value that a Go pointer points to. The
// value has the defaults. The schema is for people: Read decides.
func Schema(into any) string {
	text, err := json.Marshal(schema(reflect.ValueOf(into).Elem(), nil))
	if err != nil {
		return ""
	}
	return string(text)
}

// A described is a JSON Schema.
type described map[string]any

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// schema leaves out the members of a struct within itself.
func schema(value reflect.Value, outer []reflect.Type) described {
	of := value.Type()
	if reflect.PointerTo(of).Implements(unmarshaler) {
		return described{}
	}
	switch of.Kind() {
	case reflect.Struct:
		return object(value, outer)
	case reflect.Pointer:
		return schema(reflect.New(of.Elem()).Elem(), outer)
	case reflect.Interface:
		return described{}
	}
	made := described{}
	switch of.Kind() {
	case reflect.Slice:
		made["type"] = "array"
		made["items"] = schema(reflect.New(of.Elem()).Elem(), outer)
	case reflect.Map:
		made["type"] = "object"
		made["additionalProperties"] = schema(reflect.New(of.Elem()).Elem(), outer)
	case reflect.Bool:
		made["type"] = "boolean"
	case reflect.String:
		made["type"] = "string"
	case reflect.Float32, reflect.Float64:
		made["type"] = "number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		made["type"] = "integer"
		made["minimum"] = 0
	default:
		made["type"] = "integer"
	}
	if text, err := json.Marshal(value.Interface()); err == nil && !value.IsZero() {
		made["default"] = json.RawMessage(text)
	}
	return made
}

func object(value reflect.Value, outer []reflect.Type) described {
	for _, one := range outer {
		if one == value.Type() {
			return described{"type": "object"}
		}
	}
	outer = append(outer, value.Type())
	properties := described{}
	for _, field := range reflect.VisibleFields(value.Type()) {
		if name := memberOf(field); name != "" {
			properties[name] = schema(value.FieldByIndex(field.Index), outer)
		}
	}
	return described{"type": "object", "properties": properties, "additionalProperties": false}
}

// memberOf returns the name of the setting that a field holds, or "" if it holds none.
func memberOf(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	switch {
	case !field.IsExported() || field.Anonymous || name == "-":
		return ""
	case name == "":
		return field.Name
	}
	return name
}
