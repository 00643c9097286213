package guest

import (
	"unsafe"
)

// Every record of the contract that a plugin returns consists of words of four bytes.

// kept holds the memory of an answer until the host has read it, which is before the next call.
var kept []any

func address(of unsafe.Pointer) uint32 { return uint32(uintptr(of)) }

// Text returns a string's address and length.
func Text(text string) []uint32 {
	kept = append(kept, text)
	return []uint32{address(unsafe.Pointer(unsafe.StringData(text))), uint32(len(text))}
}

// Option returns an optional string. An empty string is absent.
func Option(text string) []uint32 {
	if text == "" {
		return []uint32{0, 0, 0}
	}
	return append([]uint32{1}, Text(text)...)
}

// List returns the address and length of a list.
func List[T any](elements []T, record func(T) []uint32) []uint32 {
	var words []uint32
	for _, element := range elements {
		words = append(words, record(element)...)
	}
	if len(words) == 0 {
		return []uint32{0, 0}
	}
	return []uint32{uint32(uintptr(Record(words))), uint32(len(elements))}
}

// Join concatenates the words of the fields of a record.
func Join(fields ...[]uint32) []uint32 {
	var words []uint32
	for _, field := range fields {
		words = append(words, field...)
	}
	return words
}

// Record keeps words in memory and returns their place.
func Record(words []uint32) unsafe.Pointer {
	kept = append(kept, words)
	return unsafe.Pointer(unsafe.SliceData(words))
}

// handed has the blocks that the host asked for to store its results, in this order.
var handed [][]uint64

// following is the index of the block behind the one that was found last.
var following int

//go:wasmexport cabi_realloc
func realloc(old, oldSize, align, size uint32) uint32 {
	if size == 0 {
		return align
	}
	block := make([]uint64, (size+7)/8)
	if old != 0 && oldSize != 0 {
		copy(block, find(old))
	}
	handed = append(handed, block)
	return address(unsafe.Pointer(unsafe.SliceData(block)))
}

// find returns the block at an address. Results are read in the order in which the host stores them, so the search
// begins where the last one ended.
func find(at uint32) []uint64 {
	for range handed {
		if following == len(handed) {
			following = 0
		}
		block := handed[following]
		following++
		if address(unsafe.Pointer(unsafe.SliceData(block))) == at {
			return block
		}
	}
	return nil
}

// take returns a string that the host has stored at an address.
func take(at, length uint32) string {
	if length == 0 {
		return ""
	}
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(find(at)))), length)
}

// takeWords returns the words that the host has stored at an address.
func takeWords(at, count uint32) []uint32 {
	if count == 0 {
		return nil
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(find(at)))), count)
}

// taken forgets the blocks. Strings and words that were taken from them keep them alive.
func taken() {
	clear(handed)
	handed = handed[:0]
	following = 0
}

// Take returns a string that the host has stored at an address.
func Take(at, length uint32) string { return take(at, length) }

// TakeWords returns the words that the host has stored at an address.
func TakeWords(at, count uint32) []uint32 { return takeWords(at, count) }

// TakeOption returns an optional string. An absent string is empty.
func TakeOption(words []uint32) string {
	if words[0]&0xff == 0 {
		return ""
	}
	return take(words[1], words[2])
}

// Taken forgets the blocks.
func Taken() { taken() }
