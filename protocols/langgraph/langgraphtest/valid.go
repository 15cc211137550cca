package langgraphtest

import (
	"bytes"
	"embed"
	"fmt"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

//go:embed schemas
var files embed.FS

// compiler has all schemas.
var compiler = sync.OnceValues(func() (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	for _, name := range []string{"frames", "data", "results"} {
		b, err := files.ReadFile("schemas/" + name + ".json")
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		if err := c.AddResource("urn:langchain:"+name, doc); err != nil {
			return nil, err
		}
	}
	return c, nil
})

var mu sync.Mutex // of the compiler

func valid(schema string, text []byte) error {
	mu.Lock()
	defer mu.Unlock()
	c, err := compiler()
	if err != nil {
		return err
	}
	s, err := c.Compile(schema)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("%.300s: %w", text, err)
	}
	if err := s.Validate(v); err != nil {
		return fmt.Errorf("%.600s: %w", text, err)
	}
	return nil
}

// Valid returns what is wrong with a frame from a server: an event, or the answer to a command. nil: nothing is.
func Valid(frame []byte) error { return valid("urn:langchain:frames", frame) }

// ValidResult returns what is wrong with the result of a command.
func ValidResult(method string, result []byte) error {
	return valid("urn:langchain:results#/$defs/"+method, result)
}
