package tollgate

import (
	"fmt"
	"strings"
)

var escapes = strings.NewReplacer("~", "~0", "/", "~1")

// Pointer is the JSON Pointer of its tokens, which are member names and element indices, not escaped:
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

// parent is the container of a place; false for the whole document.
func parent(pointer string) (string, bool) {
	end := strings.LastIndexByte(pointer, '/')
	if end < 0 {
		return "", false
	}
	return pointer[:end], true
}
