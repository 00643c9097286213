package guest

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
)

// Not WASI's: the stub that stands in for WASI takes what the runtime writes before it gives up (all
// goroutines asleep, for one) as the reason of the fault.
//
//go:wasmimport wasi_snapshot_preview1 tollgate_keep_standard_error
func keepStandardError(at unsafe.Pointer, room uint32)

var lastWords [512]byte

func init() {
	keepStandardError(unsafe.Pointer(&lastWords), uint32(len(lastWords)))
	tollgate.UseHost(host{})
}

// How often the goroutines that are left get their turn before the answer.
const turns = 100

// Answer runs an export. A panic in it ends the call with the panic's text and place, and so does one in a
// goroutine that nobody waited for, without its place: what it was to check is not to pass unseen.
func Answer(export func() []uint32) unsafe.Pointer {
	defer func() {
		if reason := recover(); reason != nil {
			file, line := panicked()
			hostAbort(fmt.Sprint(reason), 1, file, line, 0)
		}
	}()
	kept = kept[:0]
	before := runtime.NumGoroutine()
	answer := export()
	for turn := 0; turn < turns && runtime.NumGoroutine() > before; turn++ {
		runtime.Gosched()
	}
	return Record(answer)
}

// Fault ends the call: the error is not a denial.
func Fault(format string, arguments ...any) {
	hostAbort(fmt.Sprintf(format, arguments...), 0, "", 0, 0)
}

// sdk is what the names of this SDK's functions begin with.
const sdk = "github.com/tollgate-dev/tollgate/guest-sdk/go"

// panicked is the place of the panic that is being recovered from: that of the first function behind
// those of the runtime that a panic goes through, and those of this SDK that were called with what they refuse.
func panicked() (string, uint32) {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers[:])])
	found := false
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic" || frame.Function == "runtime.sigpanic":
			found = true
		case found && !strings.HasPrefix(frame.Function, "runtime.") && !isSDK(frame.Function):
			return frame.File, uint32(frame.Line)
		}
		if !more {
			return "", 0
		}
	}
}

func isSDK(function string) bool {
	rest, is := strings.CutPrefix(function, sdk)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '/')
}
