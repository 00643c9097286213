package guest

import (
	"math"
	"unsafe"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
)

//go:wasmimport tollgate:admission/review@0.1.0 request
func hostRequest(area unsafe.Pointer)

//go:wasmimport tollgate:admission/review@0.1.0 get
func hostGet(part uint32, at string, area unsafe.Pointer)

//go:wasmimport tollgate:admission/review@0.1.0 get-json
func hostGetJSON(part uint32, at string, area unsafe.Pointer)

//go:wasmimport tollgate:admission/review@0.1.0 get-many
func hostGetMany(part, at, count uint32, area unsafe.Pointer)

//go:wasmimport tollgate:admission/review@0.1.0 keys
func hostKeys(part uint32, at string, area unsafe.Pointer)

//go:wasmimport tollgate:admission/review@0.1.0 select
func hostSelect(part uint32, pattern string, area unsafe.Pointer)

//go:wasmimport tollgate:admission/review@0.1.0 warn
func hostWarn(message string)

//go:wasmimport tollgate:admission/review@0.1.0 annotate
func hostAnnotate(key, value string)

//go:wasmimport tollgate:admission/logging@0.1.0 log
func hostLog(level uint32, message string)

//go:wasmimport tollgate:admission/logging@0.1.0 abort
func hostAbort(message string, known uint32, file string, line, column uint32)

type host struct{}

// area is the place for results that do not fit into a return value: 24 words, aligned to eight
// bytes.
var area [12]uint64

func place() unsafe.Pointer { return unsafe.Pointer(&area) }
func words() []uint32       { return unsafe.Slice((*uint32)(place()), 2*len(area)) }

var operations = [...]tollgate.Operation{tollgate.Create, tollgate.Update, tollgate.Delete, tollgate.Connect}

func (host) Request() tollgate.Request {
	hostRequest(place())
	defer taken()
	w := words()
	text := func(at int) string { return take(w[at], w[at+1]) }
	option := func(at int) string {
		if w[at] == 0 {
			return ""
		}
		return text(at + 1)
	}
	return tollgate.Request{
		UID:         text(0),
		Operation:   operations[w[2]&0xff],
		Kind:        tollgate.GroupVersionKind{Group: text(3), Version: text(5), Kind: text(7)},
		Resource:    tollgate.GroupVersionResource{Group: text(9), Version: text(11), Resource: text(13)},
		SubResource: option(15),
		Name:        text(18),
		Namespace:   option(20),
		DryRun:      w[23]&0xff != 0,
	}
}

func (host) Get(part tollgate.Part, at string) (tollgate.Value, bool) {
	hostGet(uint32(part), at, place())
	defer taken()
	w := words()
	if w[0]&0xff == 0 {
		return tollgate.Value{}, false
	}
	return value(w[2:]), true
}

func (host) GetJSON(part tollgate.Part, at string) (string, bool) {
	hostGetJSON(uint32(part), at, place())
	defer taken()
	w := words()
	if w[0]&0xff == 0 {
		return "", false
	}
	return take(w[1], w[2]), true
}

// An optional value is a word that tells whether it is there, and the value, aligned to eight bytes.
const foundWords = 6

func (host) GetMany(part tollgate.Part, at []string) []tollgate.Found {
	if len(at) == 0 {
		return nil
	}
	list := List(at, Text)
	hostGetMany(uint32(part), list[0], list[1], place())
	defer taken()
	w := words()
	found := make([]tollgate.Found, w[1])
	values := takeWords(w[0], foundWords*w[1])
	for index := range found {
		one := values[foundWords*index:]
		if one[0]&0xff != 0 {
			found[index] = tollgate.Found{Value: value(one[2:]), OK: true}
		}
	}
	return found
}

func (host) Keys(part tollgate.Part, at string) ([]string, bool) {
	hostKeys(uint32(part), at, place())
	defer taken()
	w := words()
	if w[0]&0xff == 0 {
		return nil, false
	}
	keys := make([]string, w[2])
	list := takeWords(w[1], 2*w[2])
	for index := range keys {
		keys[index] = take(list[2*index], list[2*index+1])
	}
	return keys, true
}

// A node is its pointer, followed by a value, aligned to eight bytes.
const nodeWords = 6

func (host) Select(part tollgate.Part, pattern string) []tollgate.Node {
	hostSelect(uint32(part), pattern, place())
	defer taken()
	w := words()
	nodes := make([]tollgate.Node, w[1])
	list := takeWords(w[0], nodeWords*w[1])
	for index := range nodes {
		node := list[nodeWords*index:]
		nodes[index] = tollgate.Node{Pointer: take(node[0], node[1]), Value: value(node[2:])}
	}
	return nodes
}

func (host) Warn(message string)                      { hostWarn(message) }
func (host) Annotate(key, value string)               { hostAnnotate(key, value) }
func (host) Log(level tollgate.Level, message string) { hostLog(uint32(level), message) }

// value reads a value: first its type, and its content from the third word on.
func value(w []uint32) tollgate.Value {
	long := uint64(w[2]) | uint64(w[3])<<32
	switch tollgate.Kind(w[0] & 0xff) {
	case tollgate.Boolean:
		return tollgate.BooleanValue(w[2]&0xff != 0)
	case tollgate.Integer:
		return tollgate.IntegerValue(int64(long))
	case tollgate.Number:
		return tollgate.NumberValue(math.Float64frombits(long))
	case tollgate.Text:
		return tollgate.TextValue(take(w[2], w[3]))
	case tollgate.Array:
		return tollgate.ArrayValue(int(w[2]))
	case tollgate.Object:
		return tollgate.ObjectValue(int(w[2]))
	default:
		return tollgate.NullValue()
	}
}
