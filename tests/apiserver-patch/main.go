// Applies JSON Patches with the library and the version that kube-apiserver applies admission patches with.
//
// Reads one {"doc": …, "patch": …} per line and writes one {"result": …} or {"error": "…"} per line.
//
// With the argument "decode" it reads documents, one in base64 per line, and writes each as Go's encoding/json decodes
// it: {"result": …} or {"error": "…"}.
package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
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

func decode(line []byte) outcome {
	document, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(line)))
	if err != nil {
		return outcome{Error: err.Error()}
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return outcome{Error: err.Error()}
	}
	if _, err := decoder.Token(); err != io.EOF {
		return outcome{Error: "data behind the document"}
	}
	result, err := json.Marshal(value)
	if err != nil {
		return outcome{Error: err.Error()}
	}
	return outcome{Result: result}
}

func run(in io.Reader, out io.Writer, work func(line []byte) outcome) error {
	reader := bufio.NewReader(in)
	writer := bufio.NewWriter(out)
	encoder := json.NewEncoder(writer)
	for {
		line, err := reader.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(work(line)); err != nil {
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
	work := apply
	if len(os.Args) > 1 && os.Args[1] == "decode" {
		work = decode
	}
	if err := run(os.Stdin, os.Stdout, work); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
