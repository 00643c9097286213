package tollgate

// A Kind is the type of a JSON value.
type Kind uint8

// The types of JSON values. A number without fraction and exponent that fits into an int64 is an
// Integer.
const (
	Null Kind = iota
	Boolean
	Integer
	Number
	Text
	Array
	Object
)

// A Value is one JSON value. Arrays and objects have only their length.
type Value struct {
	kind    Kind
	boolean bool
	integer int64
	number  float64
	text    string
	length  int
}

// A Node is a place in a document, and its value.
type Node struct {
	// Pointer is complete and escaped. Patches and denials accept it unchanged.
	Pointer string
	// Value is the value at the place. It may be JSON null.
	Value Value
}

// NullValue returns JSON null.
func NullValue() Value { return Value{kind: Null} }

// BooleanValue returns a boolean.
func BooleanValue(boolean bool) Value { return Value{kind: Boolean, boolean: boolean} }

// IntegerValue returns an integer.
func IntegerValue(integer int64) Value {
	return Value{kind: Integer, integer: integer, number: float64(integer)}
}

// NumberValue returns any other number.
func NumberValue(number float64) Value { return Value{kind: Number, number: number} }

// TextValue returns a string.
func TextValue(text string) Value { return Value{kind: Text, text: text} }

// ArrayValue returns an array with a number of elements.
func ArrayValue(length int) Value { return Value{kind: Array, length: length} }

// ObjectValue returns an object with a number of members.
func ObjectValue(length int) Value { return Value{kind: Object, length: length} }

// Kind returns the value's type.
func (value Value) Kind() Kind { return value.kind }

// Text returns the string, and false for a value of another type.
func (value Value) Text() (string, bool) { return value.text, value.kind == Text }

// Boolean returns the boolean, and false for a value of another type.
func (value Value) Boolean() (boolean, ok bool) { return value.boolean, value.kind == Boolean }

// Integer returns the exact integer, and false for a value of another type.
func (value Value) Integer() (int64, bool) { return value.integer, value.kind == Integer }

// Number returns the number, rounded to a double, and false for a value of another type.
func (value Value) Number() (float64, bool) {
	return value.number, value.kind == Integer || value.kind == Number
}

// Len returns the number of elements or members, and false for a value of another type.
func (value Value) Len() (int, bool) {
	return value.length, value.kind == Array || value.kind == Object
}
