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

// parent returns the container of a place. It returns false for the whole document.
func parent(pointer string) (string, bool) {
	end := strings.LastIndexByte(pointer, '/')
	if end < 0 {
		return "", false
	}
	return pointer[:end], true
}
