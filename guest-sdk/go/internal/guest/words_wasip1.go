package guest

import (
	"unsafe"
)

// Every record of the contract that a plugin returns is made of words of four bytes.

// kept holds what an answer points to until the host has read it, which it has by the next call.
var kept []any

func address(of unsafe.Pointer) uint32 { return uint32(uintptr(of)) }

// Text is a string's address and length.
func Text(text string) []uint32 {
	kept = append(kept, text)
	return []uint32{address(unsafe.Pointer(unsafe.StringData(text))), uint32(len(text))}
}

// Option is an optional string that is absent when it is empty.
func Option(text string) []uint32 {
	if text == "" {
		return []uint32{0, 0, 0}
	}
	return append([]uint32{1}, Text(text)...)
}

// List is the address and length of a list.
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

// Join makes one record of the words of its fields.
func Join(fields ...[]uint32) []uint32 {
	var words []uint32
	for _, field := range fields {
		words = append(words, field...)
	}
	return words
}

// Record keeps words in memory and gives their place.
func Record(words []uint32) unsafe.Pointer {
	kept = append(kept, words)
	return unsafe.Pointer(unsafe.SliceData(words))
}

// handed are the blocks that the host asked for to put its answer into.
var handed = map[uint32][]uint64{}

//go:wasmexport cabi_realloc
func realloc(old, oldSize, align, size uint32) uint32 {
	if size == 0 {
		return align
	}
	block := make([]uint64, (size+7)/8)
	copy(block, handed[old])
	at := address(unsafe.Pointer(unsafe.SliceData(block)))
	handed[at] = block
	return at
}

// take is a string that the host has put at an address.
func take(at, length uint32) string {
	if length == 0 {
		return ""
	}
	return unsafe.String((*byte)(unsafe.Pointer(unsafe.SliceData(handed[at]))), length)
}

// takeWords is what the host has put at an address, as words.
func takeWords(at, count uint32) []uint32 {
	if count == 0 {
		return nil
	}
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(handed[at]))), count)
}

// taken forgets the blocks: what was taken out of them keeps them alive.
func taken() { clear(handed) }
