package tollgate

import (
	"fmt"
	"strings"
)

var escapes = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer returns a JSON Pointer from tokens, and escapes them. Tokens are member names and element
// indices:
//
//	tollgate.Pointer("metadata", "labels", "app.kubernetes.io/name")
func Pointer(tokens ...any) string {
	var pointer strings.Builder
	for _, token := range tokens {
		pointer.WriteByte('/')
		pointer.WriteString(escapes.Replace(fmt.Sprint(token)))
	}
	return pointer.String()
}

// checked returns a pointer unchanged. A malformed pointer ends the call at the author's line.
func checked(pointer string) string {
	// The host also checks every pointer, but cannot tell the line. A pointer without ~ costs little here.
	if (pointer != "" && pointer[0] != '/') || strings.IndexByte(pointer, '~') >= 0 {
		refuseMalformed(pointer)
	}
	return pointer
}

func refuseMalformed(pointer string) {
	problem := malformed(pointer)
	if problem == "" {
		return
	}
	message := fmt.Sprintf("`%s` is no JSON Pointer: %s", pointer, problem)
	// In a plugin, recover must not hide the problem: the place would read as absent.
	if plugin, ok := host.(interface{ Abort(message string) }); ok {
		plugin.Abort(message)
	}
	panic(message)
}

func malformed(pointer string) string {
	if pointer != "" && pointer[0] != '/' {
		return fmt.Sprintf("it has no leading slash; write `/%s`", pointer)
	}
	for _, rest := range strings.Split(pointer, "~")[1:] {
		if !strings.HasPrefix(rest, "0") && !strings.HasPrefix(rest, "1") {
			return "a `~` is followed by neither 0 nor 1; write `~0` for `~` and `~1` for `/`, or make it with tollgate.Pointer"
		}
	}
	return ""
}

// parent returns the container of a place. It returns false for the whole document.
func parent(pointer string) (string, bool) {
	end := strings.LastIndexByte(pointer, '/')
	if end < 0 {
		return "", false
	}
	return pointer[:end], true
}
