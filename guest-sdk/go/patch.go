package tollgate

import (
	"encoding/json"
	"fmt"
)

// A Mutation is what a mutator answers: a [*Patch], a [MergePatch] or a [WholeObject].
type Mutation interface{ mutation() }

// A MergePatch is the JSON text of an RFC 7386 patch: members are merged, null removes one, arrays
// are replaced as a whole.
type MergePatch string

// A WholeObject is the JSON text of the whole new object. A field that the plugin's own types do not
// know is lost, which the host notices: prefer a patch.
type WholeObject string

// A Patch is a JSON Patch, RFC 6902. Its functions take anything that package encoding/json can
// marshal, and panic over what it cannot: a channel, a function, a number that is infinite.
type Patch struct {
	operations []PatchOperation
	created    map[string]bool
}

// A PatchOperation is one operation of a JSON Patch.
type PatchOperation struct {
	// Op is add, remove, replace, move, copy or test.
	Op string
	// Path is the place that is written.
	Path string
	// From is the place that is read, for move and copy.
	From string
	// Value is the JSON text of the new value, for add, replace and test.
	Value string
}

func (*Patch) mutation()      {}
func (MergePatch) mutation()  {}
func (WholeObject) mutation() {}

// Merge is a merge patch of anything that can be marshalled. It panics over what cannot.
func Merge(patch any) MergePatch { return MergePatch(marshal(patch)) }

// Whole is a whole object of anything that can be marshalled. It panics over what cannot.
func Whole(object any) WholeObject { return WholeObject(marshal(object)) }

// Add sets a member or inserts before an array's element (-: behind the last). The parent has to be
// there.
func (patch *Patch) Add(path string, value any) *Patch {
	return patch.with(PatchOperation{Op: "add", Path: path, Value: marshal(value)})
}

// Replace replaces what has to be there.
func (patch *Patch) Replace(path string, value any) *Patch {
	return patch.with(PatchOperation{Op: "replace", Path: path, Value: marshal(value)})
}

// Remove removes what has to be there.
func (patch *Patch) Remove(path string) *Patch {
	return patch.with(PatchOperation{Op: "remove", Path: path})
}

// Move moves what has to be there.
func (patch *Patch) Move(from, path string) *Patch {
	return patch.with(PatchOperation{Op: "move", From: from, Path: path})
}

// Copy copies what has to be there.
func (patch *Patch) Copy(from, path string) *Patch {
	return patch.with(PatchOperation{Op: "copy", From: from, Path: path})
}

// Test makes the patch fail, as a fault of the plugin, unless that value is there.
func (patch *Patch) Test(path string, value any) *Patch {
	return patch.with(PatchOperation{Op: "test", Path: path, Value: marshal(value)})
}

// Set sets a member and makes the objects on the way to it that are missing: for
// /metadata/annotations/a of an object without annotations that is /metadata/annotations. An array's
// element is replaced.
//
// It reads the document, which is the object as it was before this patch; what earlier calls of Set
// and Append made is known, what other operations did is not.
func (patch *Patch) Set(object Document, path string, value any) *Patch {
	inArray := patch.makeParents(object, path)
	if inArray {
		return patch.Replace(path, value)
	}
	return patch.Add(path, value)
}

// Append adds behind the last element of a list, and makes the list when it is missing. It reads the
// document as Set does.
func (patch *Patch) Append(object Document, list string, value any) *Patch {
	if found, ok := object.Get(list); !patch.created[list] && (!ok || found.Kind() == Null) {
		patch.Set(object, list, []any{})
		patch.remember(list)
	}
	return patch.Add(list+"/-", value)
}

// Operations are the operations so far.
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
