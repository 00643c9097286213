package guest

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"unsafe"

	tollgate "github.com/tollgate-dev/tollgate/guest-sdk/go"
)

// Not part of WASI: the WASI stub takes the text that the runtime writes before it stops (such as
// "all goroutines are asleep") as the reason of the fault.
//
//go:wasmimport wasi_snapshot_preview1 tollgate_keep_standard_error
func keepStandardError(at unsafe.Pointer, room uint32)

var lastWords [512]byte

func init() {
	keepStandardError(unsafe.Pointer(&lastWords), uint32(len(lastWords)))
	tollgate.UseHost(host{})
}

// The number of turns that the remaining goroutines get before the answer.
const turns = 100

// Answer runs an export. A panic in it ends the call with the panic's text and place. A panic in a
// goroutine that the policy did not wait for ends the call with the text only, so that a failed
// check cannot go unnoticed.
func Answer(export func() []uint32) unsafe.Pointer {
	defer func() {
		if reason := recover(); reason != nil {
			file, line := author(true)
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

// Fault ends the call, because the error is not a denial.
func Fault(format string, arguments ...any) {
	hostAbort(fmt.Sprintf(format, arguments...), 0, "", 0, 0)
}

// Abort ends the call with the place of the author's call. The policy cannot recover from it.
func (host) Abort(message string) {
	file, line := author(false)
	hostAbort(message, 1, file, line, 0)
}

// sdk is the prefix of the names of this SDK's functions.
const sdk = "github.com/tollgate-dev/tollgate/guest-sdk/go"

// author returns the innermost place in the author's code: of the current panic, or of the current
// call. It skips the functions of the runtime, and the functions of this SDK that refuse their
// arguments.
func author(panicked bool) (string, uint32) {
	var callers [64]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers[:])])
	found := !panicked
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic" || frame.Function == "runtime.sigpanic":
			found = true
		case found && !strings.HasPrefix(frame.Function, "runtime.") && !isSDK(frame.Function):
			return inModule(frame.File), uint32(frame.Line)
		}
		if !more {
			return "", 0
		}
	}
}

// inModule returns the path of a file from the folder of the author's module, so that editors find
// the file. A build with -trimpath puts the module's path in front. Files of other modules stay.
func inModule(file string) string {
	if build, ok := debug.ReadBuildInfo(); ok {
		return strings.TrimPrefix(file, build.Main.Path+"/")
	}
	return file
}

func isSDK(function string) bool {
	rest, is := strings.CutPrefix(function, sdk)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '/')
}
