// Applies JSON Patches with the library and the version that kube-apiserver applies admission patches with.
//
// Reads one {"doc": …, "patch": …} per line and writes one {"result": …} or {"error": "…"} per line.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

type testCase struct {
	Doc   json.RawMessage `json:"doc"`
	Patch json.RawMessage `json:"patch"`
}

type outcome struct {
	Result json.RawMessage `json:"result,omitempty"`
	Error  string          `json:"error,omitempty"`
}

func apply(line []byte) outcome {
	var c testCase
	if err := json.Unmarshal(line, &c); err != nil {
		return outcome{Error: err.Error()}
	}
	patch, err := jsonpatch.DecodePatch(c.Patch)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	result, err := patch.Apply(c.Doc)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	return outcome{Result: result}
}

func run(in io.Reader, out io.Writer) error {
	reader := bufio.NewReader(in)
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(apply(line)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return writer.Flush()
		}
		if err != nil {
			return err
		}
	}
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
