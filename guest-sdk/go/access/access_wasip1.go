package access

import (
	"unsafe"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest"
)

// The arguments are too many for parameters, so they are in memory.
//
//go:wasmimport tollgate:admission/access@0.1.0 check
func hostCheck(arguments, area unsafe.Pointer)

type wasm struct{}

// arguments is the action and the optional service account. Neither it nor area is on a stack,
// because the host calls this module back, and a stack can move.
var arguments struct {
	// isPath is 0 for a resource. The texts of the action follow it.
	isPath uint32
	texts  [6]text
	// hasAccount is 1 for a question about a service account.
	hasAccount uint32
	account    [2]text
}

// asked is the question that the host reads.
var asked Question

// text is the address of a text and its length.
type text struct{ at, length uint32 }

// area is the result: whether it is a failure, and then a decision, or a failure with its text.
var area [7]uint32

func init() { host = wasm{} }

func (wasm) Check(question Question) (Decision, error) {
	// A global variable keeps the texts off the stack, which can move.
	asked = question
	arguments.isPath, arguments.texts = 0, [6]text{}
	if asked.Path != nil {
		arguments.isPath = 1
		arguments.texts[0], arguments.texts[1] = place(asked.Path.Verb), place(asked.Path.Path)
	} else {
		action := &asked.Resource
		arguments.texts = [6]text{
			place(action.Verb), place(action.Group), place(action.Resource), place(action.Subresource),
			place(action.Namespace), place(action.Name),
		}
	}
	arguments.hasAccount, arguments.account = 0, [2]text{}
	if asked.Account != nil {
		arguments.hasAccount = 1
		arguments.account = [2]text{place(asked.Account.Namespace), place(asked.Account.Name)}
	}
	hostCheck(unsafe.Pointer(&arguments), unsafe.Pointer(&area))
	defer guest.Taken()
	if area[0]&0xff != 0 {
		kind := ErrNotGranted
		if area[1]&0xff != 0 {
			kind = ErrUnavailable
		}
		return Decision{}, &Failure{kind, guest.Take(area[2], area[3])}
	}
	decision := Decision{Allowed: area[1]&0xff != 0, Reason: guest.Take(area[2], area[3])}
	decision.Err = guest.TakeOption(area[4:])
	return decision, nil
}

func place(from string) text {
	return text{uint32(uintptr(unsafe.Pointer(unsafe.StringData(from)))), uint32(len(from))}
}
