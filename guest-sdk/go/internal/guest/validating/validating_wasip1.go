package validating

import (
	"unsafe"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest"
)

//go:wasmexport tollgate:admission/validating@0.1.0#validate
func validate() unsafe.Pointer {
	return guest.Answer(func() []uint32 {
		if err := guest.Validate(guest.Review()); err != nil {
			return guest.Join([]uint32{1}, guest.Denial(err))
		}
		return []uint32{0}
	})
}
