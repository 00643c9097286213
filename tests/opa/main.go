// Evaluates Gatekeeper's templates with OPA, for comparisons with the plugin `rego`.
//
// Without arguments, it reads one JSON document per line and answers each with one line:
//
//	{"rego": …, "libs": […], "v1": false, "inventory": {…}}  loads a template: {"opa": "1.22.2"}
//	{"review": {…}, "parameters": {…}}                       evaluates it: {"violations": [["msg", details], …]}
//
// or {"error": "…"}. With the argument `bench`, it reads a template and one input, and prints nanoseconds per evaluation.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/util"
	"github.com/open-policy-agent/opa/v1/version"
)

type template struct {
	Rego      string   `json:"rego"`
	Libs      []string `json:"libs"`
	V1        bool     `json:"v1"`
	Inventory any      `json:"inventory"`
}

type answer struct {
	OPA        string  `json:"opa,omitempty"`
	Violations [][]any `json:"violations,omitempty"`
	Error      string  `json:"error,omitempty"`
}

type evaluator struct {
	query  rego.PreparedEvalQuery
	loaded bool
}

func load(t template) (evaluator, error) {
	var none evaluator
	options := ast.ParserOptions{RegoVersion: ast.RegoV0}
	if t.V1 {
		options.RegoVersion = ast.RegoV1
	}
	main, err := ast.ParseModuleWithOpts("template", t.Rego, options)
	if err != nil {
		return none, err
	}
	modules := map[string]*ast.Module{"template": main}
	for index, text := range t.Libs {
		name := fmt.Sprintf("lib%d", index)
		if modules[name], err = ast.ParseModuleWithOpts(name, text, options); err != nil {
			return none, err
		}
	}
	compiler := ast.NewCompiler()
	if compiler.Compile(modules); compiler.Failed() {
		return none, compiler.Errors
	}
	store := inmem.NewFromObject(map[string]any{"inventory": t.Inventory})
	query, err := rego.New(
		rego.Compiler(compiler),
		rego.Store(store),
		rego.Query(main.Package.Path.String()+".violation"),
	).PrepareForEval(context.Background())
	return evaluator{query, err == nil}, err
}

// Reads the violations as the hook of Gatekeeper's driver does: an element without `msg` is none, and one whose `msg` is
// no string is an error.
func (e evaluator) violations(input ast.Value) ([][]any, error) {
	if !e.loaded {
		return nil, fmt.Errorf("no template is loaded")
	}
	results, err := e.query.Eval(context.Background(), rego.EvalParsedInput(input))
	if err != nil {
		return nil, err
	}
	violations := [][]any{}
	for _, result := range results {
		elements, isList := result.Expressions[0].Value.([]any)
		if !isList {
			return nil, fmt.Errorf("violation is no set")
		}
		for _, element := range elements {
			members, isObject := element.(map[string]any)
			message, hasMessage := members["msg"]
			if !isObject || !hasMessage {
				continue
			}
			text, isText := message.(string)
			if !isText {
				return nil, fmt.Errorf("msg is no string")
			}
			violations = append(violations, []any{text, members["details"]})
		}
	}
	return violations, nil
}

func answered(e *evaluator, line []byte) answer {
	var members map[string]any
	if err := util.UnmarshalJSON(line, &members); err != nil {
		return answer{Error: err.Error()}
	}
	if _, isTemplate := members["rego"]; isTemplate {
		var t template
		err := util.UnmarshalJSON(line, &t)
		if err == nil {
			*e, err = load(t)
		}
		if err != nil {
			return answer{Error: err.Error()}
		}
		return answer{OPA: version.Version}
	}
	input, err := ast.InterfaceToValue(members)
	if err != nil {
		return answer{Error: err.Error()}
	}
	violations, err := e.violations(input)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Violations: violations}
}

func serve(reader *bufio.Reader, writer *bufio.Writer) error {
	encoder := json.NewEncoder(writer)
	encoder.SetEscapeHTML(false)
	var current evaluator
	for {
		line, err := reader.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			if err := encoder.Encode(answered(&current, line)); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return writer.Flush()
		}
		if err != nil {
			return err
		}
		// Whoever waits for the answer has sent nothing more.
		if reader.Buffered() == 0 {
			if err := writer.Flush(); err != nil {
				return err
			}
		}
	}
}

func main() {
	reader := bufio.NewReaderSize(os.Stdin, 1<<20)
	run := serve
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		run = bench
	}
	if err := run(reader, bufio.NewWriterSize(os.Stdout, 1<<20)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
