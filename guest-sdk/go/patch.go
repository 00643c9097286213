package tollgate

import (
	"encoding/json"
	"fmt"
)

// A Mutation is the answer of a mutator: a [*Patch], a [MergePatch] or a [WholeObject].
type Mutation interface{ mutation() }

// A MergePatch is the JSON text of an RFC 7386 patch. Members are merged, null removes a member,
// and arrays are replaced as a whole.
type MergePatch string

// A WholeObject is the JSON text of the whole new object. Fields that the plugin's own types do not
// know get lost, and the host detects that. Prefer a patch.
type WholeObject string

// A Patch is a JSON Patch, RFC 6902. Its functions take any value that package encoding/json can
// marshal. They panic on other values: a channel, a function, an infinite number. A malformed pointer
// ends the call like in a [Document].
type Patch struct {
	operations []PatchOperation
	created    map[string]bool
}

// A PatchOperation is one operation of a JSON Patch.
type PatchOperation struct {
	// Op is add, remove, replace, move, copy or test.
	Op string
	// Path is the target.
	Path string
	// From is the source, for move and copy.
	From string
	// Value is the JSON text of the new value, for add, replace and test.
	Value string
}

func (*Patch) mutation()      {}
func (MergePatch) mutation()  {}
func (WholeObject) mutation() {}

// Merge returns a merge patch from any value that can be marshalled. It panics on other values.
func Merge(patch any) MergePatch { return MergePatch(marshal(patch)) }

// Whole returns a whole object from any value that can be marshalled. It panics on other values.
func Whole(object any) WholeObject { return WholeObject(marshal(object)) }

// Add sets a member, or inserts before an array's element (-: after the last). The parent must
// exist.
func (patch *Patch) Add(path string, value any) *Patch {
	return patch.with(PatchOperation{Op: "add", Path: checked(path), Value: marshal(value)})
}

// Replace replaces an existing value.
func (patch *Patch) Replace(path string, value any) *Patch {
	return patch.with(PatchOperation{Op: "replace", Path: checked(path), Value: marshal(value)})
}

// Remove removes an existing value.
func (patch *Patch) Remove(path string) *Patch {
	return patch.with(PatchOperation{Op: "remove", Path: checked(path)})
}

// Move moves an existing value.
func (patch *Patch) Move(from, path string) *Patch {
	return patch.with(PatchOperation{Op: "move", From: checked(from), Path: checked(path)})
}

// Copy copies an existing value.
func (patch *Patch) Copy(from, path string) *Patch {
	return patch.with(PatchOperation{Op: "copy", From: checked(from), Path: checked(path)})
}

// Test tests that a value exists. Otherwise the patch fails, as a fault of the plugin.
func (patch *Patch) Test(path string, value any) *Patch {
	return patch.with(PatchOperation{Op: "test", Path: checked(path), Value: marshal(value)})
}

// Set sets a member, and creates missing objects on the way. For /metadata/annotations/a of an
// object without annotations, it creates /metadata/annotations. An array's element is replaced.
//
// Set reads the document, which is the object before this patch. It knows the results of earlier
// calls of Set and Append, but not those of other operations.
func (patch *Patch) Set(object Document, path string, value any) *Patch {
	inArray := patch.makeParents(object, checked(path))
	if inArray {
		return patch.Replace(path, value)
	}
	return patch.Add(path, value)
}

// Append adds after the last element of a list, and creates the list if it is missing. It reads the
// document like Set.
func (patch *Patch) Append(object Document, list string, value any) *Patch {
	if found, ok := object.Get(list); !patch.created[list] && (!ok || found.Kind() == Null) {
		patch.Set(object, list, []any{})
		patch.remember(list)
	}
	return patch.Add(list+"/-", value)
}

// Operations returns the operations so far.
func (patch *Patch) Operations() []PatchOperation {
	if patch == nil {
		return nil
	}
	return patch.operations
}

func (patch *Patch) makeParents(object Document, path string) (inArray bool) {
	var missing []string
	place, ok := parent(path)
	for ; ok && place != "" && !patch.created[place]; place, ok = parent(place) {
		found, isThere := object.Get(place)
		if isThere && found.Kind() != Null {
			inArray = len(missing) == 0 && found.Kind() == Array
			break
		}
		missing = append(missing, place)
	}
	for index := len(missing) - 1; index >= 0; index-- {
		patch.Add(missing[index], struct{}{})
		patch.remember(missing[index])
	}
	return inArray
}

func (patch *Patch) remember(place string) {
	if patch.created == nil {
		patch.created = map[string]bool{}
	}
	patch.created[place] = true
}

func (patch *Patch) with(operation PatchOperation) *Patch {
	patch.operations = append(patch.operations, operation)
	return patch
}

func marshal(value any) string {
	if text, ok := value.(json.RawMessage); ok {
		return string(text)
	}
	text, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("a %T has no JSON form: %v", value, err))
	}
	return string(text)
}
