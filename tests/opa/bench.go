package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/util"
)

// Measures the prepared query on one input. The parse of the input counts: the plugin parses its input, too.
func bench(reader *bufio.Reader, writer *bufio.Writer) error {
	var t template
	line, err := reader.ReadBytes('\n')
	if err == nil {
		err = util.UnmarshalJSON(line, &t)
	}
	if err != nil {
		return fmt.Errorf("the first line must be a template: %w", err)
	}
	loaded, err := load(t)
	if err != nil {
		return err
	}
	line, err = reader.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the second line must be an input: %w", err)
	}
	parse := func() (ast.Value, error) {
		var members any
		if err := util.UnmarshalJSON(line, &members); err != nil {
			return nil, err
		}
		return ast.InterfaceToValue(members)
	}
	input, err := parse()
	if err != nil {
		return err
	}
	var failure error
	measure := func(evaluate func() error) int64 {
		result := testing.Benchmark(func(b *testing.B) {
			for range b.N {
				if err := evaluate(); err != nil {
					failure = err
				}
			}
		})
		return result.NsPerOp()
	}
	query := measure(func() error {
		_, err := loaded.violations(input)
		return err
	})
	whole := measure(func() error {
		input, err := parse()
		if err == nil {
			_, err = loaded.violations(input)
		}
		return err
	})
	if failure != nil {
		return failure
	}
	figures := map[string]int64{"query": query, "parse and query": whole}
	if err := json.NewEncoder(writer).Encode(figures); err != nil {
		return err
	}
	return writer.Flush()
}
