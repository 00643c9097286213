package cluster

import (
	"unsafe"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest"
)

//go:wasmimport tollgate:admission/cluster@0.1.0 get
func hostGet(lookup string, isNamespaced uint32, namespace, name string, area unsafe.Pointer)

//go:wasmimport tollgate:admission/cluster@0.1.0 find
func hostFind(lookup, index, key string, isAfter uint32, after string, area unsafe.Pointer)

//go:wasmimport tollgate:admission/cluster@0.1.0 list
func hostList(lookup string, isNamespaced uint32, namespace string, isAfter uint32, after string, area unsafe.Pointer)

type wasm struct{}

// area is the place for results. It is not on a stack, because the host calls this module back while
// it writes them, and a stack can move.
var area [9]uint32

func init() { host = wasm{} }

// An object is an optional namespace, its name and its fields.
const objectWords = 7

func (wasm) Get(lookup, namespace, name string) (*Found, error) {
	hostGet(lookup, present(namespace), namespace, name, place())
	defer guest.Taken()
	if err := failure(); err != nil {
		return nil, err
	}
	if area[1]&0xff == 0 {
		return nil, nil
	}
	found := object(area[2:])
	return &found, nil
}

func (wasm) Find(lookup, index, key, after string) (Page, error) {
	hostFind(lookup, index, key, present(after), after, place())
	return page()
}

func (wasm) List(lookup, namespace, after string) (Page, error) {
	hostList(lookup, present(namespace), namespace, present(after), after, place())
	return page()
}

func place() unsafe.Pointer { return unsafe.Pointer(&area) }

func page() (Page, error) {
	defer guest.Taken()
	if err := failure(); err != nil {
		return Page{}, err
	}
	objects := make([]Found, area[2])
	list := guest.TakeWords(area[1], objectWords*area[2])
	for index := range objects {
		objects[index] = object(list[objectWords*index:])
	}
	return Page{objects, guest.TakeOption(area[3:])}, nil
}

func object(words []uint32) Found {
	return Found{guest.TakeOption(words), guest.Take(words[3], words[4]), guest.Take(words[5], words[6])}
}

// failure reads a result: whether it is a failure, the kind of the failure, and its text.
func failure() error {
	if area[0]&0xff == 0 {
		return nil
	}
	kind := ErrNotGranted
	if area[1]&0xff != 0 {
		kind = ErrNotSynchronised
	}
	return &Failure{kind, guest.Take(area[2], area[3])}
}

func present(text string) uint32 {
	if text == "" {
		return 0
	}
	return 1
}
