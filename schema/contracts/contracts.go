package contracts

import (
	"bytes"
	_ "embed" // the files are parts of the program
)

var (
	//go:embed openapi.yaml
	native []byte
	//go:embed routes.yaml
	others []byte
	//go:embed asyncapi.yaml
	asyncAPI []byte
)

// OpenAPI returns the description of all routes: openapi.yaml, with the paths of routes.yaml behind its own.
func OpenAPI() []byte {
	components := []byte("\ncomponents:\n")
	before, after, ok := bytes.Cut(native, components)
	_, paths, more := bytes.Cut(others, []byte("\npaths:\n"))
	if !ok || !more {
		return native // TestOpenAPIHasEveryRoute fails
	}
	return bytes.Join([][]byte{before, []byte("\n"), bytes.TrimSuffix(paths, []byte("\n")), components, after}, nil)
}

// AsyncAPI returns the description of what taps read.
func AsyncAPI() []byte { return asyncAPI }
