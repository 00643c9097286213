// Package settings unmarshals settings like encoding/json, but reports all errors with their JSON
// Pointers. It rejects unknown settings, and null instead of a value.
package settings

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"sort"
	"strings"
)

// Read unmarshals text into the value that a Go pointer points to.
func Read(text []byte, into any, report func(pointer, message string)) {
	if !json.Valid(text) || !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		report("", "the settings are not an object")
		return
	}
	reader{report}.read("", text, reflect.ValueOf(into).Elem())
}

type reader struct{ report func(pointer, message string) }

var escapes = strings.NewReplacer("~", "~0", "/", "~1")

func (reader reader) read(at string, text json.RawMessage, into reflect.Value) {
	if into.CanAddr() {
		if _, ok := into.Addr().Interface().(json.Unmarshaler); ok {
			reader.unmarshal(at, text, into)
			return
		}
	}
	switch into.Kind() {
	case reflect.Struct:
		reader.object(at, text, into)
	case reflect.Slice:
		reader.list(at, text, into)
	case reflect.Map:
		reader.table(at, text, into)
	case reflect.Pointer:
		into.Set(reflect.New(into.Type().Elem()))
		reader.read(at, text, into.Elem())
	case reflect.Interface:
		reader.unmarshal(at, text, into)
	default:
		if string(text) == "null" {
			reader.wrong(at, into.Type())
			return
		}
		reader.unmarshal(at, text, into)
	}
}

func (reader reader) object(at string, text json.RawMessage, into reflect.Value) {
	members, ok := members(text)
	if !ok {
		reader.wrong(at, into.Type())
		return
	}
	known := map[string]reflect.Value{}
	for _, field := range reflect.VisibleFields(into.Type()) {
		if name := memberOf(field); name != "" {
			known[name] = into.FieldByIndex(field.Index)
		}
	}
	for _, name := range sorted(members) {
		place := at + "/" + escapes.Replace(name)
		if field, ok := known[name]; ok {
			reader.read(place, members[name], field)
		} else {
			names := sorted(known)
			reader.report(place, "unknown setting; there are: "+strings.Join(names, ", "))
		}
	}
}

func (reader reader) list(at string, text json.RawMessage, into reflect.Value) {
	var elements []json.RawMessage
	if string(text) == "null" || json.Unmarshal(text, &elements) != nil {
		reader.wrong(at, into.Type())
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(elements), len(elements)))
	for index, element := range elements {
		reader.read(fmt.Sprintf("%s/%d", at, index), element, into.Index(index))
	}
}

func (reader reader) table(at string, text json.RawMessage, into reflect.Value) {
	members, ok := members(text)
	if !ok || into.Type().Key().Kind() != reflect.String {
		reader.wrong(at, into.Type())
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, name := range sorted(members) {
		value := reflect.New(into.Type().Elem()).Elem()
		reader.read(at+"/"+escapes.Replace(name), members[name], value)
		into.SetMapIndex(reflect.ValueOf(name).Convert(into.Type().Key()), value)
	}
}

func (reader reader) unmarshal(at string, text json.RawMessage, into reflect.Value) {
	if err := json.Unmarshal(text, into.Addr().Interface()); err != nil {
		if _, ok := err.(*json.UnmarshalTypeError); ok {
			reader.wrong(at, into.Type())
		} else {
			reader.report(at, err.Error())
		}
	}
}

func (reader reader) wrong(at string, expected reflect.Type) {
	reader.report(at, "must be "+describe(expected))
}

func describe(expected reflect.Type) string {
	switch expected.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 that fits into %d bits", expected.Bits())
	default:
		return fmt.Sprintf("a whole number that fits into %d bits", expected.Bits())
	}
}

func members(text json.RawMessage) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	err := json.Unmarshal(text, &members)
	return members, err == nil && members != nil
}

func sorted[V any](members map[string]V) []string {
	names := make([]string, 0, len(members))
	for name := range members {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
