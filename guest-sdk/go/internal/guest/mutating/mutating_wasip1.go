package mutating

import (
	"unsafe"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest"
)

// The cases of a mutation.
const (
	unchanged uint32 = iota
	jsonPatch
	mergePatch
	wholeObject
	deny
)

//go:wasmexport tollgate:admission/mutating@0.1.0#mutate
func mutate() unsafe.Pointer {
	return guest.Answer(func() []uint32 {
		mutation, err := guest.Mutate(guest.Review())
		if err != nil {
			return guest.Join([]uint32{deny}, guest.Denial(err))
		}
		switch mutation := mutation.(type) {
		case nil:
			return []uint32{unchanged}
		case *tollgate.Patch:
			if len(mutation.Operations()) == 0 {
				return []uint32{unchanged}
			}
			return guest.Join([]uint32{jsonPatch}, guest.List(mutation.Operations(), operation))
		case tollgate.MergePatch:
			return guest.Join([]uint32{mergePatch}, guest.Text(string(mutation)))
		case tollgate.WholeObject:
			return guest.Join([]uint32{wholeObject}, guest.Text(string(mutation)))
		default:
			guest.Fault("Mutate returned a %T, which is no mutation", mutation)
			return nil
		}
	})
}

func operation(operation tollgate.PatchOperation) []uint32 {
	at := func(tag uint32) []uint32 {
		const json = 0
		return guest.Join([]uint32{tag}, guest.Text(operation.Path), []uint32{json}, guest.Text(operation.Value))
	}
	between := func(tag uint32) []uint32 {
		return guest.Join([]uint32{tag}, guest.Text(operation.From), guest.Text(operation.Path), []uint32{0})
	}
	switch operation.Op {
	case "add":
		return at(0)
	case "remove":
		return guest.Join([]uint32{1}, guest.Text(operation.Path), []uint32{0, 0, 0})
	case "replace":
		return at(2)
	case "move":
		return between(3)
	case "copy":
		return between(4)
	default:
		return at(5)
	}
}
