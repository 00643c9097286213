package tollgate

// A Kind is the type of a JSON value.
type Kind uint8

// The types of JSON values. A number is an Integer when it is written without fraction and exponent
// and fits into an int64.
const (
	Null Kind = iota
	Boolean
	Integer
	Number
	Text
	Array
	Object
)

// A Value is one JSON value. Of arrays and objects it knows the length only.
type Value struct {
	kind    Kind
	boolean bool
	integer int64
	number  float64
	text    string
	length  int
}

// A Node is a place in a document and what stands there.
type Node struct {
	// Pointer is complete and escaped: it can be used in a patch or a denial as it is.
	Pointer string
	// Value is what stands there; it may be JSON null.
	Value Value
}

// NullValue is JSON null.
func NullValue() Value { return Value{kind: Null} }

// BooleanValue is a boolean.
func BooleanValue(boolean bool) Value { return Value{kind: Boolean, boolean: boolean} }

// IntegerValue is a whole number.
func IntegerValue(integer int64) Value {
	return Value{kind: Integer, integer: integer, number: float64(integer)}
}

// NumberValue is any other number.
func NumberValue(number float64) Value { return Value{kind: Number, number: number} }

// TextValue is a string.
func TextValue(text string) Value { return Value{kind: Text, text: text} }

// ArrayValue is an array of so many elements.
func ArrayValue(length int) Value { return Value{kind: Array, length: length} }

// ObjectValue is an object of so many members.
func ObjectValue(length int) Value { return Value{kind: Object, length: length} }

// Kind is the value's type.
func (value Value) Kind() Kind { return value.kind }

// Text is the string; false for a value of another type.
func (value Value) Text() (string, bool) { return value.text, value.kind == Text }

// Boolean is the boolean; false for a value of another type.
func (value Value) Boolean() (boolean, ok bool) { return value.boolean, value.kind == Boolean }

// Integer is the whole number, exact; false for a value of another type.
func (value Value) Integer() (int64, bool) { return value.integer, value.kind == Integer }

// Number is the number, rounded to a double; false for a value of another type.
func (value Value) Number() (float64, bool) {
	return value.number, value.kind == Integer || value.kind == Number
}

// Len is the number of elements or members; false for a value that has none.
func (value Value) Len() (int, bool) {
	return value.length, value.kind == Array || value.kind == Object
}
