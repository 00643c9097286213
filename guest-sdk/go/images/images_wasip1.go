package images

import (
	"unsafe"

	"github.com/tollgate-dev/tollgate/guest-sdk/go/internal/guest"
)

//go:wasmimport tollgate:admission/images@0.1.0 verify
func hostVerify(requests unsafe.Pointer, count uint32, area unsafe.Pointer)

type wasm struct{}

// asked and places are the requests that the host reads. Neither they nor area are on a stack,
// because the host calls this module back, and a stack can move.
var (
	asked  []Request
	places [][4]uint32
)

// area is the place and the length of the list of results.
var area [2]uint32

func init() { host = wasm{} }

// A result is whether it is a failure, and then a verified image (a digest, whether it is pinned, a
// list of signers, and whether it is the last known good) or a failure (its kind and its texts).
const resultWords = 7

// The kinds of failures, in the order of the contract.
var kinds = [...]error{ErrMalformed, ErrNotGranted, ErrNotFound, ErrUnsigned, ErrUntrusted, ErrUnavailable}

func (wasm) Verify(requests []Request) []Result {
	if len(requests) == 0 {
		return nil
	}
	asked, places = requests, make([][4]uint32, len(requests))
	for index := range asked {
		image, policy := asked[index].Image, asked[index].Policy
		places[index] = [4]uint32{address(image), uint32(len(image)), address(policy), uint32(len(policy))}
	}
	hostVerify(unsafe.Pointer(unsafe.SliceData(places)), uint32(len(places)), unsafe.Pointer(&area))
	defer guest.Taken()
	results := make([]Result, area[1])
	list := guest.TakeWords(area[0], resultWords*area[1])
	for index := range results {
		results[index] = read(list[resultWords*index:])
	}
	return results
}

func read(words []uint32) Result {
	if words[0]&0xff == 0 {
		verified := &Verified{
			Digest: guest.Take(words[1], words[2]), Pinned: words[3]&0xff != 0,
			Signers: make([]string, words[5]), LastKnownGood: words[6]&0xff != 0,
		}
		list := guest.TakeWords(words[4], 2*words[5])
		for index := range verified.Signers {
			verified.Signers[index] = guest.Take(list[2*index], list[2*index+1])
		}
		return Result{Verified: verified}
	}
	failure := &Failure{Kind: kinds[words[1]&0xff], Text: guest.Take(words[2], words[3])}
	if failure.Kind == ErrUnsigned || failure.Kind == ErrUntrusted {
		failure.Digest, failure.Text = failure.Text, guest.Take(words[4], words[5])
	}
	return Result{Err: failure}
}

func address(text string) uint32 { return uint32(uintptr(unsafe.Pointer(unsafe.StringData(text)))) }
